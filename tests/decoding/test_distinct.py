import torch
from torch import Tensor

from unmask.decoding.distinct import Memory


def test_a_state_is_run_once_and_again_only_when_it_was_forgotten() -> None:
    runs: list[int] = []

    def look_up(memory: Memory, numbers: list[int]) -> None:
        states = torch.tensor(numbers).unsqueeze(-1)

        def run(unknown: Tensor) -> Tensor:
            runs.extend(states[unknown, 0].tolist())
            return states[unknown].double().view(1, -1, 1, 1).expand(2, -1, 1, 3)

        found = memory.look_up(states, run)
        assert torch.equal(found, states.double().view(1, -1, 1, 1).expand(2, -1, 1, 3))

    memory = Memory()
    for numbers in ([3, 1], [1, 2, 3], [5], [2, 5, 4, 1]):
        look_up(memory, numbers)
    assert runs == [3, 1, 2, 5, 4]
    runs.clear()
    small = Memory(elements=3 * 6)  # room for three states
    for numbers in ([3, 1], [1], [1, 2], [1, 2]):
        look_up(small, numbers)
    assert runs == [3, 1, 1, 2, 1, 2]

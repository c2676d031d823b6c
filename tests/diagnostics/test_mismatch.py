import torch

from unmask.diagnostics.mismatch import Share, mismatch
from unmask.diagnostics.trees import ForkTrees


def test_segments_and_references_are_counted_by_hand() -> None:
    reward = torch.tensor(
        [
            [[0, 0], [0, 1], [0, 0]],  # failed; V = 0, .5, 0, then 0: ΔV = +.5, −.5, 0; advantage 0, yet values change
            [[1, 0], [1, 1], [1, 0]],  # succeeded; V = .5, 1, .5, then 1: ΔV = +.5, −.5, +.5; advantage .5
            [[1, 1], [1, 1], [1, 1]],  # succeeded; no change, advantage 0; the last state does not exist
        ],
        dtype=torch.float64,
    )
    terminal = torch.tensor([0, 1, 1], dtype=torch.float64)
    exists = torch.tensor([[True, True, True], [True, True, True], [True, True, False]])
    found = mismatch(ForkTrees(reward, terminal, exists), reward_max=1.0)
    assert found.helpful_in_failed == Share(1, 3)
    assert found.harmful_in_succeeded == Share(1, 5)
    assert found.silent == Share(1, 2) and found.silent_of_all == Share(1, 3)


def test_a_share_of_nothing_is_no_number() -> None:
    reward, terminal = torch.ones(2, 1, 4, dtype=torch.float64), torch.ones(2, dtype=torch.float64)
    found = mismatch(ForkTrees(reward, terminal, torch.ones(2, 1, dtype=torch.bool)), reward_max=1.0)
    assert found.helpful_in_failed == Share(0, 0) and found.helpful_in_failed.value is None
    assert found.silent.value == 0

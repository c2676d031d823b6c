import pytest

from unmask.errors import UnmaskError
from unmask.tasks import Gym, GymSettings

pytest.importorskip("reasoning_gym")


@pytest.mark.parametrize("dataset", ["chain_sum", "gcd", "simple_equations"])
def test_the_answer_is_right_and_no_text_is_run(dataset: str) -> None:
    task = Gym(GymSettings(dataset=dataset))
    example = task.train()[3]
    assert example == task.train()[3]
    assert task.reward(example, task.solution(example)) == 1
    assert task.reward(example, r"\boxed{__import__('os').getpid()}") == 0
    assert task.reward(example, str(example["answer"])) == 0


def test_training_and_evaluation_are_drawn_apart() -> None:
    task = Gym(GymSettings(dataset="base_conversion", train_size=300, evaluation_size=300))
    train = {example["question"] for example in task.train()}
    again = train & {example["question"] for example in task.evaluation()}
    assert len(again) < 30, "a kind this small repeats itself by chance; sets with common seeds would share nearly all"


def test_unknown_kinds_and_those_without_an_answer() -> None:
    with pytest.raises(UnmaskError, match="did you mean chain_sum"):
        Gym(GymSettings(dataset="chain_sun")).train()
    with pytest.raises(UnmaskError, match="no answer to compare with"):
        Gym(GymSettings(dataset="propositional_logic")).train()

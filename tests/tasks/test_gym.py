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


@pytest.mark.parametrize(
    ("gold", "answer", "is_right"),
    [
        ("1080", "1,080", True),
        ("1080", r"1{,}080.0", True),
        ("-5", "−5", True),
        ("Yes", r"\text{Yes}", True),
        ("[1, 2, 3]", "[1,2,3]", True),
        ("and, the, law", "and,  the, law", True),
        ("7", "3 + 4", False),  # the question of chain_sum
        (r"\frac{3}{4}", r"\frac{6}{8}", False),  # that of fraction_simplification
        ("0xa0", "0xbb", False),
        ("apple, pear", "pear, apple", False),  # that of word_sorting
        ("on", "no", False),
        ("8*(5*1 - 2)", "24", False),
        ("7", "", False),
    ],
)
def test_an_answer_is_the_same_text_or_the_same_number(gold: str, answer: str, is_right: bool) -> None:
    assert Gym().reward({"question": "", "answer": gold}, rf"\boxed{{{answer}}}") == float(is_right)


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

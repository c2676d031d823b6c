from collections.abc import Sequence

import pytest
import torch

from unmask.errors import UnmaskError
from unmask.randomness import stream
from unmask.tasks import Example
from unmask.training.order import GIVEN_UP, LOOKED_THROUGH, ExampleOrder

EXAMPLES: list[Example] = [{"tokens": tokens} for tokens in (5, 12, 7, 30, 8, 10, 11)]


class Made(Sequence[Example]):
    """As many examples as asked for, made on demand; every `step`-th has 5 tokens, the others 50."""

    def __init__(self, size: int, step: int) -> None:
        self.size, self.step = size, step

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int) -> Example:  # type: ignore[override]
        return {"index": index, "tokens": 50 if index % self.step else 5}


class Counter:
    """Tells lengths, and remembers which it was asked for."""

    def __init__(self) -> None:
        self.asked: list[Example] = []

    def __call__(self, example: Example) -> int:
        self.asked.append(example)
        return int(example["tokens"])


def epochs(count: int, seed: int = 3) -> list[Example]:
    """All examples, as the epochs visit them."""
    orders = [torch.randperm(len(EXAMPLES), generator=stream(seed, "data", epoch)).tolist() for epoch in range(count)]
    return [EXAMPLES[index] for order in orders for index in order]


def test_without_a_limit_every_epoch_visits_all_and_no_length_is_found() -> None:
    count = Counter()
    order = ExampleOrder(EXAMPLES, 3, count, None)
    assert [order[prompt] for prompt in range(21)] == epochs(3)
    assert order.passed_over(21) == 0 and order.left_out is None and count.asked == []


def test_the_order_with_a_limit_is_the_one_without_it_but_for_long_examples() -> None:
    order = ExampleOrder(EXAMPLES, 3, Counter(), 10)
    expected = [example for example in epochs(3) if example["tokens"] <= 10]
    assert [order[prompt] for prompt in range(12)] == expected
    assert order.left_out == 3
    # all 9 turns of long examples but those after the last of the 12 prompts
    behind = next(place for place, example in enumerate(reversed(epochs(3))) if example["tokens"] <= 10)
    assert order.passed_over(12) == 9 - behind


def test_a_prompt_does_not_depend_on_which_were_asked_for_before() -> None:
    straight, jumping = (ExampleOrder(EXAMPLES, 0, Counter(), 10) for _ in range(2))
    expected = [straight[prompt] for prompt in range(40)]
    assert [jumping[prompt] for prompt in range(39, -1, -1)] == expected[::-1]
    assert [jumping.passed_over(n) for n in (40, 1, 17)] == [straight.passed_over(n) for n in (40, 1, 17)]


def test_a_huge_set_is_looked_at_prompt_by_prompt() -> None:
    count = Counter()
    order = ExampleOrder(Made(1_000_000, 2), 0, count, 10)
    assert order.left_out is None
    asked = [order[prompt]["index"] for prompt in range(64)]
    assert all(index % 2 == 0 for index in asked) and len(set(asked)) == 64
    assert len(count.asked) == 64 + order.passed_over(64) < 200


def test_a_length_is_found_once() -> None:
    count = Counter()
    order = ExampleOrder(EXAMPLES, 0, count, 10)
    assert len(count.asked) == len(EXAMPLES), "a set in memory is looked through before training"
    assert order[100]["tokens"] <= 10
    assert len(count.asked) == len(EXAMPLES)


def test_a_large_list_is_not_looked_through() -> None:
    count = Counter()
    order = ExampleOrder(EXAMPLES * LOOKED_THROUGH, 0, count, 10)
    assert order.left_out is None and len(count.asked) < 50


@pytest.mark.parametrize(
    ("examples", "says"),
    [
        (EXAMPLES, "trainer.max_tokens=4: each of 7 training examples is longer; the shortest has 5 tokens"),
        (Made(100_000, 200_000), f"each of {GIVEN_UP:,} training examples is longer; the shortest has 50 tokens"),
    ],
)
def test_nothing_left_is_told_at_once(examples: Sequence[Example], says: str) -> None:
    count = Counter()
    with pytest.raises(UnmaskError) as error:
        ExampleOrder(examples, 0, count, 4)
    assert says in str(error.value) and "\n" not in str(error.value)
    assert len(count.asked) == min(len(examples), GIVEN_UP)

from itertools import combinations

import pytest

from unmask.evaluation import pass_at_k, wilson


@pytest.mark.parametrize(
    ("right", "trials", "low", "high"),
    [
        # Newcombe 1998, "Two-sided confidence intervals for the single proportion", table I, method 3
        (81, 263, 0.2553, 0.3662),
        (15, 148, 0.0624, 0.1605),
        (0, 20, 0.0000, 0.1611),
        (1, 29, 0.0061, 0.1718),
    ],
)
def test_wilsons_interval_is_newcombes(right: int, trials: int, low: float, high: float) -> None:
    assert wilson(right / trials, trials) == pytest.approx((low, high), abs=5e-5)
    assert wilson(1 - right / trials, trials) == pytest.approx((1 - high, 1 - low), abs=5e-5)


def test_an_interval_stays_in_0_to_1_and_holds_the_share() -> None:
    for trials in (1, 7, 1000):
        for right in range(trials + 1):
            low, high = wilson(right / trials, trials)
            assert 0 <= low <= right / trials <= high <= 1
    assert wilson(0.0, 0) == (0, 1)


def test_pass_at_k_is_the_share_of_all_choices_of_k_that_hold_a_right_one() -> None:
    for samples in range(1, 7):
        for right in range(samples + 1):
            for k in range(1, samples + 1):
                chosen = [*combinations([True] * right + [False] * (samples - right), k)]
                assert pass_at_k(samples, right, k) == pytest.approx(sum(map(any, chosen)) / len(chosen))

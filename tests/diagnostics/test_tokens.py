from dataclasses import astuple

import pytest
import torch

from unmask.diagnostics.tokens import LEAST_COUNT, StepBand, UnsureToken, analyse, pearson, ranks


def test_equal_values_share_their_mean_rank() -> None:
    assert ranks(torch.tensor([0.5, 0.1, 0.5, 0.9])).tolist() == [2.5, 1.0, 2.5, 4.0]


def test_correlations_are_those_computed_by_hand() -> None:
    x, y = torch.tensor([1.0, 2, 3]), torch.tensor([1.0, 4, 3])
    # deviations (−1, 0, 1) and (−5/3, 4/3, 1/3): covariance 2, squares 2 and 42/9
    assert pearson(x, y) == pytest.approx(2 / (2 * 42 / 9) ** 0.5)
    assert pearson(ranks(x), ranks(-(x**3))) == -1
    assert pearson(x, torch.ones(3)) is None


def test_tokens_are_binned_banded_and_ranked() -> None:
    probability = torch.tensor([0.05, 0.91, 1.0, 0.95] + [0.5] * LEAST_COUNT)
    step = torch.tensor([0, 0, 0, 0] + [3] * LEAST_COUNT)
    token = torch.tensor([7, 8, 8, 8] + [5] * LEAST_COUNT)
    entropy = 1 - probability
    found = analyse(token, probability, entropy, step)
    assert found.count == 4 + LEAST_COUNT and found.histogram == (1, 0, 0, 0, 0, LEAST_COUNT, 0, 0, 0, 3)
    assert found.pearson == pytest.approx(-1) and found.spearman == pytest.approx(-1)
    # sorted .05, .91, .95, 1: the quartiles lie at places .75 and 2.25
    assert astuple(found.bands[0]) == pytest.approx((0, 0.7275, 0.695, 0.9625))
    assert found.bands[1:] == (StepBand(3, 0.5, 0.5, 0.5),)
    assert found.unsure == (UnsureToken(5, 0.5, LEAST_COUNT),)  # 7 is unsurer, but was seen once

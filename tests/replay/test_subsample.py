"""Thinning keeps expectations: shown over every draw there is."""

import math
from itertools import pairwise

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from unmask.randomness import uniform
from unmask.replay import draw_states, inclusion_probabilities, one_of_each_class, systematic_sample
from unmask.replay.subsample import _class_weight


def every_sample(probability: Tensor) -> list[tuple[float, Tensor]]:
    """All systematic samples (n,) with their probabilities: between two breakpoints of the offset nothing changes."""
    breaks = sorted({0.0, 1.0, *(probability.cumsum(0) % 1).tolist()})
    return [
        (high - low, systematic_sample(probability, (low + high) / 2))
        for low, high in pairwise(breaks)
        if high - low > 1e-12
    ]


@given(st.lists(st.floats(1e-6, 1e6), min_size=2, max_size=12), st.data())
def test_probabilities_are_proportional_capped_and_sum_to_the_count(weights: list[float], data: st.DataObject) -> None:
    count = data.draw(st.integers(1, len(weights) - 1))
    weight = torch.tensor(weights, dtype=torch.float64)
    probability = inclusion_probabilities(weight, count)
    assert ((probability > 0) & (probability <= 1)).all()
    assert math.isclose(probability.sum(), count, rel_tol=1e-9)
    free = probability < 1
    if free.any():
        ratio = probability[free] / weight[free]
        torch.testing.assert_close(ratio, ratio[:1].expand_as(ratio), rtol=1e-9, atol=0)
        # whoever is capped would have had more than 1 at the others' rate
        assert (weight[~free] * ratio[0] >= 1 - 1e-9).all()


@given(st.lists(st.floats(1e-3, 1e3), min_size=2, max_size=9), st.data())
def test_a_systematic_sample_has_its_size_and_exactly_its_inclusion_probabilities(
    weights: list[float], data: st.DataObject
) -> None:
    count = data.draw(st.integers(1, len(weights) - 1))
    probability = inclusion_probabilities(torch.tensor(weights, dtype=torch.float64), count)
    samples = every_sample(probability)
    assert all(int(kept.sum()) == count for _, kept in samples)
    included = sum((chance * kept.double() for chance, kept in samples), torch.zeros_like(probability))
    torch.testing.assert_close(included, probability, rtol=0, atol=1e-9)


@pytest.mark.parametrize(
    ("share", "states", "kept"), [(0.25, 9, 3), (0.25, 8, 2), (0.1, 30, 3), (0.1, 1, 1), (0.3, 0, 0)]
)
def test_the_share_is_rounded_up_exactly(share: float, states: int, kept: int) -> None:
    order = uniform(torch.arange(states).unsqueeze(-1), torch.arange(3))
    for draw in ("uniform", "confidence"):
        probability, chosen = draw_states(draw, share, torch.rand(states).double() + 0.1, order)
        assert int(chosen.sum()) == kept == round(float(probability.sum()))


def test_a_draw_does_not_depend_on_the_order_of_states() -> None:
    order = uniform(torch.arange(40).unsqueeze(-1) // torch.tensor([8, 1, 1]), torch.arange(3))
    weight = uniform(torch.arange(40), 7)
    shuffle = uniform(torch.arange(40), 9).argsort()
    for draw in ("uniform", "confidence"):
        expected = draw_states(draw, 0.25, weight, order)
        found = draw_states(draw, 0.25, weight[shuffle], order[shuffle])
        assert torch.equal(found[1], expected[1][shuffle])
        torch.testing.assert_close(found[0], expected[0][shuffle], rtol=1e-12, atol=0)


def test_every_response_gives_nearly_its_share() -> None:
    """5 responses of 8 states each at ρ = 0.25: two of each, whatever is drawn."""
    for seed in range(20):
        key = torch.arange(40) + 1000 * seed
        order = uniform(torch.stack([key // 8, key, key], dim=-1), torch.arange(3))
        _, kept = draw_states("uniform", 0.25, torch.ones(40).double(), order)
        assert torch.bincount(key[kept] // 8 - 125 * seed, minlength=5).tolist() == [2] * 5


def test_one_response_stands_for_each_reward() -> None:
    advantage = torch.tensor([1.0, -0.5, 1.0, -0.5, -0.5, 0, 0, 2, -2]).double()
    group = torch.tensor([0, 0, 0, 0, 0, 1, 1, 2, 2])
    counts = torch.zeros(9)
    for seed in range(600):
        weight = one_of_each_class(advantage, group, torch.arange(9) + 100 * seed)
        counts += (weight > 0).float()
        assert sorted(weight[:5].tolist()) == [0, 0, 0, 2, 3]
        assert weight[5:].tolist() == [0, 0, 1, 1]
    # five standard deviations of a fair draw: 61 of 600/2, 58 of 600/3
    assert (counts[[0, 2]] - 300).abs().max() < 61 and (counts[[1, 3, 4]] - 200).abs().max() < 58


def test_of_many_rewards_a_response_is_drawn_in_proportion_to_its_advantage() -> None:
    """Two classes, above the mean and below; over all draws each response counts once."""
    advantage = torch.tensor([-0.9, 0.1, 0.3, 0.5, 0.0]).double()
    group = torch.zeros(5, dtype=torch.int64)
    expected = torch.zeros(5).double()
    breaks = [0, 1 / 9, 4 / 9, 1]
    for low, high in pairwise(breaks):
        weight = _class_weight(advantage, group, torch.full((5,), (low + high) / 2).double())
        assert int((weight > 0).sum()) == 2
        torch.testing.assert_close((weight * advantage.clamp(min=0)).sum().item(), 0.9)
        expected += (high - low) * weight
    torch.testing.assert_close(expected, torch.tensor([1.0, 1, 1, 1, 0]).double())

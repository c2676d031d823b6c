"""Thinning keeps expectations: shown over every draw there is."""

import itertools
import math
from dataclasses import replace
from itertools import pairwise

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from tests.replay.test_states import make_rollout
from unmask.credit import group_advantage
from unmask.randomness import uniform
from unmask.replay import (
    ClassDraw,
    draw_states,
    inclusion_probabilities,
    one_of_each_class,
    reveal_states,
    states_on_the_way,
    systematic_sample,
)
from unmask.replay.subsample import _draw_classes


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


def test_one_response_of_each_reward_is_drawn() -> None:
    advantage = torch.tensor([1.0, -0.5, 1.0, -0.5, -0.5, 0, 0, 2, -2]).double()
    group = torch.tensor([0, 0, 0, 0, 0, 1, 1, 2, 2])
    counts = torch.zeros(9)
    for seed in range(600):
        draw = one_of_each_class(advantage, group, torch.arange(9) + 100 * seed)
        counts += draw.is_drawn
        torch.testing.assert_close(draw.chance, torch.tensor([1 / 2, 1 / 3, 1 / 2, 1 / 3, 1 / 3, 0, 0, 1, 1]).double())
        assert draw.is_drawn[:5].sum() == 2 and draw.is_drawn[[0, 2]].sum() == 1
        assert draw.is_drawn[5:].tolist() == [False, False, True, True]
    # five standard deviations of a fair draw: 61 of 600/2, 58 of 600/3
    assert (counts[[0, 2]] - 300).abs().max() < 61 and (counts[[1, 3, 4]] - 200).abs().max() < 58


def test_of_many_rewards_a_response_is_drawn_in_proportion_to_its_advantage() -> None:
    """Two classes, above the mean and below."""
    advantage = torch.tensor([-0.9, 0.1, 0.3, 0.5, 0.0]).double()
    group = torch.zeros(5, dtype=torch.int64)
    often = torch.zeros(5).double()
    for low, high in pairwise([0, 1 / 9, 4 / 9, 1]):
        draw = _draw_classes(advantage, group, torch.full((5,), (low + high) / 2).double())
        assert int(draw.is_drawn.sum()) == 2
        often += (high - low) * draw.is_drawn
    torch.testing.assert_close(often, draw.chance)
    torch.testing.assert_close(often, torch.tensor([1, 1 / 9, 3 / 9, 5 / 9, 0]).double())


ORDERS = [[0, 1, 2], [2, 1, 0], [0, 1, 1], [1, 1, 0], [0, 0, 0]]
"""Steps that reveal three tokens, one at a time or several."""


def draw_list(data: st.DataObject, what: st.SearchStrategy, count: int) -> list:
    return data.draw(st.lists(what, min_size=count, max_size=count))


@given(st.data())
def test_a_state_is_run_as_often_as_one_of_its_responses_is_drawn(data: st.DataObject) -> None:
    """By counting all draws; groups share states, as a fork's responses and those of the prompt do."""
    rows, length = 6, 3
    tokens = torch.tensor(draw_list(data, st.integers(0, 1), rows * length)).view(rows, length)
    reward = torch.tensor(draw_list(data, st.sampled_from([0.0, 0.25, 1.0]), rows)).double()
    certain = torch.tensor(draw_list(data, st.booleans(), rows))
    group = torch.tensor([0, 0, 0, 1, 1, 1])
    advantage = group_advantage(reward, group)
    rollout = replace(
        make_rollout(draw_list(data, st.sampled_from(ORDERS), rows)),
        response_ids=tokens,
        prompt=torch.zeros(rows, dtype=torch.int64),
    )
    states = reveal_states(rollout, ((advantage != 0) | certain).unsqueeze(-1).expand(rows, length))
    if len(states) == 0:
        return
    often = torch.zeros(len(states)).double()
    classes = [(group == which) & (advantage.sign() == sign) for which in (0, 1) for sign in (1, -1)]
    choices = [members.nonzero()[:, 0].tolist() for members in classes if members.any()]
    label = group * 2 + (advantage > 0)
    chance = torch.zeros(rows).double()
    for members in choices:
        chance[members] = advantage[members].abs() / advantage[members].abs().sum()
    for drawn in itertools.product(*choices):
        is_drawn = torch.zeros(rows, dtype=torch.bool)
        is_drawn[list(drawn)] = True
        draw = ClassDraw(label, chance, is_drawn)
        probability, kept = states_on_the_way(states, draw, certain[states.row])
        often += chance[list(drawn)].prod() * kept
        # no state is kept without a reason, and none that a drawn response needs is left out
        assert set(states.state[(is_drawn | certain)[states.row]].tolist()) == set(kept.nonzero()[:, 0].tolist())
    torch.testing.assert_close(often, probability, rtol=0, atol=1e-12)

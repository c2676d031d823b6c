"""Unbiased thinning: fewer states are replayed, with the expected gradient of all of them.

What is kept counts for what is left out: its loss is divided by the probability with which it was kept. Draws belong
to the responses' own keys (see `masks`), so they do not depend on the order of rows or on who holds which prompt.

Source: METHODS "ForkGRPO-Fast", sparse branch replay and state subsampling. `confidence` is this project's, and so is
that a state which sparse replay runs counts for all responses that pass through it, not only for the drawn one.
"""

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

import torch
from torch import Tensor

from unmask.decoding.rollout import Rollout
from unmask.randomness import derive, name_seed, uniform
from unmask.replay.states import States

StateDraw = Literal["uniform", "confidence"]

LEAST_DOUBT = 0.02
"""1 − p of a token is taken to be at least this, so that no state's weight explodes when it is drawn."""

_RESPONSES = name_seed(0, "responses")
_STATES = name_seed(0, "states")


@dataclass(frozen=True)
class ClassDraw:
    """One response drawn from each reward class of each group."""

    label: Tensor
    """(B,) int64: the class each response is in; meaningless where `chance` is 0."""
    chance: Tensor
    """(B,) float64: of being drawn; those of a class sum to 1. 0 where a response is in no class."""
    is_drawn: Tensor
    """(B,) bool."""


def one_of_each_class(advantage: Tensor, group: Tensor, key: Tensor) -> ClassDraw:
    """Sparse branch replay: one response of each reward class of a group.

    The classes are A > 0 and A < 0, which are the two rewards where there are only two ("1+1"). One response of a
    class is drawn with probability |A| / Σ|A|: uniformly where the class has one reward. Responses at the mean have
    no gradient and are in no class.

    Args:
        advantage: (B,) of each response.
        group: (B,) group indices.
        key: (B,) the responses' randomness keys; the first of a class draws for it.
    """
    return _draw_classes(advantage, group, uniform(key.to(advantage.device), _RESPONSES))


def _draw_classes(advantage: Tensor, group: Tensor, draw: Tensor) -> ClassDraw:
    """As `one_of_each_class`, by uniform numbers (B,)."""
    (row,) = advantage.nonzero(as_tuple=True)  # (n,)
    label = group * 2 + (advantage > 0)
    row = row[label[row].argsort(stable=True)]
    _, which, counts = label[row].unique_consecutive(return_inverse=True, return_counts=True)  # c classes
    first = counts.cumsum(0) - counts  # (c,) the place of each class's first response
    share = advantage[row].abs().double()
    total = share.new_zeros(len(counts)).index_add(0, which, share)
    below = share.cumsum(0) - share
    below = below - below[first][which]  # exactly 0 for the first of a class, so that each class draws one
    reached = below < draw[row[first]][which] * total[which]
    drawn = first + torch.zeros_like(first).index_add(0, which, reached.long()) - 1
    chance, is_drawn = torch.zeros_like(advantage, dtype=torch.float64), torch.zeros_like(advantage, dtype=torch.bool)
    chance[row], is_drawn[row[drawn]] = share / total[which], True
    return ClassDraw(label, chance, is_drawn)


def states_on_the_way(states: States, draw: ClassDraw, is_certain: Tensor) -> tuple[Tensor, Tensor]:
    """The states that drawn responses pass through, and how likely it was that one of them would.

    Once a state is run the tokens of all responses that pass through it can be scored, so their losses are divided by
    this probability. In a state of one response alone it is the response's own chance, the inverse of its class's size
    where that has one reward, as in the paper.

    Args:
        states: of all responses that have credit.
        is_certain: (N,) bool: tokens whose states are run whatever is drawn.

    Returns:
        probability (S,) float64, and kept (S,) bool.
    """
    certain = torch.zeros(len(states), dtype=torch.bool, device=states.state.device)
    certain[states.state[is_certain]] = True
    kept = certain.clone()
    kept[states.state[draw.is_drawn[states.row]]] = True
    rows, labels = len(draw.label), int(draw.label.max()) + 1
    passing = torch.unique(states.state * rows + states.row)  # a response once, also with several tokens in a state
    label = draw.label[passing % rows]
    # a class draws one response, so that their chances add up; classes draw independently of each other
    of_class, which = torch.unique(passing // rows * labels + label, return_inverse=True)
    reached = draw.chance.new_zeros(len(of_class)).index_add(0, which, draw.chance[passing % rows])
    missed = reached.new_ones(len(states)).scatter_reduce(0, of_class // labels, 1 - reached.clamp(max=1), "prod")
    return torch.where(certain, 1, 1 - missed), kept


def draw_states(draw: StateDraw, share: float, weight: Tensor, order: Tensor) -> tuple[Tensor, Tensor]:
    """State subsampling: ⌈share · n⌉ of n states, with known inclusion probabilities.

    `uniform` gives each state the same; `confidence` makes it proportional to `weight` and at most 1.

    Args:
        share: ρ, in (0, 1].
        weight: (n,) float64, from `state_weight`; of all states of the update, on all workers.
        order: (n, 3) from `state_order`, of the same states in any order.

    Returns:
        probability (n,) float64, and kept (n,) bool.
    """
    if len(weight) == 0:
        return weight, torch.zeros_like(weight, dtype=torch.bool)
    # by response, then at random: a systematic draw takes nearly the same share of every response's states
    place = order[:, 1].argsort(stable=True)
    place = place[order[place, 0].argsort(stable=True)]
    count = kept_count(share, len(weight))
    chance = inclusion_probabilities(torch.ones_like(weight) if draw == "uniform" else weight[place], count)
    probability, kept = torch.empty_like(weight), torch.zeros_like(weight, dtype=torch.bool)
    probability[place] = chance
    kept[place] = systematic_sample(chance, float(order[place[0], 2]))
    return probability, kept


def kept_count(share: float, states: float) -> int:
    """⌈share · states⌉, how many of them are kept."""
    # as a decimal: 0.1 of 30 states are 3, and not the 4 that rounding up the float product gives
    return math.ceil(Fraction(repr(share)) * Fraction(states))


def inclusion_probabilities(weight: Tensor, count: int) -> Tensor:
    """Probabilities (n,) proportional to positive weights (n,), at most 1, whose sum is `count`, 1..n."""
    if count == len(weight):
        return torch.ones_like(weight)
    is_certain = torch.zeros_like(weight, dtype=torch.bool)
    while True:
        rest = torch.where(is_certain, 0, weight)
        probability = (count - is_certain.sum()) * rest / rest.sum()
        # what is capped leaves more for the others, which may then exceed 1 in turn
        if not (probability > 1).any():
            return torch.where(is_certain, 1, probability)
        is_certain |= probability > 1


def systematic_sample(probability: Tensor, offset: float) -> Tensor:
    """As many as the probabilities (n,) sum up to, a whole number; each kept with exactly its own.

    The probabilities are laid end to end on a line, and `offset`, uniform in (0, 1), plus 0, 1, 2, … falls on those
    that are kept. Returns (n,) bool.
    """
    is_certain = probability == 1
    chance = torch.where(is_certain, 0, probability)
    end = chance.cumsum(0)
    # the sum is whole; rounded off, the last could be missed
    end = torch.where(end >= end[-1], end[-1].round(), end)
    marks = (end - offset).ceil()  # marks at or before each end
    return is_certain | (marks > torch.cat([torch.zeros_like(marks[:1]), marks[:-1]]))


def state_weight(states: States, rollout: Rollout, credit: Tensor) -> Tensor:
    """How large a state's gradient is expected to be: Σ |A| · max(1 − p, 0.02) over its tokens.

    A token's score ∂ log p / ∂ logits has the size of 1 − p, p its probability, and most tokens of a trained denoiser
    are nearly certain.

    Args:
        credit: (N, C) of the scored tokens; terms of either sign must not cancel, as clipping may stop one of them.

    Returns:
        (S,) float64, positive.
    """
    probability = rollout.logprob[states.row, states.position].double().exp()
    weight = credit.double().abs().sum(-1) * (1 - probability).clamp(min=LEAST_DOUBT)
    return weight.new_zeros(len(states)).index_add(0, states.state, weight)


def state_order(states: States, key: Tensor) -> Tensor:
    """(S, 3) float64 uniform numbers that belong to each state: its response's, its own, and one to draw with.

    Args:
        key: (B,) the responses' randomness keys.
    """
    response = derive(key.to(states.response.device)[states.response], _STATES)
    own = derive(response, states.visible.sum(-1))  # states of one response differ in how much they show
    return torch.stack([uniform(response, 0), uniform(own, 0), uniform(own, 1)], dim=-1)

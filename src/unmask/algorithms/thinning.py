"""What ForkGRPO-Fast adds to a plain replay of reveal states: fewer states, the same expectation.

METHODS "ForkGRPO-Fast". The draws themselves are in `replay/subsample.py`.
"""

import torch
from torch import Tensor

from unmask.algorithms.algorithm import Actor, Experience, Plan
from unmask.credit import group_advantage
from unmask.objectives import ClippedObjective, ObjectiveSettings
from unmask.replay import (
    StateDraw,
    States,
    draw_states,
    one_of_each_class,
    reveal_states,
    state_order,
    state_weight,
    states_on_the_way,
)


def check_pilot(pilot: int | None, group_size: int) -> None:
    """Raises:
    ValueError: the pilot is larger than the group.
    """
    if pilot is not None and pilot > group_size:
        raise ValueError(f"pilot={pilot} is more than group_size={group_size}, to which groups grow; set it to less")


def thinned_count(count: Tensor) -> Tensor:
    """(...) how many responses are replayed of each mixed group of `count` (...): one of each of two classes."""
    return count.clamp(max=2)


def reveal_plan(
    experience: Experience,
    objective: ObjectiveSettings,
    actor: Actor,
    *,
    sparse_replay: bool,
    state_share: float,
    state_draw: StateDraw,
) -> Plan:
    """Tokens with credit in their reveal states under the clipped objective: in all states, or in drawn ones.

    Args:
        sparse_replay: only states of one response of each reward class of a group, as far as the first term goes,
            the credit within the groups. Credit in other terms is the response's own, and its states stay.
        state_share: ρ, of these states; 1 = all.
    """
    rollout = experience.rollout
    states = reveal_states(rollout, (experience.credit != 0).any(-1))
    credit = experience.credit[states.row, states.position]  # (N, C)

    if sparse_replay:
        advantage = group_advantage(experience.reward, rollout.group)
        drawn = one_of_each_class(advantage, rollout.group, experience.key)
        is_own = (credit[:, 1:] != 0).any(-1)
        states, credit = _thinned(states, credit, *states_on_the_way(states, drawn, is_own))
    if state_share < 1:
        order = state_order(states, experience.key)
        weight = state_weight(states, rollout, credit).unsqueeze(-1)
        # on the host, where sums come out the same for all workers, who have to agree on the draw
        everyone, first = actor.gather(torch.cat([order, weight], dim=-1).cpu())
        own = slice(first, first + len(states))
        probability, kept = draw_states(state_draw, state_share, weight=everyone[:, -1], order=everyone[:, :-1])
        states, credit = _thinned(states, credit, probability[own].to(credit.device), kept[own].to(credit.device))
    return Plan(states, ClippedObjective(states, objective, credit))


def _thinned(states: States, credit: Tensor, probability: Tensor, kept: Tensor) -> tuple[States, Tensor]:
    """The states kept (S,) bool, and the credit (N', C) of their tokens, over the probability (S,) of being kept."""
    token = kept[states.state]
    return states.select(kept), (credit / probability[states.state].unsqueeze(-1).to(credit))[token]

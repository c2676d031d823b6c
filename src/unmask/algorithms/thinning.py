"""What ForkGRPO-Fast adds to a plain replay of reveal states: fewer responses, fewer states, the same expectation.

METHODS "ForkGRPO-Fast". The draws themselves are in `replay/subsample.py`.
"""

import torch
from torch import Tensor

from unmask.algorithms.algorithm import Actor, Experience, Plan
from unmask.objectives import ClippedObjective, ObjectiveSettings
from unmask.replay import StateDraw, draw_states, one_of_each_class, reveal_states, state_order, state_weight


def check_pilot(pilot: int | None, group_size: int) -> None:
    """Raises:
    ValueError: the pilot is larger than the group.
    """
    if pilot is not None and pilot > group_size:
        raise ValueError(f"pilot={pilot} is more than group_size={group_size}, to which groups grow; set it to less")


def thinned_responses(credit: Tensor, advantage: Tensor, experience: Experience) -> Tensor:
    """Credit (B, L) of one drawn response of each reward class, times what it stands for, and 0 for the others.

    Args:
        advantage: (B,) within the groups.
    """
    weight = one_of_each_class(advantage, experience.rollout.group, experience.key)
    return credit * weight.unsqueeze(-1)


def thinned_count(count: Tensor) -> Tensor:
    """(...) how many responses are replayed of each mixed group of `count` (...): one of each of two classes."""
    return count.clamp(max=2)


def reveal_plan(
    experience: Experience,
    credit: Tensor,
    objective: ObjectiveSettings,
    actor: Actor,
    *,
    state_share: float,
    state_draw: StateDraw,
) -> Plan:
    """Tokens with credit in their reveal states under the clipped objective, in all states or in a drawn share of them.

    Args:
        credit: (B, L, C) advantage times normaliser of each of C terms.
        state_share: ρ; 1 = all states.
    """
    rollout = experience.rollout
    states = reveal_states(rollout, (credit != 0).any(-1))
    credit = credit[states.row, states.position]  # (N, C)
    if state_share < 1:
        order = state_order(states, experience.key)
        weight = state_weight(states, rollout, credit).unsqueeze(-1)
        # on the host, where sums come out the same for all workers, who have to agree on the draw
        everyone, first = actor.gather(torch.cat([order, weight], dim=-1).cpu())
        own = slice(first, first + len(states))
        probability, kept = (
            x[own].to(credit.device)
            for x in draw_states(state_draw, state_share, weight=everyone[:, -1], order=everyone[:, :-1])
        )
        token = kept[states.state]
        credit = (credit / probability[states.state].unsqueeze(-1).to(credit))[token]
        states = states.select(kept)
    return Plan(states, ClippedObjective(states, objective, credit))

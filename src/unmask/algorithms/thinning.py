"""Replay of reveal states, all of them or, with what ForkGRPO-Fast adds, fewer with the same expectation.

METHODS "ForkGRPO-Fast". The draws themselves are in `replay/subsample.py`.
"""

import torch
from pydantic import BaseModel, ConfigDict, Field
from torch import Tensor

from unmask.algorithms.algorithm import Actor, Experience, Plan, check_no_kl
from unmask.algorithms.work import Outcome
from unmask.credit import group_advantage
from unmask.decoding import Decoding
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


class RevealSettings(BaseModel):
    """Settings of algorithms that replay reveal states with credit from groups. ForkGRPO-Fast's savings start off."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    name: str  # these two are each algorithm's own; here they come first, in recipes and in their description
    group_size: int
    advantage_eps: float = Field(1e-4, ge=0)
    """ε_A: added to a group's standard deviation, in units of reward."""
    pilot: int | None = Field(None, ge=2)
    """M_pilot: each group starts with so many responses, and grows to `group_size` only if their rewards differ
    (adaptive rollout, an approximation); none samples whole groups. The paper's fast version: 4."""
    sparse_replay: bool = False
    """Replay only the states of one drawn response of each reward class of a mixed group, weighted so that the expected
    gradient stays (sparse branch replay). Classes are the rewards above the group's mean, and those below. Other
    responses that pass through these states are scored there as well."""
    state_share: float = Field(1.0, gt=0, le=1)
    """ρ: replay only this share of the states, drawn and weighted so that the expected gradient stays (state
    subsampling); 1 replays all. The paper's fast version: 0.25."""
    state_draw: StateDraw = "uniform"
    """How states are drawn: all alike, or `confidence`, in proportion to |A| · max(1 − p, 0.02), p the token's
    probability at rollout: the same expectation with less variance."""

    def check(self, decoding: Decoding, objective: ObjectiveSettings) -> None:
        """Raises:
        ValueError: the pilot is larger than the group, or a divergence is asked for.
        """
        if self.pilot is not None and self.pilot > self.group_size:
            raise ValueError(
                f"algorithm.pilot={self.pilot} is more than group_size={self.group_size}, to which groups grow; "
                "set it to less"
            )
        check_no_kl(self.name, objective)

    def replayed_count(self, outcome: Outcome) -> Tensor:
        """(n, K+1) responses that are replayed of each group if its rewards vary: with sparse replay one of each of
        two classes, else all that have credit."""
        return outcome.credited_count.clamp(max=2) if self.sparse_replay else outcome.credited_count


def reveal_plan(
    experience: Experience,
    objective: ObjectiveSettings,
    actor: Actor,
    settings: RevealSettings,
) -> Plan:
    """Tokens with credit in their reveal states under the clipped objective: in all states, or in drawn ones.

    Sparse replay thins the first term of the credit, that within the groups. Credit in other terms is the response's
    own, and its states stay; a share of the states is one of all that are left.
    """
    rollout = experience.rollout
    states = reveal_states(rollout, (experience.credit != 0).any(-1))
    credit = experience.credit[states.row, states.position]  # (N, C)

    if settings.sparse_replay:
        advantage = group_advantage(experience.reward, rollout.group)
        drawn = one_of_each_class(advantage, rollout.group, experience.key)
        is_own = (credit[:, 1:] != 0).any(-1)
        states, credit = _thinned(states, credit, *states_on_the_way(states, drawn, is_own))
    if settings.state_share < 1:
        order = state_order(states, experience.key)
        weight = state_weight(states, rollout, credit).unsqueeze(-1)
        # on the host, where sums come out the same for all workers, who have to agree on the draw
        everyone, first = actor.gather(torch.cat([order, weight], dim=-1).cpu())
        own = slice(first, first + len(states))
        probability, kept = draw_states(
            settings.state_draw, settings.state_share, weight=everyone[:, -1], order=everyone[:, :-1]
        )
        states, credit = _thinned(states, credit, probability[own].to(credit.device), kept[own].to(credit.device))
    return Plan(states, ClippedObjective(states, objective, credit))


def _thinned(states: States, credit: Tensor, probability: Tensor, kept: Tensor) -> tuple[States, Tensor]:
    """The states kept (S,) bool, and the credit (N', C) of their tokens, over the probability (S,) of being kept."""
    token = kept[states.state]
    return states.select(kept), (credit / probability[states.state].unsqueeze(-1).to(credit))[token]

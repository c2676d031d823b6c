"""JustGRPO: plain GRPO on left-to-right rollouts, whose likelihood is exact.

    explore    M independent sequential responses to each prompt, one group
    credit     A = (R − mean) / (std + ε_A), the same for every token of a response
    replay     every reveal state of responses with A ≠ 0, its one token scored
    objective  −Σ_b Σ_i ℓ(ρ_i, A_b) / (L · n_valid), n_valid responses with A ≠ 0 over all prompts and workers

METHODS "JustGRPO". The authors divide by n_valid + 1e-5 so as not to divide by zero; with no valid response there
is nothing to replay here.
"""

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from unmask.algorithms.algorithm import (
    Actor,
    Experience,
    Plan,
    Prompts,
    check_left_to_right,
    check_no_kl,
    sample_group,
    spread,
)
from unmask.algorithms.work import Outcome, Replayed, Window
from unmask.credit import group_advantage
from unmask.decoding import Decoding
from unmask.objectives import ClippedObjective, ObjectiveSettings
from unmask.replay import reveal_states


class JustGRPOSettings(BaseModel):
    """Defaults are the authors'."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    name: Literal["justgrpo"] = "justgrpo"
    """GRPO on exact left-to-right likelihood."""
    group_size: int = Field(16, ge=2)
    """M: responses to each prompt."""
    advantage_eps: float = Field(1e-4, ge=0)
    """ε_A: added to the standard deviation, in units of reward."""

    def check(self, decoding: Decoding, objective: ObjectiveSettings) -> None:
        check_left_to_right("justgrpo", decoding)
        check_no_kl("justgrpo", objective)


class JustGRPO:
    windows: tuple[Window, ...] = ()

    def __init__(self, settings: JustGRPOSettings, objective: ObjectiveSettings) -> None:
        self.settings, self.objective = settings, objective

    def collect(self, prompts: Prompts, actor: Actor) -> Experience:
        rollout, key = sample_group(prompts, actor, self.settings.group_size)
        reward = actor.reward(prompts, rollout)
        advantage = group_advantage(reward, rollout.group, self.settings.advantage_eps)
        token_advantage = spread(advantage, rollout)
        valid = actor.total(int((advantage != 0).sum()))
        length = rollout.response_ids.shape[1]
        credit = token_advantage.unsqueeze(-1) / (length * max(valid, 1))
        return Experience(rollout, reward, token_advantage, credit, key)

    def replay(self, experience: Experience, actor: Actor, updates: int) -> list[Plan]:
        credit = experience.credit
        states = reveal_states(experience.rollout, (credit != 0).any(-1))
        objective = ClippedObjective(states, self.objective, credit[states.row, states.position])
        return [Plan(states, objective)] * updates

    def replayed(self, decoding: Decoding, outcome: Outcome) -> Replayed:
        return Replayed.of(outcome.responses(), decoding.length, decoding.length)

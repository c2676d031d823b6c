"""JustGRPO: plain GRPO on left-to-right rollouts, whose likelihood is exact.

    explore    M independent sequential responses to each prompt, one group
    credit     A = (R − mean) / (std + ε_A), the same for every token of a response
    replay     every reveal state of responses with A ≠ 0, its one token scored
    objective  −Σ_b Σ_i ℓ(ρ_i, A_b) / (L · n_valid), n_valid responses with A ≠ 0 over all prompts and workers

METHODS "JustGRPO". The authors divide by n_valid + 1e-5 so as not to divide by zero; with no valid response there
is nothing to replay here. The savings of ForkGRPO-Fast work here as well; they are off unless a recipe sets them.
"""

from typing import Literal

from pydantic import Field

from unmask.algorithms.algorithm import (
    Actor,
    Experience,
    Plan,
    Prompts,
    check_left_to_right,
    spread,
)
from unmask.algorithms.explore import sample_groups
from unmask.algorithms.thinning import RevealSettings, reveal_plan
from unmask.algorithms.work import Outcome, Replayed, Window
from unmask.credit import group_advantage
from unmask.decoding import Decoding
from unmask.objectives import ObjectiveSettings
from unmask.replay import kept_count


class JustGRPOSettings(RevealSettings):
    """Defaults are the authors'."""

    name: Literal["justgrpo"] = "justgrpo"
    """GRPO on exact left-to-right likelihood."""
    group_size: int = Field(16, ge=2)
    """M: responses to each prompt."""

    def check(self, decoding: Decoding, objective: ObjectiveSettings) -> None:
        super().check(decoding, objective)
        check_left_to_right("justgrpo", decoding)


class JustGRPO:
    windows: tuple[Window, ...] = ()

    def __init__(self, settings: JustGRPOSettings, objective: ObjectiveSettings) -> None:
        self.settings, self.objective = settings, objective

    def collect(self, prompts: Prompts, actor: Actor) -> Experience:
        groups = sample_groups(prompts, actor, self.settings.group_size, pilot=self.settings.pilot)
        rollout, reward = groups.rollout, groups.reward
        advantage = group_advantage(reward, rollout.group, self.settings.advantage_eps)
        token_advantage = spread(advantage, rollout)
        valid = actor.total(int((advantage != 0).sum()))
        length = rollout.response_ids.shape[1]
        credit = token_advantage.unsqueeze(-1) / (length * max(valid, 1))
        return Experience(rollout, reward, token_advantage, credit, groups.key)

    def replay(self, experience: Experience, actor: Actor, updates: int) -> list[Plan]:
        return [reveal_plan(experience, self.objective, actor, self.settings)] * updates

    def replayed(self, decoding: Decoding, outcome: Outcome) -> Replayed:
        responses = (self.settings.replayed_count(outcome) * outcome.mixed).sum().item()
        kept = kept_count(self.settings.state_share, responses * decoding.length)
        return Replayed(kept, kept)  # every token has a state of its own

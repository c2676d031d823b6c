"""wd1: a weighted log-likelihood without likelihood ratios; good responses are pulled up, bad ones pushed down.

    explore    M independent responses to each prompt, one group; the authors reveal the most confident tokens of blocks
    credit     A = R − mean; weights w⁺ = softmax(A) and w⁻ = softmax(−A) over all responses of all prompts and workers
    replay     as in Diffu-GRPO: the response fully masked, each prompt token masked with probability p, drawn anew for
               every update
    objective  Σ_b (−w⁺_b + λ w⁻_b) s_b, s the summed log-probability of the tokens up to the first end token

METHODS "Baselines", wd1. With λ = 1 equal rewards cancel exactly; λ = 0 leaves the authors' variant with the positive
term only, which pulls up every response. The authors normalise within each worker's micro-batch; here the softmax runs
over the whole update, so that the result does not depend on how it is divided.
"""

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field
from torch import Tensor

from unmask.algorithms.algorithm import (
    Actor,
    Experience,
    Plan,
    Prompts,
    check_no_clip,
    check_no_kl,
    check_no_mismatch,
    check_varied,
    sample_group,
    until_end,
)
from unmask.algorithms.diffu_grpo import draw_visible_prompts, fully_masked_states
from unmask.algorithms.work import Outcome, Replayed, Window
from unmask.credit import centered_advantage
from unmask.decoding import Decoding
from unmask.objectives import ObjectiveSettings, ReinforceObjective


class WD1Settings(BaseModel):
    """Defaults are the authors'."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    name: Literal["wd1"] = "wd1"
    """Weighted log-likelihood without ratios."""
    group_size: int = Field(6, ge=2)
    """M: responses to each prompt."""
    prompt_mask_probability: float = Field(0.15, ge=0, le=1)
    """p: chance that a prompt token is masked in a replayed state."""
    negative_weight: float = Field(1.0, ge=0)
    """λ: weight of the term that pushes bad responses down; 0 = only the positive term."""

    def check(self, decoding: Decoding, objective: ObjectiveSettings) -> None:
        check_varied("wd1", decoding.temperature)
        check_no_kl("wd1", objective)
        check_no_clip("wd1", objective)
        check_no_mismatch("wd1", objective)


class WD1:
    windows: tuple[Window, ...] = ()

    def __init__(self, settings: WD1Settings, objective: ObjectiveSettings) -> None:
        self.settings, self.objective = settings, objective

    def collect(self, prompts: Prompts, actor: Actor) -> Experience:
        rollout, key = sample_group(prompts, actor, self.settings.group_size)
        reward = actor.reward(prompts, rollout)
        advantage = centered_advantage(reward, rollout.group)
        token_advantage = advantage.unsqueeze(-1) * until_end(rollout, actor.end_token_id)
        return Experience(rollout, reward, token_advantage, self.credit(advantage, actor), key)

    def credit(self, advantage: Tensor, actor: Actor) -> Tensor:
        """(B,) w⁺ − λ w⁻ of advantages (B,); exactly zero where all advantages of the update are and λ = 1."""
        up, down = advantage.double().exp(), (-advantage.double()).exp()
        weight = up / actor.total(float(up.sum())) - self.settings.negative_weight * (
            down / actor.total(float(down.sum()))
        )
        return weight.to(advantage.dtype)

    def replay(self, experience: Experience, actor: Actor, updates: int) -> list[Plan]:
        scored = until_end(experience.rollout, actor.end_token_id)
        visible = draw_visible_prompts(experience, self.settings.prompt_mask_probability, updates)
        return [self.plan(experience, scored, prompt_visible) for prompt_visible in visible]

    def replayed(self, decoding: Decoding, outcome: Outcome) -> Replayed:
        # the softmax over all responses leaves credit also where a group's rewards are equal
        return Replayed.of(outcome.responses(only_mixed=False), 1, decoding.length)

    def plan(self, experience: Experience, scored: Tensor, prompt_visible: Tensor) -> Plan:
        """One update, in given states.

        Args:
            scored: (B, L) bool, the tokens up to the first end token.
            prompt_visible: (B, P) bool, the prompt tokens shown.
        """
        credit = experience.credit
        scored = scored & (credit != 0).unsqueeze(-1)
        states = fully_masked_states(experience.rollout, scored, prompt_visible)
        return Plan(states, ReinforceObjective(credit[states.row]))

"""Diffu-GRPO (d1): GRPO on the probability of every token given the prompt alone, from one pass over one state.

    explore    M independent responses to each prompt, one group; the authors reveal the most confident tokens of blocks
    credit     A = R − mean, not divided by the standard deviation, for the tokens up to the first end token
    replay     one state a response and update: the response fully masked, and each prompt token masked with probability
               p, drawn anew for every update
    objective  Σ_b Σ_i [ℓ(ρ_bi, A_b) + β KL_bi] / N, N the scored tokens of all prompts and workers

METHODS "Baselines", Diffu-GRPO. All masked tokens are treated as independent: a mean-field approximation. The authors
give log-probabilities at temperature 1 whatever the rollout's temperature; here they are those of sampling.
"""

from typing import Literal

import torch
from pydantic import BaseModel, ConfigDict, Field
from torch import Tensor

from unmask.algorithms.algorithm import (
    Actor,
    Experience,
    Plan,
    Prompts,
    check_no_mismatch,
    check_varied,
    sample_group,
    until_end,
)
from unmask.algorithms.work import Outcome, Replayed, Window
from unmask.credit import centered_advantage
from unmask.decoding import Decoding, Rollout
from unmask.objectives import ClippedObjective, ObjectiveSettings
from unmask.replay import States, bernoulli_mask, masked_states, masking_keys


class DiffuGRPOSettings(BaseModel):
    """Defaults are the authors'."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    name: Literal["diffu_grpo"] = "diffu_grpo"
    """GRPO on one-pass token probabilities with randomly masked prompts (d1)."""
    group_size: int = Field(6, ge=2)
    """M: responses to each prompt."""
    prompt_mask_probability: float = Field(0.15, ge=0, le=1)
    """p: chance that a prompt token is masked in a replayed state."""

    def check(self, decoding: Decoding, objective: ObjectiveSettings) -> None:
        check_varied("diffu_grpo", decoding.temperature)
        check_no_mismatch("diffu_grpo", objective)


class DiffuGRPO:
    windows: tuple[Window, ...] = ()

    def __init__(self, settings: DiffuGRPOSettings, objective: ObjectiveSettings) -> None:
        self.settings, self.objective = settings, objective

    def collect(self, prompts: Prompts, actor: Actor) -> Experience:
        rollout, key = sample_group(prompts, actor, self.settings.group_size)
        reward = actor.reward(prompts, rollout)
        scored = until_end(rollout, actor.end_token_id)
        advantage = centered_advantage(reward, rollout.group).unsqueeze(-1) * scored
        tokens = actor.total(int(scored.sum()))
        return Experience(rollout, reward, advantage, advantage.unsqueeze(-1) / tokens, key)

    def replay(self, experience: Experience, actor: Actor, updates: int) -> list[Plan]:
        scored = until_end(experience.rollout, actor.end_token_id)
        tokens = actor.total(int(scored.sum()))
        visible = draw_visible_prompts(experience, self.settings.prompt_mask_probability, updates)
        return [self.plan(experience, scored, tokens, prompt_visible) for prompt_visible in visible]

    def replayed(self, decoding: Decoding, outcome: Outcome) -> Replayed:
        return Replayed.of(outcome.responses(only_mixed=not self.objective.kl_weight), 1, decoding.length)

    def plan(self, experience: Experience, scored: Tensor, tokens: float, prompt_visible: Tensor) -> Plan:
        """One update, in given states.

        Args:
            scored: (B, L) bool, the tokens up to the first end token.
            tokens: how many those are over all workers.
            prompt_visible: (B, P) bool, the prompt tokens shown.
        """
        credit = experience.credit
        if not self.objective.kl_weight:  # then a response without credit changes nothing
            scored = scored & (credit != 0).any(-1)
        states = fully_masked_states(experience.rollout, scored, prompt_visible)
        credit = credit[states.row, states.position]
        kl_weight = torch.full_like(credit[:, 0], 1 / tokens)
        return Plan(states, ClippedObjective(states, self.objective, credit, kl_weight))


def draw_visible_prompts(experience: Experience, probability: float, updates: int) -> list[Tensor]:
    """For each update, (B, P) bool: which prompt tokens are shown; each real one is hidden with `probability`.

    Positions are counted from the prompt's end, so that the draws do not depend on how far a batch is padded.
    """
    prompt_mask = experience.rollout.prompt_mask
    keys = masking_keys(experience.key.to(prompt_mask.device), updates)  # (B, updates)
    hidden = bernoulli_mask(keys, prompt_mask.shape[1], probability).flip(-1)  # (B, updates, P)
    return list((~(hidden & prompt_mask.unsqueeze(1))).unbind(1))


def fully_masked_states(rollout: Rollout, scored: Tensor, prompt_visible: Tensor) -> States:
    """One state a response: none of its tokens shown, and of its prompt what `prompt_visible` (B, P) says."""
    response = torch.arange(len(scored), device=scored.device)
    return masked_states(rollout, response, torch.zeros_like(scored), scored, prompt_visible)

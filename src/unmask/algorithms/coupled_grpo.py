"""Coupled-GRPO: GRPO on token log-probabilities averaged over a full mask and one of two complementary masks.

    explore    M independent responses to each prompt, one group
    credit     A = R − mean of the group's other rewards, optionally over (std + ε_A)
    replay     three states of each response, drawn anew for each update: fully masked, a random subset masked (each
               token on its own, with a ratio r between 0.2 and 0.8), and the rest masked. A token is scored twice; its
               value is v = ½ (log p under the full mask + w · log p under the other), w = 1/r or 1/(1 − r)
    objective  (1/N) Σ_i [−ℓ(ρ_i, A) + β KL_i] over the N tokens of all prompts up to each response's first end token,
               which is included; ρ and KL are taken on v

METHODS "Baselines". The authors draw one ratio for a whole batch and may give several micro-batches the same mask; here
every response and update has a draw of its own.
"""

from typing import Annotated, Literal, Self

import torch
from pydantic import BaseModel, ConfigDict, Field, model_validator
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
from unmask.credit import leave_one_out_advantage
from unmask.decoding import Decoding
from unmask.objectives import ClippedObjective, ObjectiveSettings
from unmask.randomness import uniform
from unmask.replay import bernoulli_mask, masked_states, masking_keys

Ratio = Annotated[float, Field(gt=0, lt=1)]


class CoupledGRPOSettings(BaseModel):
    """Defaults are the authors'."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    name: Literal["coupled_grpo"] = "coupled_grpo"
    """GRPO on complementary masks."""
    group_size: int = Field(10, ge=2)
    """M: responses to each prompt."""
    advantage_eps: float | None = Field(None, ge=0)
    """ε_A: added to the standard deviation that advantages are divided by, in units of reward; none = no division."""
    masking_ratios: tuple[Ratio, Ratio] = (0.2, 0.8)
    """Smallest and largest share of tokens that the random subset masks on average."""

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        if self.masking_ratios[0] > self.masking_ratios[1]:
            raise ValueError(f"masking_ratios={list(self.masking_ratios)}: must be [smallest, largest]")
        return self

    def check(self, decoding: Decoding, objective: ObjectiveSettings) -> None:
        check_varied("coupled_grpo", decoding.temperature)
        check_no_mismatch("coupled_grpo", objective)


class CoupledGRPO:
    windows: tuple[Window, ...] = ()

    def __init__(self, settings: CoupledGRPOSettings, objective: ObjectiveSettings) -> None:
        self.settings, self.objective = settings, objective

    def collect(self, prompts: Prompts, actor: Actor) -> Experience:
        rollout, key = sample_group(prompts, actor, self.settings.group_size)
        reward = actor.reward(prompts, rollout)
        advantage = leave_one_out_advantage(reward, rollout.group, self.settings.advantage_eps)
        trained = until_end(rollout, actor.end_token_id)
        return Experience(rollout, reward, torch.where(trained, advantage.unsqueeze(-1), 0), advantage, key)

    def replay(self, experience: Experience, actor: Actor, updates: int) -> list[Plan]:
        keys = masking_keys(experience.key.to(experience.credit.device), updates)  # (B, updates)
        return [self.plan(experience, actor, *self.draw(key, experience.advantage.shape[1])) for key in keys.unbind(-1)]

    def replayed(self, decoding: Decoding, outcome: Outcome) -> Replayed:
        return Replayed.of(outcome.responses(only_mixed=not self.objective.kl_weight), 3, 2 * decoding.length)

    def draw(self, key: Tensor, length: int) -> tuple[Tensor, Tensor]:
        """Random subsets (B, L) bool and the ratios (B,) they were drawn with, by mask keys (B,)."""
        low, high = self.settings.masking_ratios
        ratio = low + (high - low) * uniform(key, 1)
        return bernoulli_mask(key, length, ratio.unsqueeze(-1)), ratio

    def plan(self, experience: Experience, actor: Actor, subset: Tensor, ratio: Tensor) -> Plan:
        """One update, with given subsets (B, L) bool and their ratios (B,)."""
        rollout, advantage = experience.rollout, experience.credit
        trained = until_end(rollout, actor.end_token_id)
        share = 1 / max(actor.total(int(trained.sum())), 1)  # of a token in the mean over all workers' tokens
        if not self.objective.kl_weight:
            trained = trained & (advantage != 0).unsqueeze(-1)
        masked = torch.cat([torch.ones_like(subset), subset, ~subset])  # (3B, L)
        factor = torch.cat([torch.ones_like(ratio), 1 / ratio, 1 / (1 - ratio)]).to(advantage.dtype)  # (3B,)
        response = torch.arange(len(advantage), device=advantage.device).repeat(3)
        states = masked_states(rollout, response, ~masked, masked & trained[response])
        row, _ = trained.nonzero(as_tuple=True)  # (U,) the response of each token
        number = trained.flatten().cumsum(0).view_as(trained) - 1  # (B, L)
        objective = ClippedObjective(
            states,
            self.objective,
            share * advantage[row].unsqueeze(-1),
            kl_weight=torch.full_like(advantage[row], share),
            unit=number[states.row, states.position],
            weight=factor[states.source] / 2,
        )
        return Plan(states, objective)

"""ESPO: a response is one action; an ELBO stands for its likelihood and the ratio is the whole sequence's.

    explore    M independent responses to each prompt, one group
    credit     A = R − mean of the group's other rewards, optionally over (std + ε_A)
    replay     for each response and draw, anew for each update: x of its L tokens masked, then the other L − x. x is
               uniform on 0..L and so is the subset among those of its size. Tokens behind the end count as any other
    objective  E = ½ [Σ_masked log p / (x/(L+1)) + Σ_rest log p / ((L−x)/(L+1))], averaged over draws
               (1/B) Σ_b [−ℓ(ρ_b, A_b) + β (E_b − E_b,ref)² / (2L)] over the B responses of all prompts,
               ρ_b = exp((E_b − E_b,old)/L)

METHODS "Baselines". At x = 0 or x = L one of the two states is empty; because of the L+1 each half is unbiased all the
same: the mean over x of Σ_masked log p / (x/(L+1)) is (1/L) Σ_{x=1..L} (L/x) Σ_masked log p. The authors spread the
sizes of a batch evenly over 0..L; here each response draws its own.

The objective works on v = E/L, where k2 is (v − v_ref)²/2 = (E − E_ref)²/(2L²): its weight has another factor L.
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
    spread,
)
from unmask.algorithms.work import Outcome, Replayed, Window
from unmask.credit import leave_one_out_advantage
from unmask.decoding import Decoding
from unmask.objectives import ClippedObjective, ObjectiveSettings
from unmask.randomness import uniform
from unmask.replay import masked_states, masking_keys, random_subset


class ESPOSettings(BaseModel):
    """Defaults are the authors', for LLaDA."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    name: Literal["espo"] = "espo"
    """Sequence-level ratios of ELBOs."""
    group_size: int = Field(6, ge=2)
    """M: responses to each prompt."""
    draws: int = Field(2, ge=1)
    """Pairs of complementary masks that an ELBO is averaged over."""
    advantage_eps: float | None = Field(None, ge=0)
    """ε_A: added to the standard deviation that advantages are divided by, in units of reward; none = no division."""

    def check(self, decoding: Decoding, objective: ObjectiveSettings) -> None:
        check_varied("espo", decoding.temperature)
        check_no_mismatch("espo", objective)


class ESPO:
    windows: tuple[Window, ...] = ()

    def __init__(self, settings: ESPOSettings, objective: ObjectiveSettings) -> None:
        self.settings, self.objective = settings, objective

    def collect(self, prompts: Prompts, actor: Actor) -> Experience:
        rollout, key = sample_group(prompts, actor, self.settings.group_size)
        reward = actor.reward(prompts, rollout)
        advantage = leave_one_out_advantage(reward, rollout.group, self.settings.advantage_eps)
        return Experience(rollout, reward, spread(advantage, rollout), advantage, key)

    def replay(self, experience: Experience, actor: Actor, updates: int) -> list[Plan]:
        keys = masking_keys(experience.key.to(experience.credit.device), updates * self.settings.draws)
        length = experience.advantage.shape[1]
        return [self.plan(experience, actor, self.draw(key, length)) for key in keys.chunk(updates, dim=-1)]

    def replayed(self, decoding: Decoding, outcome: Outcome) -> Replayed:
        draws, responses = self.settings.draws, outcome.responses(only_mixed=not self.objective.kl_weight)
        return Replayed.of(responses, 2 * draws, draws * decoding.length)

    def draw(self, key: Tensor, length: int) -> Tensor:
        """Random subsets (B, D, L) bool by mask keys (B, D)."""
        size = (uniform(key, 1) * (length + 1)).long()  # 0..L
        everything = torch.ones(key.numel(), length, dtype=torch.bool, device=key.device)
        return random_subset(key.flatten(), everything, size.flatten()).view(*key.shape, length)

    def plan(self, experience: Experience, actor: Actor, subset: Tensor) -> Plan:
        """One update, with given subsets (B, D, L) bool."""
        rollout, advantage = experience.rollout, experience.credit
        responses, draws, length = subset.shape
        share = 1 / actor.total(responses)  # of a response in the mean over all workers' responses
        masked = torch.stack([subset, ~subset], dim=2).flatten(0, 2)  # (2BD, L)
        response = torch.arange(responses, device=advantage.device).repeat_interleave(2 * draws)
        scored = masked & rollout.trainable[response]
        if not self.objective.kl_weight:
            scored = scored & (advantage[response] != 0).unsqueeze(-1)
        states = masked_states(rollout, response, ~masked, scored)
        size = masked.sum(-1)[states.source].to(advantage.dtype)  # (N,) of the subset that masks the token
        objective = ClippedObjective(
            states,
            self.objective,
            share * advantage.unsqueeze(-1),
            kl_weight=torch.full_like(advantage, share * length),
            unit=states.row,
            weight=(length + 1) / size / (2 * draws * length),
        )
        return Plan(states, objective)

"""SPG: sandwiched policy gradient; a lower bound of the likelihood for good responses, an upper one for bad ones.

    explore    M independent responses to each prompt, one group; the authors reveal the most confident tokens of blocks
    credit     A = R − mean, not divided by the standard deviation
    replay     T random masks of a response, drawn anew for every update; every masked token up to the first end token
               is scored, and what follows that token is always masked
    objective  −Σ_b A_b |y_b| v_b / Σ_b |y_b| over all prompts and workers, |y| the tokens up to the first end token;
               v = ELBO where A > 0, else w EUBO + (1 − w) ELBO, with m_t the positions masked in draw t:

                   ELBO = mean_t mean_{i ∈ m_t} log p_ti
                   EUBO = mean_i log(mean_t [i ∈ m_t] p_ti^β |y| / |m_t|) / β    over positions i masked in any draw

METHODS "Baselines", SPG. Both bounds are means over tokens. As in the authors' code the means run over everything that
is masked, so with blocks also over later blocks and over earlier tokens that were masked at random. Their estimators
without EUBO are w = 0; that which ignores bad responses is `negative_weight: 0`.
"""

import math
from dataclasses import dataclass
from typing import Literal

import torch
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
from unmask.algorithms.work import Outcome, Replayed, Window
from unmask.credit import centered_advantage
from unmask.decoding import Decoding
from unmask.objectives import ObjectiveSettings
from unmask.randomness import derive, uniform
from unmask.replay import Scores, States, bernoulli_mask, masked_states, masking_keys, random_subset


class SPGSettings(BaseModel):
    """Defaults are the authors'."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    name: Literal["spg"] = "spg"
    """Sandwiched policy gradient: a lower likelihood bound for good responses, an upper one for bad ones."""
    group_size: int = Field(6, ge=2)
    """M: responses to each prompt."""
    draws: int = Field(2, ge=1)
    """T: masks drawn for a response in each update."""
    masking: Literal["all", "random", "block_all", "block_random"] = "block_random"
    """What a mask hides: the whole response; a random subset of it, of any size; or, with a block drawn at random, all
    from the block's first token on; a random subset of the block and everything behind it."""
    block: int = Field(32, ge=1)
    """Tokens in a block of `masking`; the authors use decoding's."""
    context_mask_probability: float = Field(0.15, ge=0, le=1)
    """Chance that a prompt token, or a response token before the block, is masked as well."""
    eubo_power: float = Field(1.5, ge=1)
    """β: power of the probabilities in the upper bound, which is none below 1."""
    eubo_weight: float = Field(0.5, ge=0, le=1)
    """w: share of the upper bound in what stands for the likelihood of bad responses; the rest is the lower bound."""
    negative_weight: float = Field(1.0, ge=0)
    """Factor of negative advantages; 0 = learn from good responses only."""

    def check(self, decoding: Decoding, objective: ObjectiveSettings) -> None:
        check_varied("spg", decoding.temperature)
        check_no_kl("spg", objective)
        check_no_clip("spg", objective)
        check_no_mismatch("spg", objective)
        if not self.masking.startswith("block"):
            return
        if decoding.length % self.block:
            raise ValueError(f"algorithm.block={self.block} does not divide decoding.length={decoding.length}")
        if self.draws * self.block > decoding.length:
            raise ValueError(
                f"algorithm.draws={self.draws}: each draw masks another block, and decoding.length={decoding.length} "
                f"has {decoding.length // self.block} of {self.block} tokens; lower draws or block"
            )


class SPG:
    windows: tuple[Window, ...] = ()

    def __init__(self, settings: SPGSettings, objective: ObjectiveSettings) -> None:
        self.settings = settings

    def collect(self, prompts: Prompts, actor: Actor) -> Experience:
        rollout, key = sample_group(prompts, actor, self.settings.group_size)
        reward = actor.reward(prompts, rollout)
        scored = until_end(rollout, actor.end_token_id)
        advantage = centered_advantage(reward, rollout.group)
        advantage = torch.where(advantage < 0, self.settings.negative_weight * advantage, advantage)
        length = scored.sum(-1)
        credit = advantage * length / actor.total(int(length.sum()))
        return Experience(rollout, reward, advantage.unsqueeze(-1) * scored, credit, key)

    def replay(self, experience: Experience, actor: Actor, updates: int) -> list[Plan]:
        scored = until_end(experience.rollout, actor.end_token_id)
        keys = masking_keys(experience.key.to(scored.device), updates * self.settings.draws)
        return [
            self.plan(experience, scored, *self.masks(experience, scored, key))
            for key in keys.split(self.settings.draws, dim=1)
        ]

    def replayed(self, decoding: Decoding, outcome: Outcome) -> Replayed:
        return Replayed.of(outcome.responses(), self.settings.draws, self.settings.draws * decoding.length)

    def masks(self, experience: Experience, scored: Tensor, key: Tensor) -> tuple[Tensor, Tensor]:
        """T masks of each response, and of its prompt.

        Args:
            scored: (B, L) bool, the tokens up to the first end token.
            key: (B, T) int64, one for each mask.

        Returns:
            (B·T, L) bool, the response tokens masked, and (B·T, P) bool, the prompt tokens shown; a response's draws
            are together.
        """
        settings, prompt_mask = self.settings, experience.rollout.prompt_mask
        draws, positions = key.shape[1], scored.shape[1]
        length = scored.sum(-1).repeat_interleave(draws).unsqueeze(-1)  # (A, 1)
        first, size = torch.zeros_like(length), positions
        if settings.masking.startswith("block"):
            first, size = settings.block * self._blocks(key, scored).view(-1, 1), settings.block
        key = key.flatten()  # (A,), A = B·T
        position = torch.arange(positions, device=key.device)
        masked = position >= first  # (A, L)
        if settings.masking in ("random", "block_random"):
            inside = masked & (position < first + size) & (position < length)
            number = 1 + (uniform(key, 1) * inside.sum(-1)).long()  # 1 .. all of them, equally likely
            masked = masked & ~inside | random_subset(derive(key, 2), inside, number)
        hidden = bernoulli_mask(derive(key, 3), positions, settings.context_mask_probability)
        masked = masked | hidden & (position < first)
        # from the prompt's end, so that the draws do not depend on how far a batch is padded
        hidden = bernoulli_mask(derive(key, 4), prompt_mask.shape[1], settings.context_mask_probability).flip(-1)
        return masked, ~(hidden & prompt_mask.repeat_interleave(draws, dim=0))

    def _blocks(self, key: Tensor, scored: Tensor) -> Tensor:
        """(B, T) a block for each draw: from a shuffle of all blocks, taken modulo those that the response reaches."""
        blocks = scored.shape[1] // self.settings.block
        reached = (scored.sum(-1, keepdim=True) - 1) // self.settings.block + 1  # (B, 1)
        shuffled = uniform(key[:, :1], 0, torch.arange(blocks, device=key.device)).argsort(-1)
        return shuffled[:, : key.shape[1]] % reached

    def plan(self, experience: Experience, scored: Tensor, masked: Tensor, prompt_visible: Tensor) -> Plan:
        """One update, in given states.

        Args:
            scored: (B, L) bool, the tokens up to the first end token.
            masked: (B·T, L) bool, the response tokens masked in each draw; a response's draws are together.
            prompt_visible: (B·T, P) bool, the prompt tokens shown.
        """
        credit = experience.credit
        draws = len(masked) // len(scored)
        response = torch.arange(len(scored), device=scored.device).repeat_interleave(draws)
        asked = masked & scored[response] & (credit != 0)[response].unsqueeze(-1)
        states = masked_states(experience.rollout, response, ~masked, asked, prompt_visible)
        return Plan(states, SandwichedObjective(states, credit, scored.sum(-1), draws, self.settings))


@dataclass(frozen=True)
class SandwichedObjective:
    """−Σ_b A_b v_b with v the lower bound where A > 0, and a mix of both bounds elsewhere."""

    states: States
    """Their `source` is response · T + draw."""
    credit: Tensor
    """(B,) advantage times normaliser; a response where it is zero has no states."""
    length: Tensor
    """(B,) tokens up to the first end token."""
    draws: int
    """T."""
    settings: SPGSettings
    is_separable: bool = False
    uses_old: bool = False

    def loss(self, scores: Scores) -> Tensor:
        return -(self.credit * self.bound(scores.logprob)).sum()

    def measure(self, scores: Scores) -> dict[str, Tensor]:
        return {}

    def bound(self, logprob: Tensor) -> Tensor:
        """(B,) what stands for each response's mean log-probability, from those of all scored tokens (N,); 0 where
        nothing is scored."""
        masked = torch.bincount(self.states.source, minlength=len(self.credit) * self.draws)[self.states.source]
        elbo, eubo = self._elbo(logprob, masked), self._eubo(logprob, masked)
        weight = self.settings.eubo_weight
        return torch.where(self.credit > 0, elbo, weight * eubo + (1 - weight) * elbo)

    def _elbo(self, logprob: Tensor, masked: Tensor) -> Tensor:
        """(B,) the lower bound; `masked` (N,) is |m_t| of the draw that each token was scored in."""
        return logprob.new_zeros(len(self.credit)).index_add(0, self.states.row, logprob / (self.draws * masked))

    def _eubo(self, logprob: Tensor, masked: Tensor) -> Tensor:
        """(B,) the upper bound."""
        row, power, positions = self.states.row, self.settings.eubo_power, self.states.visible.shape[1]
        place, at = torch.unique(row * positions + self.states.position, return_inverse=True)  # (U,), (N,)
        # a position's draws side by side, in logarithms lest a power of a small probability becomes zero
        terms = logprob.new_full((len(place), self.draws), -torch.inf)
        terms[at, self.states.source % self.draws] = power * logprob - (masked / self.length[row]).log()
        value = (terms.logsumexp(-1) - math.log(self.draws)) / power  # (U,)
        owner = place // positions
        count = torch.bincount(owner, minlength=len(self.credit))
        return logprob.new_zeros(len(self.credit)).index_add(0, owner, value / count[owner])

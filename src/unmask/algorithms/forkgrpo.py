"""ForkGRPO: fork the rollout where the policy is unsure, and credit both the branches and the path that led there.

    explore    M root responses; the first is the reference ȳ. In each window W_j the position where the reference's
               entropy is highest becomes the fork a_j; from its state M fresh continuations are sampled. Not recursive.
    credit     in group j:         A_jm = (R_jm − μ_j) / (s_j + ε_A) for the newly generated tokens
               along the reference: A_j = α_j (V_{j+1} − V_j) for the tokens a_j .. a_{j+1}−1, V_j = μ_j, V_{K+1} = R(ȳ)
    replay     every reveal state whose token has credit, scored once for both kinds
    objective  per prompt −(1/N) Σ ℓ(ρ, A_jm) − λ (1/L) Σ ℓ(ρ, A_j), N all newly generated tokens of the prompt;
               then the mean over prompts (times `objective.scale`: the paper sums over 8 accumulation microsteps)

METHODS "ForkGRPO". λ is not in the paper's text.
"""

from typing import Literal, Self

import torch
from pydantic import BaseModel, ConfigDict, Field, model_validator
from torch import Tensor

from unmask.algorithms.algorithm import Actor, Experience, Prompts, check_left_to_right, spread
from unmask.credit import group_advantage, group_statistics, segment_credit
from unmask.decoding import Decoding, Rollout
from unmask.randomness import derive
from unmask.replay import States, reveal_states

Window = tuple[int, int]


class ForkGRPOSettings(BaseModel):
    """Defaults are the paper's, for a response of 256 tokens."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    name: Literal["forkgrpo"] = "forkgrpo"
    """Entropy-guided forks with group and segment credit."""
    group_size: int = Field(8, ge=2)
    """M: root responses to each prompt, and continuations of each fork."""
    windows: tuple[Window, ...] = ((32, 63), (64, 95), (96, 127))
    """W_1..W_K: first and last response position, inclusive and counted from 0, in which each fork is looked for."""
    segment_weight: float = Field(1.0, ge=0)
    """λ: weight of the segment loss."""
    advantage_eps: float = Field(1e-4, ge=0)
    """ε_A: added to a group's standard deviation, in units of reward."""
    shrinkage_eps: float = Field(1e-12, gt=0)
    """ε_s: keeps the shrinkage factor defined."""

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        before = 0
        for first, last in self.windows:
            if not before < first <= last:
                raise ValueError(
                    f"windows={list(map(list, self.windows))}: each must be [first, last] after the one before"
                )
            before = last
        return self

    def check(self, decoding: Decoding) -> None:
        check_left_to_right("forkgrpo", decoding.order, decoding.temperature)
        if self.windows and self.windows[-1][1] >= decoding.length:
            raise ValueError(
                f"algorithm.windows ends at {self.windows[-1][1]}, but decoding.length={decoding.length} "
                f"has positions 0..{decoding.length - 1}"
            )


class ForkGRPO:
    def __init__(self, settings: ForkGRPOSettings) -> None:
        self.settings = settings

    def collect(self, prompts: Prompts, actor: Actor) -> Experience:
        size, forks = self.settings.group_size, len(self.settings.windows)
        # group j of prompt p has index p·(K+1) + j; the roots are group 0
        prompt = torch.arange(len(prompts)).repeat_interleave(size)
        member = torch.arange(size).repeat(len(prompts))
        rollout = actor.sample(prompts, prompt, derive(prompts.key[prompt], 0, member), group=prompt * (forks + 1))
        reference = torch.arange(0, len(prompt), size, device=rollout.prompt.device)  # (n,) row of each prompt's ȳ
        fork = fork_positions(rollout.entropy[reference], self.settings.windows)  # (n, K)
        if forks:
            branches = self._branch(prompts, actor, rollout, reference, fork)
            rollout = Rollout.cat([rollout, branches])
        return self._credit(rollout, actor.reward(prompts, rollout), reference, fork, actor)

    def replay(self, experience: Experience) -> States:
        return reveal_states(experience.rollout, experience.credit)

    def _branch(self, prompts: Prompts, actor: Actor, roots: Rollout, reference: Tensor, fork: Tensor) -> Rollout:
        """M continuations from every fork state, with the reference's prefix copied and given."""
        size, (n, forks) = self.settings.group_size, fork.shape
        prompt = torch.arange(n).repeat_interleave(forks * size)  # (n·K·M,)
        branch = torch.arange(1, forks + 1).repeat_interleave(size).repeat(n)
        member = torch.arange(size).repeat(n * forks)
        given_ids = roots.response_ids[reference[prompt]]
        position = torch.arange(given_ids.shape[1], device=fork.device)
        is_given = position < fork[prompt, branch - 1].unsqueeze(-1)  # (n·K·M, L)
        key = derive(prompts.key[prompt], branch, member)
        return actor.sample(prompts, prompt, key, prompt * (forks + 1) + branch, given_ids, is_given)

    def _credit(self, rollout: Rollout, reward: Tensor, reference: Tensor, fork: Tensor, actor: Actor) -> Experience:
        settings, (n, forks) = self.settings, fork.shape
        length = rollout.response_ids.shape[1]
        statistics = group_statistics(reward, rollout.group)
        group_credit = spread(group_advantage(reward, rollout.group, settings.advantage_eps), rollout)  # (B, L)

        segments = segment_credit(
            statistics.mean.view(n, forks + 1),
            reward[reference],
            statistics.count.view(n, forks + 1),
            reward_range=actor.reward_range,
            eps=settings.shrinkage_eps,
        )
        position = torch.arange(length, device=fork.device)
        segment = (position >= fork.unsqueeze(-1)).sum(1)  # (n, L): which segment a reference position lies in
        along = torch.zeros_like(group_credit)
        along[reference] = segments.advantage.gather(-1, segment)

        # N of each prompt counts every newly generated token, also those of groups without credit
        tokens = reward.new_zeros(n).index_add(0, rollout.prompt, rollout.trainable.sum(-1).to(reward))  # (n,)
        all_prompts = actor.total(n)
        credit = torch.stack(
            [
                group_credit / tokens[rollout.prompt].unsqueeze(-1),
                settings.segment_weight * along / length,
            ],
            dim=-1,
        )
        metrics = {
            "fork/position": fork.double().mean().item() if forks else 0.0,
            "fork/value_change": segments.value_change.abs().mean().item(),
            "fork/shrinkage": segments.shrinkage.mean().item(),
        }
        return Experience(
            rollout, reward, group_credit + settings.segment_weight * along, credit / all_prompts, metrics
        )


def fork_positions(entropy: Tensor, windows: tuple[Window, ...]) -> Tensor:
    """a_j: where in each window the reference was least sure, the first on ties.

    Args:
        entropy: (n, L) entropies along the references.
        windows: K inclusive ranges of positions.

    Returns:
        (n, K) int64 positions.
    """
    found = [first + entropy[:, first : last + 1].argmax(-1) for first, last in windows]
    return torch.stack(found, -1) if found else torch.zeros(len(entropy), 0, dtype=torch.int64, device=entropy.device)

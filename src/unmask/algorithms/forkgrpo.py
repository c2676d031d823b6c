"""ForkGRPO: fork the rollout where the policy is unsure, and credit both the branches and the path that led there.

    explore    M root responses; the first is the reference ȳ. In each window W_j of reveal steps the one where the
               reference's entropy is highest becomes the fork a_j; from its state M fresh continuations are sampled.
               Not recursive.
    credit     in group j:         A_jm = (R_jm − μ_j) / (s_j + ε_A) for the newly generated tokens
               along the reference: A_j = α_j (V_{j+1} − V_j) for the tokens of steps a_j .. a_{j+1}−1, V_j = μ_j,
               V_{K+1} = R(ȳ)
    replay     every reveal state whose token has credit, scored once for both kinds
    objective  per prompt −(1/N) Σ ℓ(ρ, A_jm) − λ (1/L) Σ ℓ(ρ, A_j), N all newly generated tokens of the prompt, L those
               of the reference; then the mean over prompts (times `objective.scale`: the paper sums over 8
               accumulation microsteps)

What the method consists of can be taken away piece by piece (`fork_at`, `fork_credit`, `segment_weight`, `shrinkage`),
to see what each is worth. ForkGRPO-Fast is three settings, each on its own: `pilot` (statistics use the counts really
collected), `sparse_replay` and `state_share`. Normalisers are those of all collected responses.

METHODS "ForkGRPO". λ is not in the paper's text. The paper decodes left to right, where step i reveals position i. In
any other order a step's entropy is the mean over the tokens it reveals, a segment is what was revealed between two
forks, and a window that lies behind the reference's last step has no fork.
"""

from typing import Literal, Self

import torch
from pydantic import Field, model_validator
from torch import Tensor

from unmask.algorithms.algorithm import (
    Actor,
    Experience,
    Plan,
    Prompts,
    check_all_tokens,
    check_varied,
    spread,
)
from unmask.algorithms.explore import Groups, sample_groups
from unmask.algorithms.thinning import RevealSettings, reveal_plan
from unmask.algorithms.work import Outcome, Replayed, Window
from unmask.credit import group_advantage, group_statistics, segment_credit
from unmask.decoding import Decoding, Rollout
from unmask.objectives import ObjectiveSettings
from unmask.randomness import derive, name_seed, uniform
from unmask.replay import kept_count

_FORKS = name_seed(0, "forks")


class ForkGRPOSettings(RevealSettings):
    """Defaults are the paper's, for a response of 256 tokens."""

    name: Literal["forkgrpo"] = "forkgrpo"
    """Entropy-guided forks with group and segment credit."""
    group_size: int = Field(8, ge=2)
    """M: root responses to each prompt, and continuations of each fork."""
    windows: tuple[Window, ...] = ((32, 63), (64, 95), (96, 127))
    """W_1..W_K: first and last reveal step, inclusive and counted from 0, in which each fork is looked for; left to
    right these are response positions."""
    fork_at: Literal["entropy", "random"] = "entropy"
    """Where in its window a fork is: at the step whose tokens the reference was least sure of, or at any, drawn."""
    fork_credit: bool = True
    """Whether continuations of forks are trained on; without, they only give their fork's value, and N counts the
    roots' tokens alone."""
    segment_weight: float = Field(1.0, ge=0)
    """λ: weight of the segment loss."""
    shrinkage: bool = True
    """Whether a segment's value change is shrunk by its noise (α); without, α is 1."""
    shrinkage_eps: float = Field(1e-12, gt=0)
    """ε_s: keeps the shrinkage factor defined."""

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        before = 0
        for first, last in self.windows:
            if not before < first <= last:
                raise ValueError(
                    f"windows={list(map(list, self.windows))}: each must be [first, last], from step 1 on and "
                    "after the one before"
                )
            before = last
        return self

    def check(self, decoding: Decoding, objective: ObjectiveSettings) -> None:
        super().check(decoding, objective)
        check_varied("forkgrpo", decoding.temperature)
        if decoding.order == "left_to_right":
            check_all_tokens("forkgrpo", decoding)
        if self.windows and self.windows[-1][1] >= decoding.length:
            raise ValueError(
                f"algorithm.windows ends at {self.windows[-1][1]}, but decoding.length={decoding.length} "
                f"has positions 0..{decoding.length - 1}"
            )
        if self.windows and decoding.order != "dynamic" and self.windows[-1][0] >= decoding.most_steps:
            raise ValueError(
                f"algorithm.windows has one from step {self.windows[-1][0]}, but this {decoding.order} decoding has "
                f"steps 0..{decoding.most_steps - 1}"
            )


class ForkGRPO:
    def __init__(self, settings: ForkGRPOSettings, objective: ObjectiveSettings) -> None:
        self.settings, self.objective = settings, objective

    def collect(self, prompts: Prompts, actor: Actor) -> Experience:
        settings = self.settings
        groups = sample_groups(
            prompts,
            actor,
            settings.group_size,
            pilot=settings.pilot,
            forks=self.forks,
            most_forks=len(settings.windows),
        )
        return self._credit(groups, actor)

    def replay(self, experience: Experience, actor: Actor, updates: int) -> list[Plan]:
        return [reveal_plan(experience, self.objective, actor, self.settings)] * updates

    @property
    def windows(self) -> tuple[Window, ...]:
        return self.settings.windows

    def replayed(self, decoding: Decoding, outcome: Outcome) -> Replayed:
        settings = self.settings
        mixed = outcome.mixed.clone()
        if not settings.fork_credit:
            mixed[:, 1:] = 0
        tokens = (settings.replayed_count(outcome) * mixed * (decoding.length - outcome.start)).sum()
        if settings.segment_weight:
            # the reference also has the credit of its segments, where it is not replayed for that of the roots anyway
            alone = torch.ones_like(mixed[:, :1]) if settings.sparse_replay else 1 - outcome.credited_reference
            ends = torch.nn.functional.pad(outcome.start[:, 1:], (0, 1), value=decoding.length)
            tokens += (alone * outcome.changed * (ends - outcome.start)).sum()
        kept = kept_count(settings.state_share, tokens.item())
        return Replayed(kept, kept)  # left to right every token has a state of its own

    def forks(self, references: Rollout, key: Tensor) -> Tensor:
        """(n, K) the steps at which finished references of n prompts are forked, L = none; `key` (n,) the prompts'."""
        entropy, reveal_step = references.entropy, references.reveal_step
        if self.settings.fork_at == "random":
            # a number of its own for every step, in place of how unsure the reference was
            entropy = uniform(derive(key.to(entropy.device), _FORKS).unsqueeze(-1), reveal_step)
        return fork_steps(entropy, reveal_step, self.settings.windows)

    def _credit(self, groups: Groups, actor: Actor) -> Experience:
        rollout, reward, reference = groups.rollout, groups.reward, groups.reference
        settings = self.settings
        statistics = group_statistics(reward, rollout.group)
        is_trained = groups.is_root | settings.fork_credit  # (B,)
        advantage = torch.where(is_trained, group_advantage(reward, rollout.group, settings.advantage_eps), 0)
        group_credit = spread(advantage, rollout)  # (B, L)

        # behind the last fork the value is the reference's own reward, which is known without error
        terminal = reward[reference]
        segments = segment_credit(
            torch.where(groups.exists, statistics.mean[groups.index], terminal.unsqueeze(-1)),
            terminal,
            torch.where(groups.exists, statistics.count[groups.index], torch.inf),
            reward_range=actor.reward_range,
            eps=settings.shrinkage_eps,
        )
        gain = segments.advantage if settings.shrinkage else segments.value_change
        step = rollout.reveal_step[reference].unsqueeze(1)  # (n, 1, L)
        segment = (step >= groups.start[:, 1:].unsqueeze(-1)).sum(1)  # (n, L): which one a reference token lies in
        is_sampled = rollout.trainable[reference]  # all but what is behind the end
        along = torch.zeros_like(group_credit)
        along[reference] = torch.where(is_sampled, gain.gather(-1, segment), 0)
        length = torch.ones_like(reward)
        length[reference] = is_sampled.sum(-1).to(reward)  # L, or up to the end

        # N of each prompt counts every newly generated token, also those of groups whose rewards are equal
        n = len(reference)
        generated = torch.where(is_trained, rollout.trainable.sum(-1), 0).to(reward)
        tokens = reward.new_zeros(n).index_add(0, rollout.prompt, generated)  # (n,)
        credit = torch.stack(
            [
                group_credit / tokens[rollout.prompt].unsqueeze(-1),
                settings.segment_weight * along / length.unsqueeze(-1),
            ],
            dim=-1,
        )
        found = groups.start[:, 1:][groups.exists[:, 1:]]
        metrics = {
            "fork/step": found.double().mean().item() if len(found) else 0.0,
            "fork/value_change": segments.value_change.abs().mean().item(),
            "fork/shrinkage": segments.shrinkage.mean().item(),
        }
        both = group_credit + settings.segment_weight * along
        return Experience(rollout, reward, both, credit / actor.total(n), groups.key, metrics)


def fork_steps(entropy: Tensor, reveal_step: Tensor, windows: tuple[Window, ...]) -> Tensor:
    """a_j: the step in each window at which the reference was least sure, the first on ties.

    Args:
        entropy: (n, L) entropies of the references' tokens in their reveal states.
        reveal_step: (n, L) when each was revealed, L = never; nothing of a reference is given.
        windows: K inclusive ranges of steps.

    Returns:
        (n, K) int64 steps, ascending; L where a window lies behind the last step.
    """
    n, length = entropy.shape
    if not windows:
        return torch.zeros(n, 0, dtype=torch.int64, device=entropy.device)
    zeros = entropy.new_zeros(n, length + 1)  # the last for what was never revealed
    count = zeros.scatter_add(-1, reveal_step, torch.ones_like(entropy))
    mean = torch.where(count > 0, zeros.scatter_add(-1, reveal_step, entropy) / count, -torch.inf)  # by step
    found = []
    for first, last in windows:
        inside = mean[:, first : last + 1]
        found.append(torch.where((inside == -torch.inf).all(-1), length, first + inside.argmax(-1)))
    return torch.stack(found, -1).sort(-1).values

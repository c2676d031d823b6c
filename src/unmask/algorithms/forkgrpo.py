"""ForkGRPO: fork the rollout where the policy is unsure, and credit both the branches and the path that led there.

    explore    M root responses; the first is the reference ȳ. In each window W_j of reveal steps the one where the
               reference's entropy is highest becomes the fork a_j; from its state M fresh continuations are sampled.
               Not recursive.
    credit     in group j:         A_jm = (R_jm − μ_j) / (s_j + ε_A) for the newly generated tokens
               along the reference: A_j = α_j (V_{j+1} − V_j) for the tokens of steps a_j .. a_{j+1}−1, V_j = μ_j,
               V_{K+1} = R(ȳ)
    replay     every reveal state whose token has credit, scored once for both kinds
    objective  per prompt −(1/N) Σ ℓ(ρ, A_jm) − λ (1/L) Σ ℓ(ρ, A_j), N all newly generated tokens of the prompt;
               then the mean over prompts (times `objective.scale`: the paper sums over 8 accumulation microsteps)

METHODS "ForkGRPO". λ is not in the paper's text. The paper decodes left to right, where step i reveals position i. In
any other order a step's entropy is the mean over the tokens it reveals, a segment is what was revealed between two
forks, and a window that lies behind the reference's last step has no fork.
"""

from dataclasses import dataclass, replace
from typing import Literal, Self

import torch
from pydantic import BaseModel, ConfigDict, Field, model_validator
from torch import Tensor

from unmask.algorithms.algorithm import (
    Actor,
    Experience,
    Plan,
    Prompts,
    check_no_kl,
    check_varied,
    sample_group,
    spread,
)
from unmask.algorithms.work import Outcome, Replayed, Window
from unmask.credit import group_advantage, group_statistics, segment_credit
from unmask.decoding import Decoding, Rollout
from unmask.objectives import ClippedObjective, ObjectiveSettings
from unmask.randomness import derive
from unmask.replay import reveal_states


class ForkGRPOSettings(BaseModel):
    """Defaults are the paper's, for a response of 256 tokens."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    name: Literal["forkgrpo"] = "forkgrpo"
    """Entropy-guided forks with group and segment credit."""
    group_size: int = Field(8, ge=2)
    """M: root responses to each prompt, and continuations of each fork."""
    windows: tuple[Window, ...] = ((32, 63), (64, 95), (96, 127))
    """W_1..W_K: first and last reveal step, inclusive and counted from 0, in which each fork is looked for; left to
    right these are response positions."""
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

    def check(self, decoding: Decoding, objective: ObjectiveSettings) -> None:
        check_varied("forkgrpo", decoding.temperature)
        check_no_kl("forkgrpo", objective)
        if self.windows and self.windows[-1][1] >= decoding.length:
            raise ValueError(
                f"algorithm.windows ends at {self.windows[-1][1]}, but decoding.length={decoding.length} "
                f"has positions 0..{decoding.length - 1}"
            )


@dataclass(frozen=True)
class Forks:
    """The fork trees of n prompts."""

    reference: Tensor
    """(n,) row of each prompt's reference ȳ in the rollout."""
    step: Tensor
    """(n, K) the reveal step a_j of each fork, ascending; L = there is none."""
    exists: Tensor
    """(n, K+1) bool: the root group, which always does, then each fork's."""
    group: Tensor
    """(n, K+1) index of each group; meaningless where there is none."""


class ForkGRPO:
    def __init__(self, settings: ForkGRPOSettings, objective: ObjectiveSettings) -> None:
        self.settings, self.objective = settings, objective

    def collect(self, prompts: Prompts, actor: Actor) -> Experience:
        size = self.settings.group_size
        rollout, key = sample_group(prompts, actor, size)
        reference = torch.arange(0, len(key), size, device=rollout.prompt.device)  # (n,) row of each prompt's ȳ
        steps = rollout.reveal_step[reference]  # (n, L)
        step = fork_steps(rollout.entropy[reference], steps, self.settings.windows)
        exists = torch.cat([torch.ones_like(step[:, :1], dtype=torch.bool), step < steps.shape[1]], dim=-1)
        # a prompt's groups are numbered in order: the roots, then its forks
        forks = Forks(reference, step, exists, exists.flatten().cumsum(0).view_as(exists) - 1)
        rollout = replace(rollout, group=forks.group[rollout.prompt, 0])
        if exists[:, 1:].any():
            branches, branch_key = self._branch(prompts, actor, rollout, forks)
            rollout, key = Rollout.cat([rollout, branches]), torch.cat([key, branch_key])
        return self._credit(rollout, actor.reward(prompts, rollout), key, forks, actor)

    def replay(self, experience: Experience, actor: Actor, updates: int) -> list[Plan]:
        credit = experience.credit
        states = reveal_states(experience.rollout, (credit != 0).any(-1))
        objective = ClippedObjective(states, self.objective, credit[states.row, states.position])
        return [Plan(states, objective)] * updates

    @property
    def windows(self) -> tuple[Window, ...]:
        return self.settings.windows

    def replayed(self, decoding: Decoding, outcome: Outcome) -> Replayed:
        tokens = (outcome.count * outcome.mixed * (decoding.length - outcome.start)).sum()
        if self.settings.segment_weight:
            # where the roots have no credit, the reference may still have that of its segments
            ends = torch.nn.functional.pad(outcome.start[:, 1:], (0, 1), value=decoding.length)
            tokens += ((1 - outcome.mixed[:, :1]) * outcome.changed * (ends - outcome.start)).sum()
        return Replayed(tokens.item(), tokens.item())  # left to right every token has a state of its own

    def _branch(self, prompts: Prompts, actor: Actor, roots: Rollout, forks: "Forks") -> tuple[Rollout, Tensor]:
        """M continuations from every fork state, with what the reference had revealed by then copied and given."""
        size = self.settings.group_size
        prompt, branch = forks.exists[:, 1:].nonzero(as_tuple=True)
        prompt, branch = prompt.repeat_interleave(size), branch.repeat_interleave(size)  # (number of forks · M,)
        member = torch.arange(size, device=prompt.device).repeat(len(prompt) // size)
        given_ids = roots.response_ids[forks.reference[prompt]]
        is_given = roots.reveal_step[forks.reference[prompt]] < forks.step[prompt, branch].unsqueeze(-1)
        group = forks.group[prompt, branch + 1]
        prompt, branch, member = prompt.cpu(), branch.cpu(), member.cpu()  # where prompts are
        key = derive(prompts.key[prompt], branch + 1, member)
        return actor.sample(prompts, prompt, key, group, given_ids, is_given), key

    def _credit(self, rollout: Rollout, reward: Tensor, key: Tensor, forks: "Forks", actor: Actor) -> Experience:
        settings = self.settings
        length = rollout.response_ids.shape[1]
        statistics = group_statistics(reward, rollout.group)
        group_credit = spread(group_advantage(reward, rollout.group, settings.advantage_eps), rollout)  # (B, L)

        # behind the last fork the value is the reference's own reward, which is known without error
        terminal = reward[forks.reference]
        segments = segment_credit(
            torch.where(forks.exists, statistics.mean[forks.group], terminal.unsqueeze(-1)),
            terminal,
            torch.where(forks.exists, statistics.count[forks.group], torch.inf),
            reward_range=actor.reward_range,
            eps=settings.shrinkage_eps,
        )
        step = rollout.reveal_step[forks.reference]  # (n, L)
        segment = (step.unsqueeze(1) >= forks.step.unsqueeze(-1)).sum(1)  # (n, L): which one a reference token lies in
        along = torch.zeros_like(group_credit)
        along[forks.reference] = segments.advantage.gather(-1, segment)

        # N of each prompt counts every newly generated token, also those of groups without credit
        tokens = reward.new_zeros(len(forks.step)).index_add(
            0, rollout.prompt, rollout.trainable.sum(-1).to(reward)
        )  # (n,)
        all_prompts = actor.total(len(forks.step))
        credit = torch.stack(
            [
                group_credit / tokens[rollout.prompt].unsqueeze(-1),
                settings.segment_weight * along / length,
            ],
            dim=-1,
        )
        found = forks.step[forks.exists[:, 1:]]
        metrics = {
            "fork/step": found.double().mean().item() if len(found) else 0.0,
            "fork/value_change": segments.value_change.abs().mean().item(),
            "fork/shrinkage": segments.shrinkage.mean().item(),
        }
        advantage = group_credit + settings.segment_weight * along
        return Experience(rollout, reward, advantage, credit / all_prompts, key, metrics)


def fork_steps(entropy: Tensor, reveal_step: Tensor, windows: tuple[Window, ...]) -> Tensor:
    """a_j: the step in each window at which the reference was least sure, the first on ties.

    Args:
        entropy: (n, L) entropies of the references' tokens in their reveal states.
        reveal_step: (n, L) when each was revealed; nothing of a reference is given.
        windows: K inclusive ranges of steps.

    Returns:
        (n, K) int64 steps, ascending; L where a window lies behind the last step.
    """
    n, length = entropy.shape
    if not windows:
        return torch.zeros(n, 0, dtype=torch.int64, device=entropy.device)
    zeros = torch.zeros_like(entropy)
    count = zeros.scatter_add(-1, reveal_step, torch.ones_like(entropy))
    mean = torch.where(count > 0, zeros.scatter_add(-1, reveal_step, entropy) / count, -torch.inf)  # (n, L) by step
    found = []
    for first, last in windows:
        inside = mean[:, first : last + 1]
        found.append(torch.where((inside == -torch.inf).all(-1), length, first + inside.argmax(-1)))
    return torch.stack(found, -1).sort(-1).values

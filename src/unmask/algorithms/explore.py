"""Groups of responses that are sampled together: from the prompt, and from states on the way of the first response.

All rows share the sampler's batches. A prompt's forks start as soon as its reference is finished, and with a pilot a
group grows as soon as its first responses have shown different rewards.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from unmask.algorithms.algorithm import Actor, Prompts
from unmask.decoding import Rollout, Rows
from unmask.randomness import derive

Forks = Callable[[Rollout, Tensor], Tensor]
"""From r references and their prompts' keys (r,) to the reveal steps (r, K) int64 at which each is forked, ascending;
L = no fork."""


@dataclass(frozen=True)
class Groups:
    """The K+1 groups of each of n prompts: that of the prompt itself, then each fork's."""

    rollout: Rollout
    """Prompt by prompt the prompts' own groups, then all forks' likewise; groups are numbered prompt by prompt."""
    key: Tensor
    """(B,) int64 the key each response was drawn with."""
    reward: Tensor
    """(B,) terminal rewards."""
    reference: Tensor
    """(n,) row of each prompt's first response ȳ, from which its forks start."""
    start: Tensor
    """(n, K+1) the reveal step of ȳ from which a group starts: 0, then the forks', ascending; L = there is none."""
    exists: Tensor
    """(n, K+1) bool."""
    index: Tensor
    """(n, K+1) index of each group; meaningless where there is none."""

    @property
    def is_root(self) -> Tensor:
        """(B,) bool: the response is one of its prompt's own group."""
        return torch.isin(self.rollout.group, self.index[:, 0])


def sample_groups(
    prompts: Prompts,
    actor: Actor,
    size: int,
    *,
    pilot: int | None = None,
    forks: Forks | None = None,
    most_forks: int = 0,
) -> Groups:
    """Sample and judge `size` responses in every group.

    Args:
        pilot: adaptive rollout: groups start with so many responses, and only those whose rewards differ grow to
            `size`. (A prompt whose pilot responses all have one reward has no such group: nothing more is sampled.)
            None = every group is complete from the start.
        forks: where each prompt's first response is forked; none = nowhere.
        most_forks: K, the number of steps that `forks` names.
    """
    return _Growth(prompts, actor, size, pilot, forks, most_forks).sample()


class _Growth:
    """What was asked for so far, and what is to be asked for next. Indices are on the host, where prompts are."""

    def __init__(
        self, prompts: Prompts, actor: Actor, size: int, pilot: int | None, forks: Forks | None, most_forks: int
    ) -> None:
        self.prompts, self.actor, self.size, self.pilot, self.forks = prompts, actor, size, pilot, forks
        self.first = pilot or size
        """Responses that a group starts with."""
        self.prompt = self.branch = self.member = torch.zeros(0, dtype=torch.int64)
        """(B,) of each row asked for; branch 0 is the prompt's own group."""
        shape = (len(prompts), most_forks + 1)
        self.start: Tensor | None = None
        """(n, K+1) as in `Groups`, as far as references are finished, whose tokens and steps are:"""
        self.tokens = self.reveal_step = torch.zeros(0, 0, dtype=torch.int64)
        self.missing = torch.full(shape, self.first)
        """(n, K+1) responses of each group's pilot that are not finished."""
        self.highest = torch.full(shape, -torch.inf, dtype=torch.float64)
        self.lowest = torch.full(shape, torch.inf, dtype=torch.float64)
        self.judged: list[tuple[Tensor, Tensor]] = []
        """Row numbers and rewards, where rewards decide what is sampled."""

    def sample(self) -> Groups:
        everyone = torch.arange(len(self.prompts))
        rows = self._ask(*_members(everyone, torch.zeros_like(everyone), range(self.first)))
        follow = self.follow if self.forks is not None or self.pilot is not None else None
        rollout = self.actor.sample(self.prompts, rows.prompt, rows.key, rows.group, follow=follow)
        return self._groups(rollout)

    def follow(self, row: Tensor, finished: Rollout) -> Rows | None:
        """What the sampler tells, and is asked for in return (`decoding.Follow`)."""
        asked = []
        is_reference = (self.branch[row] == 0) & (self.member[row] == 0)
        if self.forks is not None and is_reference.any():
            prompt, branch = self._fork(self.prompt[row][is_reference], finished.take(is_reference.nonzero()[:, 0]))
            asked.append(_members(prompt, branch, range(self.first)))
        if self.pilot is not None:
            reward = self.actor.reward(self.prompts, finished)
            self.judged.append((row, reward))
            prompt, branch = self._vary(row, reward.cpu())
            asked.append(_members(prompt, branch, range(self.first, self.size)))
        prompt, branch, member = (torch.cat(part) for part in zip(*asked, strict=True)) if asked else (row[:0],) * 3
        return self._ask(prompt, branch, member) if len(prompt) else None

    def _ask(self, prompt: Tensor, branch: Tensor, member: Tensor) -> Rows:
        """Take down rows (R,) and say how they are sampled."""
        self.prompt = torch.cat([self.prompt, prompt])
        self.branch = torch.cat([self.branch, branch])
        self.member = torch.cat([self.member, member])
        key = derive(self.prompts.key[prompt], branch, member)
        group = prompt * self.missing.shape[1] + branch
        if self.start is None:
            return Rows(prompt, key, group)
        # what the reference had revealed by the fork; by step 0 nothing
        is_given = self.reveal_step[prompt] < self.start[prompt, branch].unsqueeze(-1)
        return Rows(prompt, key, group, self.tokens[prompt], is_given)

    def _fork(self, prompt: Tensor, references: Rollout) -> tuple[Tensor, Tensor]:
        """Take down finished references, those of `prompt` (r,). Returns prompt and branch of their forks' groups."""
        assert self.forks is not None
        step = self.forks(references, self.prompts.key[prompt])
        shape, length = self.missing.shape, references.response_ids.shape[1]
        if self.start is None:
            self.start = torch.full(shape, length, device=step.device)
            self.start[:, 0] = 0
            self.tokens = self.reveal_step = torch.zeros(shape[0], length, dtype=torch.int64, device=step.device)
            self.reveal_step = self.reveal_step.clone()
        self.start[prompt, 1:] = step
        self.tokens[prompt], self.reveal_step[prompt] = references.response_ids, references.reveal_step
        which, fork = (step < length).nonzero(as_tuple=True)
        return prompt[which.cpu()], fork.cpu() + 1

    def _vary(self, row: Tensor, reward: Tensor) -> tuple[Tensor, Tensor]:
        """Take down rewards (b,). Returns prompt and branch of groups whose pilot is now complete and mixed."""
        is_pilot = self.member[row] < self.first
        row, reward = row[is_pilot], reward[is_pilot].double()
        group = self.prompt[row] * self.missing.shape[1] + self.branch[row]
        self.missing.view(-1).index_add_(0, group, torch.full_like(group, -1))
        self.highest.view(-1).scatter_reduce_(0, group, reward, "amax")
        self.lowest.view(-1).scatter_reduce_(0, group, reward, "amin")
        told = torch.zeros_like(self.missing, dtype=torch.bool)
        told.view(-1)[group] = True
        prompt, branch = (told & (self.missing == 0) & (self.highest > self.lowest)).nonzero(as_tuple=True)
        return prompt, branch

    def _groups(self, rollout: Rollout) -> Groups:
        """Rows put in order and groups numbered."""
        device, (n, groups) = rollout.prompt.device, self.missing.shape
        start = self.start if self.start is not None else torch.zeros(n, 1, dtype=torch.int64, device=device)
        exists = start < rollout.response_ids.shape[1]
        index = exists.flatten().cumsum(0).view_as(exists) - 1
        order = ((self.branch > 0) * n + self.prompt) * groups + self.branch
        order = (order * self.size + self.member).argsort()
        own = index.flatten()[rollout.group[order.to(device)]]
        rollout = replace(rollout.take(order.to(device)), group=own)
        if self.judged:
            row, reward = (torch.cat(part) for part in zip(*self.judged, strict=True))
            reward = reward[row.argsort()[order].to(device)]
        else:
            reward = self.actor.reward(self.prompts, rollout)
        prompt, branch, member = self.prompt[order], self.branch[order], self.member[order]
        key = derive(self.prompts.key[prompt], branch, member)
        reference = ((branch == 0) & (member == 0)).nonzero()[:, 0].to(device)
        return Groups(rollout, key, reward, reference, start, exists, index)


def _members(prompt: Tensor, branch: Tensor, members: range) -> tuple[Tensor, Tensor, Tensor]:
    """Prompt, branch and member (g · len(members),) of members of g groups."""
    number = torch.tensor(list(members), dtype=torch.int64).repeat(len(prompt))
    return prompt.repeat_interleave(len(members)), branch.repeat_interleave(len(members)), number

"""Fork trees: the rewards of continuations from the states along a reference response."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from unmask.algorithms import Experience
from unmask.algorithms.work import first_of_each

ROUNDING = 1e-9
"""Differences of mean rewards smaller than this are rounding, not change; rewards are of the order of 1."""


@dataclass(frozen=True)
class ForkTrees:
    """n references, each with the groups that start at its root and at its K forks."""

    reward: Tensor
    """(n, K+1, M) float64: rewards of the M continuations from state j; where there is no fork, the reference's own."""
    terminal: Tensor
    """(n,) float64: R(ȳ), the reference's reward. It is the first of its root group."""
    exists: Tensor
    """(n, K+1) bool: whether there is a j-th state, and so a j-th segment."""

    @staticmethod
    def read(experience: Experience) -> "ForkTrees":
        """The trees in what ForkGRPO collected with groups of one size, whose numbers follow prompts, then forks."""
        group, prompt = experience.rollout.group.cpu(), experience.rollout.prompt.cpu()
        groups = int(group.max()) + 1
        reward = experience.reward.double().cpu()[group.argsort(stable=True)].view(groups, -1)  # (G, M)
        prompt = prompt[first_of_each(group)]  # (G,)
        first = first_of_each(prompt)  # (n,) the root group of each prompt
        place = torch.arange(groups) - first[prompt]  # (G,) j
        terminal = reward[first, 0]
        exists = torch.zeros(len(first), int(place.max()) + 1, dtype=torch.bool)
        exists[prompt, place] = True
        every = terminal[:, None, None].repeat(1, exists.shape[1], reward.shape[1])
        every[prompt, place] = reward
        return ForkTrees(every, terminal, exists)

    @staticmethod
    def cat(parts: Sequence["ForkTrees"]) -> "ForkTrees":
        """Trees of the same M, one after the other."""
        forks = max(part.exists.shape[1] for part in parts)
        parts = [part._with_forks(forks) for part in parts]
        return ForkTrees(
            torch.cat([part.reward for part in parts]),
            torch.cat([part.terminal for part in parts]),
            torch.cat([part.exists for part in parts]),
        )

    def _with_forks(self, forks: int) -> "ForkTrees":
        missing = forks - self.exists.shape[1]
        none = self.terminal[:, None, None].expand(-1, missing, self.reward.shape[2])
        exists = torch.nn.functional.pad(self.exists, (0, missing))
        return ForkTrees(torch.cat([self.reward, none], dim=1), self.terminal, exists)


def value_changes(value: Tensor, terminal: Tensor) -> Tensor:
    """ΔV_j = V_{j+1} − V_j with V_{K+1} = R(ȳ): values (..., n, K+1) and terminal rewards (n,) → (..., n, K+1).

    Source: ForkGRPO, credit (METHODS).
    """
    last = terminal.unsqueeze(-1).expand(*value.shape[:-1], 1)
    change = torch.cat([value, last], dim=-1).diff(dim=-1)
    return torch.where(change.abs() <= ROUNDING, 0, change)

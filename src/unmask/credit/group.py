"""Credit within a group: how much better a response did than others that started from the same state."""

from dataclasses import dataclass

import torch
from torch import Tensor

ROUNDING = 1e-6
"""Differences of rewards smaller than this part of their range are rounding: no credit comes of them."""


def significant(difference: Tensor, scale: Tensor | float) -> Tensor:
    """Differences of mean rewards, exactly 0 where they are nothing but rounding at this scale."""
    return torch.where(difference.abs() <= ROUNDING * scale, 0, difference)


@dataclass(frozen=True)
class GroupStatistics:
    """Reward statistics of G groups."""

    count: Tensor
    """(G,) responses in the group, as a float."""
    mean: Tensor
    """(G,) mean reward: the Monte Carlo value of the group's start state."""
    std: Tensor
    """(G,) sample standard deviation (ddof 1); 0 for a group of one."""
    is_mixed: Tensor
    """(G,) bool: at least two different rewards."""
    range: Tensor
    """(G,) largest minus smallest reward."""

    def centered(self, reward: Tensor, group: Tensor) -> Tensor:
        """(B,) reward minus group mean; exactly 0 for a response at the mean."""
        return significant(reward - self.mean[group], self.range[group])


def group_statistics(reward: Tensor, group: Tensor) -> GroupStatistics:
    """Statistics of rewards (B,) by group index (B,); every index from 0 to the largest occurs.

    The standard deviation is two-pass, and exactly 0 where all rewards are equal.
    """
    groups = int(group.max()) + 1
    zeros = reward.new_zeros(groups)
    count = zeros.index_add(0, group, torch.ones_like(reward))
    mean = zeros.index_add(0, group, reward) / count
    highest = zeros.scatter_reduce(0, group, reward, "amax", include_self=False)
    lowest = zeros.scatter_reduce(0, group, reward, "amin", include_self=False)
    is_mixed = highest > lowest
    # equal rewards can have a mean that is off by a rounding; their mean is themselves
    mean = torch.where(is_mixed, mean, highest)
    squares = zeros.index_add(0, group, (reward - mean[group]).square())
    return GroupStatistics(count, mean, (squares / (count - 1).clamp(min=1)).sqrt(), is_mixed, highest - lowest)


def group_advantage(reward: Tensor, group: Tensor, eps: float = 1e-4) -> Tensor:
    """Group-relative advantage: reward minus group mean, over sample standard deviation plus `eps`.

    Args:
        reward: (B,) terminal rewards, in a float type.
        group: (B,) group index of each response, 0..G−1.
        eps: added to the standard deviation, in units of reward.

    Returns:
        (B,) advantages; exactly zero inside a group whose rewards are all equal.

    Source: JustGRPO and ForkGRPO, within-state credit (METHODS "ForkGRPO", credit).
    """
    statistics = group_statistics(reward, group)
    advantage = statistics.centered(reward, group) / (statistics.std[group] + eps)
    return torch.where(statistics.is_mixed[group], advantage, 0)  # also where 0/0 would be nan


def floored_advantage(reward: Tensor, group: Tensor, floor: float, *, ddof: int) -> Tensor:
    """(B,) reward minus group mean, over the standard deviation or `floor`, whichever is larger.

    Args:
        ddof: 0 for the population's standard deviation (RLDF's algorithm 1, TraceRL), 1 for the sample's.

    Source: RLDF, credit; TraceRL with floor 0.
    """
    statistics = group_statistics(reward, group)
    std = statistics.std
    if ddof == 0:
        std = std * ((statistics.count - 1) / statistics.count).sqrt()
    advantage = statistics.centered(reward, group) / std.clamp(min=floor)[group]
    return torch.where(statistics.is_mixed[group], advantage, 0)


def centered_advantage(reward: Tensor, group: Tensor) -> Tensor:
    """(B,) reward minus group mean, not scaled. Source: Diffu-GRPO, wd1, SPG."""
    return group_statistics(reward, group).centered(reward, group)


def leave_one_out_advantage(reward: Tensor, group: Tensor, eps: float | None = None) -> Tensor:
    """(B,) reward minus the mean of the others of its group, over the sample standard deviation plus `eps`.

    Args:
        eps: in units of reward; none = not scaled.

    Source: Coupled-GRPO, ESPO.
    """
    statistics = group_statistics(reward, group)
    count = statistics.count[group]
    # the others' mean is (n·mean − R)/(n − 1); written so that equal rewards give exactly 0
    advantage = statistics.centered(reward, group) * count / (count - 1).clamp(min=1)
    return advantage if eps is None else advantage / (statistics.std[group] + eps)

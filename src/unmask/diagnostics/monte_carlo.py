"""How well values from M continuations stand for those from many, and whether they beat one shared advantage."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from unmask.diagnostics.trees import ForkTrees, value_changes


@dataclass(frozen=True)
class Stability:
    """Values from `size` of a state's continuations against those from all of them."""

    size: int
    """M."""
    value_error: float
    """Mean absolute error of a state's value, in units of reward."""
    sign_agreement: float
    """Share of all segments whose ΔV has the same sign, zero being a sign of its own."""
    changed_agreement: float | None
    """The same among the segments whose ΔV is not zero by all continuations; none = there is no such segment."""


def stability(
    trees: ForkTrees, sizes: Sequence[int], repeats: int, generator: torch.Generator
) -> tuple[Stability, ...]:
    """Monte Carlo stability by subsampling without replacement.

    Args:
        sizes: how many of the M continuations of `trees` to take, each at most M.
        repeats: subsamples of each size.

    Source: ForkGRPO, table 6 (METHODS, diagnostics). The subsample is part of what it is compared with, so errors of
    sizes near M are smaller than against the true value.
    """
    value = trees.reward.mean(-1)
    sign = value_changes(value, trees.terminal).sign()[trees.exists]
    found = []
    for size in sizes:
        error, agrees = [], []
        for _ in range(repeats):
            draw = torch.rand(trees.reward.shape, generator=generator, dtype=torch.float64).argsort(-1)[..., :size]
            few = trees.reward.gather(-1, draw).mean(-1)
            error.append((few - value).abs()[trees.exists].mean())
            agrees.append(value_changes(few, trees.terminal).sign()[trees.exists] == sign)
        agreement = torch.stack(agrees).double()  # (repeats, segments)
        changed = agreement[:, sign != 0]
        found.append(
            Stability(
                size,
                torch.stack(error).mean().item(),
                agreement.mean().item(),
                changed.mean().item() if changed.numel() else None,
            )
        )
    return tuple(found)


@dataclass(frozen=True)
class EstimationError:
    """How far segment advantages from `size` continuations a state are from the true value changes."""

    size: int
    """M."""
    error: float
    """Mean squared error of ΔV_j."""
    bound: float
    """The theorem's bound of it, 2ν²/M."""


@dataclass(frozen=True)
class Theorem:
    """Theorem 1 on given states."""

    errors: tuple[EstimationError, ...]
    shared_error: float
    """Mean squared error of the best advantage that all segments of a reference share: the spread of its true ΔV_j."""
    slope: float | None
    """Of log error over log M, by least squares; the theorem's 1/M is −1. None = the error is zero."""


def theorem(
    trees: ForkTrees, sizes: Sequence[int], repeats: int, reward_range: float, generator: torch.Generator
) -> Theorem:
    """Theorem 1 by simulation: the continuations of each state are taken for its whole distribution of rewards.

    Then true values are known, and estimates from M draws with replacement are what M fresh continuations would give.

    Args:
        repeats: simulated sets of continuations for each size.
        reward_range: r_max − r_min; ν² is a quarter of its square.

    Source: ForkGRPO, theorem 1 (METHODS, diagnostics).
    """
    true = value_changes(trees.reward.mean(-1), trees.terminal)
    errors = []
    for size in sizes:
        squares = []
        for _ in range(repeats):
            draw = torch.randint(trees.reward.shape[-1], (*trees.exists.shape, size), generator=generator)
            change = value_changes(trees.reward.gather(-1, draw).mean(-1), trees.terminal)
            squares.append((change - true).square()[trees.exists].mean())
        errors.append(EstimationError(size, torch.stack(squares).mean().item(), reward_range**2 / 2 / size))
    return Theorem(tuple(errors), _spread(true, trees.exists), _slope(errors))


def _spread(change: Tensor, exists: Tensor) -> float:
    """Mean over all segments of (d_j − d̄)², d̄ the mean of the segment's own reference."""
    change = torch.where(exists, change, 0)
    mean = change.sum(-1, keepdim=True) / exists.sum(-1, keepdim=True)
    return (change - mean).square()[exists].mean().item()


def _slope(errors: Sequence[EstimationError]) -> float | None:
    if len(errors) < 2 or any(found.error == 0 for found in errors):
        return None
    x = [math.log(found.size) for found in errors]
    y = [math.log(found.error) for found in errors]
    x_mean, y_mean = sum(x) / len(x), sum(y) / len(y)
    covariance = sum((a - x_mean) * (b - y_mean) for a, b in zip(x, y, strict=True))
    return covariance / sum((a - x_mean) ** 2 for a in x)

"""Where one advantage for a whole response misleads: segments credited with the wrong sign, or not at all."""

from dataclasses import dataclass

import torch

from unmask.diagnostics.trees import ROUNDING, ForkTrees, value_changes


@dataclass(frozen=True)
class Share:
    """`count` of `total`."""

    count: int
    total: int

    @property
    def value(self) -> float | None:
        """In [0, 1]; none of nothing is no number."""
        return self.count / self.total if self.total else None


@dataclass(frozen=True)
class Mismatch:
    """The paper's figure 3."""

    helpful_in_failed: Share
    """Segments with ΔV > 0 among those of references without full reward."""
    harmful_in_succeeded: Share
    """Segments with ΔV < 0 among those of references with full reward."""
    silent: Share
    """References with some ΔV ≠ 0 among those whose response-level advantage R(ȳ) − μ_0 is zero."""
    silent_of_all: Share
    """The same references among all."""


def mismatch(trees: ForkTrees, reward_max: float) -> Mismatch:
    """Count sign mismatches.

    Args:
        reward_max: full reward; a response with less has failed.

    Source: ForkGRPO, figure 3 (METHODS, diagnostics).
    """
    value = trees.reward.mean(-1)
    change = value_changes(value, trees.terminal)
    failed = (trees.terminal < reward_max).unsqueeze(-1) & trees.exists
    succeeded = (trees.terminal >= reward_max).unsqueeze(-1) & trees.exists
    is_silent = (trees.terminal - value[:, 0]).abs() <= ROUNDING
    changes = ((change != 0) & trees.exists).any(-1)
    unheard = int((is_silent & changes).sum())
    return Mismatch(
        helpful_in_failed=_share(change > 0, failed),
        harmful_in_succeeded=_share(change < 0, succeeded),
        silent=Share(unheard, int(is_silent.sum())),
        silent_of_all=Share(unheard, len(is_silent)),
    )


def _share(condition: torch.Tensor, among: torch.Tensor) -> Share:
    return Share(int((condition & among).sum()), int(among.sum()))

"""Credit along a trajectory: how the expected reward changed while a segment was written."""

from dataclasses import dataclass

import torch
from torch import Tensor

from unmask.credit.group import significant


@dataclass(frozen=True)
class SegmentCredit:
    """Credit of the K+1 segments of n reference responses; every field is (n, K+1)."""

    value_change: Tensor
    """ΔV_j: Monte Carlo value after the segment minus before it."""
    noise: Tensor
    """u_j: bound on the mean squared error of ΔV_j."""
    shrinkage: Tensor
    """α_j in [0, 1): how much of ΔV_j is kept."""
    advantage: Tensor
    """A_j = α_j ΔV_j."""


def segment_credit(
    value: Tensor,
    terminal: Tensor,
    count: Tensor,
    *,
    reward_range: float,
    eps: float = 1e-12,
) -> SegmentCredit:
    """Segment advantages from values at the fork states.

        ΔV_j = V_{j+1} − V_j,  V_{K+1} = R(ȳ)
        u_j  = ν² (1/M_j + 1/M_{j+1}) for j < K,  u_K = ν²/M_K,  ν² = (r_max − r_min)²/4
        α_j  = ΔV_j² / (ΔV_j² + u_j + ε)

    Args:
        value: (n, K+1) mean reward of the groups at a_0 = 0, a_1, .., a_K.
        terminal: (n,) reward of the reference response.
        count: (n, K+1) responses behind each value.
        reward_range: r_max − r_min.
        eps: ε_s, keeps α defined where ΔV and the noise are both zero.

    Source: ForkGRPO, segment credit and shrinkage (METHODS "ForkGRPO", credit).
    """
    change = significant(torch.cat([value, terminal.unsqueeze(-1)], dim=-1).diff(dim=-1), reward_range)  # (n, K+1)
    inverse = 1 / count
    # the value behind the last segment is the reference's own reward, known without error
    noise = reward_range**2 / 4 * (inverse + torch.cat([inverse[:, 1:], torch.zeros_like(inverse[:, :1])], dim=-1))
    square = change.square()
    alpha = square / (square + noise + eps)
    return SegmentCredit(change, noise, alpha, alpha * change)

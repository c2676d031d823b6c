"""The arithmetic that LLaDA and Dream share: rotary positions, attention, gradient checkpointing.

Families differ in the names of their weights, in biases and in alignment, never in these formulas. Nothing
here knows a configuration.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from unmask.models.cache import CacheRows


class Context(NamedTuple):
    """What every block of one forward pass needs besides its input."""

    cos: Tensor
    """(T, 1, D) cosines of the rotary angles, float32 or wider; the two halves of D are equal."""
    sin: Tensor
    """(T, 1, D) sines, negated in the first half, so that a rotation is `x * cos + roll(x) * sin`."""
    key_mask: Tensor | None
    """(B, 1, 1, T) bool, true where a key may be attended to; `None` = everywhere."""
    cache: CacheRows | None = None
    """Kept keys and values; the block's input then holds the fed positions only."""
    block: int = 0
    """The block's number, which tells its keys and values in the cache."""


def rotary_table(length: int, head_dim: int, theta: float, like: Tensor) -> tuple[Tensor, Tensor]:
    """Cosines and sines (see `Context`) of positions 0..length-1, on the device of `like`.

    Positions count padding too: rotary attention depends on differences of positions alone.
    """
    # bfloat16 cannot tell late positions apart, so angles are float32 at least, float64 in a float64 model.
    dtype = torch.promote_types(like.dtype, torch.float32)
    exponent = torch.arange(0, head_dim, 2, dtype=dtype, device=like.device) / head_dim
    positions = torch.arange(length, dtype=dtype, device=like.device)
    angle = torch.outer(positions, 1.0 / theta**exponent)  # (T, D / 2)
    cos, sin = angle.cos(), angle.sin()
    return torch.cat((cos, cos), -1).unsqueeze(1), torch.cat((-sin, sin), -1).unsqueeze(1)


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Half-rotation RoPE of x (B, S, H, D) by cos and sin (S, 1, D) or (B, S, 1, D), in their precision."""
    wide = x.to(cos.dtype)
    return (wide * cos).addcmul_(wide.roll(x.shape[-1] // 2, -1), sin).to(x.dtype)


def table_at(table: Tensor, queries: Tensor) -> Tensor:
    """Rotary table (T, 1, D), or (B, W, 1, D) when rows differ, at (B, S) of its places -> (B, S, 1, D)."""
    if table.dim() == 3:
        return table[queries]
    return table.gather(1, queries[..., None, None].expand(-1, -1, *table.shape[2:]))


def gated(gate: Tensor, up: Tensor) -> Tensor:
    """silu(gate) * up, same shapes; without gradients it overwrites `gate`, which must be a fresh tensor.

    On a CPU fresh memory is the dearer part: overwriting saves a third of the MLP's time.
    """
    if torch.is_grad_enabled():
        return F.silu(gate) * up
    return F.silu(gate, inplace=True).mul_(up)


def rows(x: Tensor, positions: Tensor | None) -> Tensor:
    """x (B, T, d) at positions (B, S) -> (B, S, d); `None` = x itself."""
    if positions is None:
        return x
    return x.gather(1, positions.unsqueeze(-1).expand(-1, -1, x.shape[-1]))


def attend(
    h: Tensor,
    q_proj: nn.Module,
    k_proj: nn.Module,
    v_proj: nn.Module,
    head_dim: int,
    context: Context,
    queries: Tensor | None,
) -> Tensor:
    """Full bidirectional attention, up to but without the output projection.

    Args:
        h: (B, T, d) normed hidden states, of the fed positions only when the context has a cache that names them.
        q_proj, k_proj, v_proj: maps from d to H * D, K * D and K * D; H is a multiple of K (grouped queries).
        head_dim: D.
        context: rotary table, key mask and cache.
        queries: (B, S) rows of h that ask, or `None` = all. Keys and values are always those of all T.

    Returns:
        (B, S, H * D).
    """
    cos, sin, key_mask, cache, block = context
    if cache is not None and cache.fed is not None:
        cos, sin = cos[cache.fed], sin[cache.fed]  # (B, W, 1, D)
    q = q_proj(rows(h, queries)).unflatten(-1, (-1, head_dim))  # (B, S, H, D)
    k = k_proj(h).unflatten(-1, (-1, head_dim))  # (B, T, K, D)
    v = v_proj(h).unflatten(-1, (-1, head_dim))
    k = rotate(k, cos, sin)
    q = rotate(q, cos, sin) if queries is None else rotate(q, table_at(cos, queries), table_at(sin, queries))
    if cache is not None:
        k, v = cache.renew(block, k, v)
    repeats = q.shape[2] // k.shape[2]
    if repeats > 1:
        # Expanded by hand: the fused kernels that take grouped heads do not all take a mask.
        k = k.repeat_interleave(repeats, dim=2)
        v = v.repeat_interleave(repeats, dim=2)
    q, k, v = q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)
    attended = F.scaled_dot_product_attention(q, k, v, attn_mask=key_mask)  # (B, H, S, D)
    return attended.transpose(1, 2).flatten(2)


class Block(nn.Module):
    """One transformer block. A family defines `compute`; this class adds gradient checkpointing around it."""

    gradient_checkpointing = False

    def forward(self, x: Tensor, context: Context, queries: Tensor | None = None) -> Tensor:
        """x (B, T, d) -> (B, T, d), or (B, S, d) when only `queries` (B, S) are wanted.

        Checkpointing also acts in evaluation mode, because replay scores with dropout off. It wraps the
        computation and not the module, so that hooks on the module (FSDP's) run once.
        """
        if self.gradient_checkpointing and torch.is_grad_enabled():
            return checkpoint(self.compute, x, context, queries, use_reentrant=False)
        return self.compute(x, context, queries)

    def compute(self, x: Tensor, context: Context, queries: Tensor | None) -> Tensor:
        raise NotImplementedError

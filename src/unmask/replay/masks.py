"""Random masks from named streams: a draw belongs to (run seed, step, response, draw number) and to nothing else.

It does not matter which worker, micro-batch or order of rows asks; no global generator is touched, and no mask is
repeated because gradients were accumulated.
"""

import torch
from torch import Tensor

from unmask.randomness import derive, name_seed, uniform

_MASKS = name_seed(0, "masks")


def masking_keys(key: Tensor, draws: int) -> Tensor:
    """(B, draws) int64 keys, one for each mask drawn for a response.

    Args:
        key: (B,) the responses' own randomness keys, as their rollout was drawn with.
    """
    return derive(key.unsqueeze(-1), _MASKS, torch.arange(draws, device=key.device))


def bernoulli_mask(key: Tensor, length: int, probability: Tensor | float) -> Tensor:
    """(..., length) bool, each true with `probability` (a number, or broadcastable to the shape) on its own.

    Args:
        key: (...) int64, one for each mask.
    """
    draw = uniform(key.unsqueeze(-1), 0, torch.arange(length, device=key.device))
    return draw < probability


def random_subset(key: Tensor, among: Tensor, size: Tensor) -> Tensor:
    """(A, L) bool: `size` (A,) of the positions of `among` (A, L) bool, every subset of that size equally likely.

    Args:
        key: (A,) int64, one for each mask.
    """
    draw = uniform(key.unsqueeze(-1), 0, torch.arange(among.shape[-1], device=key.device))
    rank = draw.masked_fill(~among, 2.0).argsort(dim=-1).argsort(dim=-1)
    return among & (rank < size.unsqueeze(-1))

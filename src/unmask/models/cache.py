"""Kept keys and values, so that a forward pass can run a few positions and still attend to all.

Attention is bidirectional: when one token changes, every key and value of the sequence changes. Kept ones are
therefore out of date as soon as a token is revealed, and what is computed from them is an approximation. Nothing
here decides when that is good enough; see `decoding/cache.py`.
"""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor


class Cache:
    """Keys (after rotation) and values of every block at all T positions of `slots` sequences.

    Takes 2 · blocks · slots · T · (key/value heads) · (head width) numbers once the first pass has filled it.
    """

    def __init__(self, slots: int) -> None:
        self.slots = slots
        self.blocks: list[tuple[Tensor, Tensor]] = []
        """Keys and values of each block, (slots, T, K, D)."""

    def rows(self, slot: Tensor, fed: Tensor | None = None) -> CacheRows:
        """What one forward pass of B rows needs: see `CacheRows`."""
        return CacheRows(self, slot, fed)


class CacheRows(NamedTuple):
    """The part of a cache that a batch of B rows reads and writes."""

    cache: Cache
    slot: Tensor
    """(B,) int64: where each row's keys and values are, each row in its own place."""
    fed: Tensor | None
    """(B, W) int64: the positions that run, ascending; a row with fewer repeats its last. `None` = all T, which
    fills the cache."""

    def renew(self, block: int, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Keep new keys and values (B, W, K, D) of the fed positions; returns those of all T, (B, T, K, D)."""
        if self.fed is None:
            if block == len(self.cache.blocks):
                shape = (self.cache.slots, *keys.shape[1:])
                self.cache.blocks.append((keys.new_zeros(shape), values.new_zeros(shape)))
            for kept, new in zip(self.cache.blocks[block], (keys, values), strict=True):
                kept[self.slot] = new
            return keys, values
        kept_keys, kept_values = self.cache.blocks[block]
        slot = self.slot.unsqueeze(-1)
        kept_keys[slot, self.fed] = keys
        kept_values[slot, self.fed] = values
        return kept_keys[self.slot], kept_values[self.slot]

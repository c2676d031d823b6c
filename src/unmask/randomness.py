"""Named randomness: every draw is a function of the recipe's seed and of what it is for.

Two kinds. `stream` names a `torch.Generator` (`stream(seed, "masks", step)`), for draws whose shape is fixed.
`uniform` is counter-based: the number for (key, counter, ...) is a hash of exactly these integers, so a row's draws do
not depend on which rows share its batch, on the device, or on how often a run was resumed. Not cryptographic.
"""

import hashlib

import torch
from torch import Tensor

_GOLDEN = 0x9E3779B97F4A7C15 - (1 << 64)  # 2⁶⁴/φ, as a signed 64-bit integer
_MULTIPLY_1 = 0xBF58476D1CE4E5B9 - (1 << 64)
_MULTIPLY_2 = 0x94D049BB133111EB - (1 << 64)


def name_seed(seed: int, *name: str | int) -> int:
    """A 63-bit seed that belongs to `seed` and the name alone, the same on every machine and version."""
    digest = hashlib.sha256("/".join(str(part) for part in (seed, *name)).encode()).digest()
    return int.from_bytes(digest[:8], "little") >> 1


def stream(seed: int, *name: str | int, device: torch.device | str = "cpu") -> torch.Generator:
    """A generator of its own for one purpose, e.g. `stream(recipe.seed, "sft masks", step)`."""
    return torch.Generator(device=device).manual_seed(name_seed(seed, *name))


def derive(key: Tensor, *counters: Tensor | int) -> Tensor:
    """New int64 keys from `key` and integer counters, all broadcast together (splitmix64's finaliser per counter)."""
    for counter in counters:
        mixed = key + _GOLDEN * (torch.as_tensor(counter, device=key.device) + 1)
        mixed = (mixed ^ _shift_right(mixed, 30)) * _MULTIPLY_1
        mixed = (mixed ^ _shift_right(mixed, 27)) * _MULTIPLY_2
        key = mixed ^ _shift_right(mixed, 31)
    return key


def uniform(key: Tensor, *counters: Tensor | int) -> Tensor:
    """float64 numbers in the open interval (0, 1), one for each broadcast (key, counters) combination."""
    return (_shift_right(derive(key, *counters), 11).double() + 0.5) * 2.0**-53


def _shift_right(x: Tensor, bits: int) -> Tensor:
    # torch's >> on int64 keeps the sign; the hash needs zeros shifted in
    return (x >> bits) & ((1 << (64 - bits)) - 1)

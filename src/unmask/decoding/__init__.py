"""Explore: how a response is revealed.

`order.py` decides which positions a step reveals, `sampler.py` is the loop that does it for rows of any prompt,
length and stage, `rollout.py` holds what came out. Nothing here knows of rewards or gradients. A new order is a
name in `OrderName` and a few lines in `choose`.
"""

from unmask.decoding.order import Decoding
from unmask.decoding.rollout import Rollout
from unmask.decoding.sampler import decode, sample

__all__ = ["Decoding", "Rollout", "decode", "sample"]

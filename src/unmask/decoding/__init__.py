"""Explore: how a response is revealed.

`settings.py` is every choice there is; `order.py` and `schedule.py` decide which positions a step reveals, `draw.py`
which tokens, `cache.py` what is not computed again; `sampler.py` is the loop that does it for rows of any prompt,
length and stage, `rows.py` holds what is asked for and how far it is, `rollout.py` what came out. Nothing here knows
of rewards or gradients. A new order is a name in `OrderName` and a few lines in `choose`.
"""

from unmask.decoding.rollout import Rollout
from unmask.decoding.rows import Follow, Rows
from unmask.decoding.sampler import decode, sample
from unmask.decoding.settings import Decoding

__all__ = ["Decoding", "Follow", "Rollout", "Rows", "decode", "sample"]

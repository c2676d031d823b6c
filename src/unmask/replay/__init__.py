"""Replay: which states are looked at again with gradients, and how that is done in bounded memory.

`states.py` lists states and the tokens scored in them, `masks.py` draws random ones, `engine.py` runs them. None knows
which algorithm asked. A new masking schedule is one function that calls `masked_states`.
"""

from unmask.replay.engine import Loss, Replay, Scores
from unmask.replay.masks import bernoulli_mask, masking_keys, random_subset
from unmask.replay.states import States, masked_states, reveal_states

__all__ = [
    "Loss",
    "Replay",
    "Scores",
    "States",
    "bernoulli_mask",
    "masked_states",
    "masking_keys",
    "random_subset",
    "reveal_states",
]

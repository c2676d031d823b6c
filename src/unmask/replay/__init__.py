"""Replay: which states are looked at again with gradients, and how that is done in bounded memory.

`states.py` lists states and the tokens scored in them, `masks.py` draws random ones, `subsample.py` leaves most out
without changing the expected gradient, `engine.py` runs them. None knows which algorithm asked. A new masking schedule
is one function that calls `masked_states`.
"""

from unmask.replay.engine import Loss, Replay, Scores
from unmask.replay.masks import bernoulli_mask, masking_keys, random_subset
from unmask.replay.states import States, masked_states, reveal_states
from unmask.replay.subsample import (
    ClassDraw,
    StateDraw,
    draw_states,
    inclusion_probabilities,
    kept_count,
    one_of_each_class,
    state_order,
    state_weight,
    states_on_the_way,
    systematic_sample,
)

__all__ = [
    "ClassDraw",
    "Loss",
    "Replay",
    "Scores",
    "StateDraw",
    "States",
    "bernoulli_mask",
    "draw_states",
    "inclusion_probabilities",
    "kept_count",
    "masked_states",
    "masking_keys",
    "one_of_each_class",
    "random_subset",
    "reveal_states",
    "state_order",
    "state_weight",
    "states_on_the_way",
    "systematic_sample",
]

"""Replay: which states are looked at again with gradients, and how that is done in bounded memory.

`states.py` lists states and the positions scored in them, `engine.py` runs them. Neither knows which algorithm asked.
A new masking schedule is one function in `states.py` that returns `States`.
"""

from unmask.replay.engine import Replay, token_logprob
from unmask.replay.states import States, reveal_states

__all__ = ["Replay", "States", "reveal_states", "token_logprob"]

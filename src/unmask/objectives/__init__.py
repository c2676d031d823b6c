"""Objective: how scored log-probabilities and credit become a loss.

`policy.py` has the per-token losses. Reduction is the replay engine's, normalisation the algorithm's.
"""

from unmask.objectives.policy import ObjectiveSettings, clipped, clipped_surrogate

__all__ = ["ObjectiveSettings", "clipped", "clipped_surrogate"]

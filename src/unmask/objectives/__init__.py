"""Objective: how scored log-probabilities and credit become a loss.

`policy.py` has the policy losses, `kl.py` the estimators of the divergence from a reference policy. An objective is an
object with `loss` and `measure` (see `Objective`); what the papers share is here, an objective of one paper alone is in
its algorithm's file. Normalisers come with the credit: every paper chooses another one.
"""

from unmask.objectives.kl import kl_estimate
from unmask.objectives.policy import (
    TRUNCATION,
    ClippedObjective,
    Objective,
    ObjectiveSettings,
    ReinforceObjective,
    clipped,
    clipped_surrogate,
    reference_logprob,
    truncated_importance,
)

__all__ = [
    "TRUNCATION",
    "ClippedObjective",
    "Objective",
    "ObjectiveSettings",
    "ReinforceObjective",
    "clipped",
    "clipped_surrogate",
    "kl_estimate",
    "reference_logprob",
    "truncated_importance",
]

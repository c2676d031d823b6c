"""Estimators of the divergence KL(policy ‖ reference) from log-probabilities of sampled tokens."""

from typing import Literal

from torch import Tensor

KLEstimator = Literal["k1", "k2", "k3"]


def kl_estimate(logprob: Tensor, reference: Tensor, estimator: KLEstimator) -> Tensor:
    """Schulman's estimators, elementwise, with q = reference − logprob.

        k1 = −q            unbiased, of either sign; its gradient's expectation is zero, not the divergence's
        k2 = q²/2          biased, low variance; its gradient is unbiased on samples of the policy
        k3 = e^q − 1 − q   unbiased and never negative

    Args:
        logprob, reference: of one broadcastable shape; the result is differentiable in both.
    """
    difference = reference - logprob
    if estimator == "k1":
        return -difference
    if estimator == "k2":
        return difference.square() / 2
    return difference.expm1() - difference

"""Two formulas of evaluation: the unbiased pass@k and the interval of a share."""

from math import comb, sqrt

NORMAL_95 = 1.959963984540054
"""Standard deviations around the mean that hold 95 % of a normal distribution."""


def pass_at_k(samples: int, right: int, k: int) -> float:
    """Unbiased estimate of the chance that at least one of k responses is right: 1 − C(n − c, k) / C(n, k).

    Args:
        samples: n ≥ k responses to one example.
        right: c of them, 0..n.

    Source: Chen et al. 2021, "Evaluating Large Language Models Trained on Code", equation 1.
    """
    assert 0 <= right <= samples and 1 <= k <= samples
    return 1 - comb(samples - right, k) / comb(samples, k)


def wilson(share: float, trials: int) -> tuple[float, float]:
    """Wilson's 95 % interval of a share, in [0, 1]; all of it when there are no trials.

    Args:
        share: of successes, 0..1.
        trials: independent ones; where an example has several responses it is the example that counts, since
            responses to the same one are not independent. The interval is then rather too wide than too narrow.

    Source: Wilson 1927; without continuity correction.
    """
    if not trials:
        return 0.0, 1.0
    z2 = NORMAL_95**2 / trials
    centre = (share + z2 / 2) / (1 + z2)
    half = sqrt(z2 * (share * (1 - share) + z2 / 4)) / (1 + z2)
    # rounding may put an end a hair outside of [0, 1], or off the share that it touches
    return max(0.0, min(share, centre - half)), min(1.0, max(share, centre + half))

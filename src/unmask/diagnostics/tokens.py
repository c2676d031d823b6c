"""How sure the model is of the tokens it reveals: RLDF's analyses of a rollout."""

from dataclasses import dataclass

import torch
from torch import Tensor

BINS = 10
"""Of the histogram, equally wide over [0, 1]; the last holds the tokens with a probability of 0.9 or more."""

LEAST_COUNT = 10
"""How often a token has to be revealed before its mean entropy says something about it."""


@dataclass(frozen=True)
class StepBand:
    """The tokens revealed at one step."""

    step: int
    mean: float
    """Of their probabilities."""
    low: float
    """First quartile."""
    high: float
    """Third quartile."""


@dataclass(frozen=True)
class UnsureToken:
    """A token of the vocabulary, wherever it was revealed."""

    token: int
    entropy: float
    """Mean entropy in nats of the distributions it was drawn from."""
    count: int


@dataclass(frozen=True)
class TokenAnalysis:
    """Probabilities and entropies at reveal."""

    count: int
    """Tokens."""
    pearson: float | None
    """Correlation of probability and entropy; none = one of them does not vary."""
    spearman: float | None
    """Rank correlation of the two."""
    histogram: tuple[int, ...]
    """Tokens in each of `BINS` bins of probability."""
    bands: tuple[StepBand, ...]
    """Along the reveal steps."""
    unsure: tuple[UnsureToken, ...]
    """The tokens with the highest mean entropy, highest first, among those revealed `LEAST_COUNT` times or more."""


def analyse(token: Tensor, probability: Tensor, entropy: Tensor, step: Tensor, top: int = 10) -> TokenAnalysis:
    """Analyse N revealed tokens.

    Args:
        token: (N,) token ids.
        probability: (N,) of the token in the state that revealed it.
        entropy: (N,) in nats, of the distribution the token was drawn from.
        step: (N,) reveal steps.
        top: how many of the least sure tokens to keep.

    Source: RLDF, table 1 and figure 2 (METHODS "RLDF", analyses).
    """
    probability, entropy = probability.double(), entropy.double()
    bins = (probability * BINS).long().clamp(max=BINS - 1)
    return TokenAnalysis(
        count=len(token),
        pearson=pearson(probability, entropy),
        spearman=pearson(ranks(probability), ranks(entropy)),
        histogram=tuple(torch.bincount(bins, minlength=BINS).tolist()),
        bands=step_bands(probability, step),
        unsure=unsure_tokens(token, entropy, top),
    )


def pearson(x: Tensor, y: Tensor) -> float | None:
    """Pearson correlation of x and y (N,), in [−1, 1]; none when one of them does not vary."""
    if (x == x[0]).all() or (y == y[0]).all():
        return None
    x, y = x.double() - x.double().mean(), y.double() - y.double().mean()
    return ((x * y).sum() / (x.square().sum() * y.square().sum()).sqrt()).clamp(-1, 1).item()


def ranks(x: Tensor) -> Tensor:
    """(N,) float64 ranks from 1; equal values share the mean of theirs."""
    _, which, count = x.unique(return_inverse=True, return_counts=True)
    return (count.cumsum(0) - (count - 1) / 2).double()[which]


def step_bands(probability: Tensor, step: Tensor) -> tuple[StepBand, ...]:
    """Mean and quartiles of probabilities (N,) at every step (N,) that occurs."""
    bands = []
    for number in step.unique().tolist():
        here = probability[step == number]
        low, high = torch.quantile(here, torch.tensor([0.25, 0.75], dtype=here.dtype, device=here.device)).tolist()
        bands.append(StepBand(number, here.mean().item(), low, high))
    return tuple(bands)


def unsure_tokens(token: Tensor, entropy: Tensor, top: int) -> tuple[UnsureToken, ...]:
    """The `top` token ids of (N,) with the highest mean entropy (N,), of those that occur `LEAST_COUNT` times."""
    ids, which, count = token.unique(return_inverse=True, return_counts=True)
    mean = torch.zeros(len(ids), dtype=entropy.dtype, device=entropy.device).index_add(0, which, entropy) / count
    order = mean.argsort(descending=True, stable=True)
    order = order[count[order] >= LEAST_COUNT][:top]
    return tuple(
        UnsureToken(*found)
        for found in zip(ids[order].tolist(), mean[order].tolist(), count[order].tolist(), strict=True)
    )

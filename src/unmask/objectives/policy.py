"""Policy losses per scored token. Normalisers live in the credit, because every paper chooses another one."""

from pydantic import BaseModel, ConfigDict, Field
from torch import Tensor


class ObjectiveSettings(BaseModel):
    """The loss on scored log-probabilities."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    clip_low: float = Field(0.2, ge=0, lt=1)
    """ε_lo: ratios below 1 − ε_lo stop pushing a token down."""
    clip_high: float = Field(0.2, ge=0)
    """ε_hi: ratios above 1 + ε_hi stop pushing a token up."""
    scale: float = Field(1.0, gt=0)
    """The mean loss over prompts is multiplied by this; papers that sum over H accumulation microsteps have H here."""


def clipped_surrogate(logprob: Tensor, old: Tensor, advantage: Tensor, *, clip_low: float, clip_high: float) -> Tensor:
    """Per-token loss −min(ρA, clip(ρ, 1−ε_lo, 1+ε_hi)·A) with ρ = exp(logprob − old).

    Not summed and not masked: the caller owns the normaliser. A = 0 gives loss and gradient exactly 0 (finite ρ),
    and the loss is homogeneous: a non-negative weight may be multiplied into A.

    Args:
        logprob, old, advantage: of one broadcastable shape.

    Source: METHODS "Notation", ℓ(ρ, A).
    """
    ratio = (logprob - old).exp()
    return -(ratio * advantage).minimum(ratio.clamp(1 - clip_low, 1 + clip_high) * advantage)


def clipped(logprob: Tensor, old: Tensor, advantage: Tensor, *, clip_low: float, clip_high: float) -> Tensor:
    """Where the clip has stopped the gradient: bool, of the broadcast shape."""
    ratio = (logprob - old).exp()
    return ((ratio > 1 + clip_high) & (advantage > 0)) | ((ratio < 1 - clip_low) & (advantage < 0))

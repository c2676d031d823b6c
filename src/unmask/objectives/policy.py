"""Policy losses. Normalisers live in the credit, because every paper chooses another one."""

from dataclasses import dataclass
from typing import Literal, Protocol, Self

import torch
from pydantic import BaseModel, ConfigDict, Field, model_validator
from torch import Tensor

from unmask.objectives.kl import KLEstimator, kl_estimate
from unmask.replay import Scores, States

TRUNCATION = 2.0
"""Cap on importance weights between sampling and replay."""


class ObjectiveSettings(BaseModel):
    """The loss on scored log-probabilities."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    clip_low: float = Field(0.2, ge=0, lt=1)
    """ε_lo: ratios below 1 − ε_lo stop pushing a token down."""
    clip_high: float = Field(0.2, ge=0)
    """ε_hi: ratios above 1 + ε_hi stop pushing a token up."""
    kl_weight: float = Field(0.0, ge=0)
    """β: weight of the divergence from the reference policy; 0 = none, and no reference policy is kept."""
    kl_estimator: KLEstimator = "k3"
    """How the divergence is estimated from the scored tokens."""
    reference: Literal["start", "rollout", "none"] = "start"
    """The reference policy: the model before training, the policy that sampled this rollout, or none."""
    mismatch: Literal["none", "truncate"] = "none"
    """What is done about sampling and replay not agreeing (block-wise caching, other kernels): nothing, or importance
    weights min(p(replay) / p(rollout), 2) on tokens scored in the state that revealed them."""
    scale: float = Field(1.0, gt=0)
    """The whole loss is multiplied by this; papers that sum over H accumulation microsteps have H here."""

    @model_validator(mode="after")
    def _agree(self) -> Self:
        if self.kl_weight and self.reference == "none":
            raise ValueError(
                f"kl_weight={self.kl_weight:g}: a KL penalty needs a reference policy; set reference=start"
            )
        return self


class Objective(Protocol):
    """A loss on the scored tokens of an update (see `replay.Loss`) and what people want to know of it."""

    @property
    def is_separable(self) -> bool:
        """The loss of all states is the sum of the losses of any parts they are divided into."""
        ...

    @property
    def uses_old(self) -> bool:
        """Whether `scores.old` matters; if not, nobody has to find out what it is for a later update."""
        ...

    def loss(self, scores: Scores) -> Tensor:
        """A scalar, differentiable in `scores.logprob`."""
        ...

    def measure(self, scores: Scores) -> dict[str, Tensor]:
        """Name → values (any number of them) whose mean over all workers is logged; the same names every time."""
        ...


@dataclass(frozen=True)
class ClippedObjective:
    """Σ_u [Σ_c ℓ(ρ_u, A_uc) + β_u KL_u] over units u: scored tokens, or weighted sums of scored tokens.

    A unit's value is v_u = Σ_n w_n log p_n over the tokens that belong to it, its ratio exp(v_u − v_u,old).
    """

    states: States
    settings: ObjectiveSettings
    credit: Tensor
    """(U, C) advantage times normaliser, for each of C terms."""
    kl_weight: Tensor | None = None
    """(U,) normaliser of the divergence, which is multiplied by `settings.kl_weight`; none = no divergence."""
    unit: Tensor | None = None
    """(N,) int64 the unit each token belongs to; none = every token is one, U = N."""
    weight: Tensor | None = None
    """(N,) w_n; goes with `unit`."""
    uses_old: bool = True

    @property
    def is_separable(self) -> bool:
        return self.unit is None

    def loss(self, scores: Scores) -> Tensor:
        value, old, reference, number = self._values(scores)
        credit = self.credit[number]
        if self.settings.mismatch == "truncate":
            credit = credit * truncated_importance(scores, self.states).unsqueeze(-1)
        clip = {"clip_low": self.settings.clip_low, "clip_high": self.settings.clip_high}
        total = clipped_surrogate(value.unsqueeze(-1), old.unsqueeze(-1), credit, **clip).sum()
        if reference is not None and self.kl_weight is not None:
            divergence = kl_estimate(value, reference, self.settings.kl_estimator)
            total = total + self.settings.kl_weight * (self.kl_weight[number] * divergence).sum()
        return total

    def measure(self, scores: Scores) -> dict[str, Tensor]:
        value, old, reference, number = self._values(scores)
        clip = {"clip_low": self.settings.clip_low, "clip_high": self.settings.clip_high}
        credit = self.credit[number]
        stopped = clipped(value.unsqueeze(-1), old.unsqueeze(-1), credit, **clip)
        measures = {"policy/clip_fraction": stopped[credit != 0]}
        if reference is not None:
            measures["kl"] = kl_estimate(value, reference, self.settings.kl_estimator)
        return measures

    def _values(self, scores: Scores) -> tuple[Tensor, Tensor, Tensor | None, Tensor]:
        """Value, old value and reference value of the units at hand, and their numbers."""
        reference = reference_logprob(self.settings, scores)
        if self.unit is None or self.weight is None:
            return scores.logprob, scores.old, reference, scores.number
        unit, weight = self.unit, self.weight

        def add(logprob: Tensor) -> Tensor:
            return logprob.new_zeros(len(self.credit)).index_add(0, unit, weight * logprob)

        number = torch.arange(len(self.credit), device=unit.device)
        return add(scores.logprob), add(scores.old), None if reference is None else add(reference), number


@dataclass(frozen=True)
class ReinforceObjective:
    """−Σ A_n log p_n: no ratio, no clip, no reference."""

    credit: Tensor
    """(N,) advantage times normaliser."""
    is_separable: bool = True
    uses_old: bool = False

    def loss(self, scores: Scores) -> Tensor:
        return -(self.credit[scores.number] * scores.logprob).sum()

    def measure(self, scores: Scores) -> dict[str, Tensor]:
        return {}


def clipped_surrogate(logprob: Tensor, old: Tensor, advantage: Tensor, *, clip_low: float, clip_high: float) -> Tensor:
    """Loss −min(ρA, clip(ρ, 1−ε_lo, 1+ε_hi)·A) with ρ = exp(logprob − old), elementwise.

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


def reference_logprob(settings: ObjectiveSettings, scores: Scores) -> Tensor | None:
    """(n,) what the reference policy of the settings thinks of the tokens; none without a divergence."""
    if not settings.kl_weight:
        return None
    return scores.old if settings.reference == "rollout" else scores.reference


def truncated_importance(scores: Scores, states: States) -> Tensor:
    """(n,) min(p_old(replay) / p(rollout), 2) where a token is scored in the state that revealed it, else 1."""
    weight = (scores.old - scores.sampled).exp().clamp(max=TRUNCATION)
    return torch.where(states.is_revealed[scores.number], weight, 1.0)

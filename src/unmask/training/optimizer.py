"""AdamW with warm-up and gradient clipping: one optimizer step, the same for every kind of training."""

import math

import torch
from pydantic import BaseModel, ConfigDict, Field
from torch import nn

from unmask.errors import UnmaskError


class OptimizerSettings(BaseModel):
    """AdamW; defaults are ForkGRPO's."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    learning_rate: float = Field(5e-5, gt=0)
    """Step size after warm-up."""
    beta1: float = Field(0.9, ge=0, lt=1)
    """Decay of the gradient's running mean."""
    beta2: float = Field(0.999, ge=0, lt=1)
    """Decay of the squared gradient's running mean."""
    eps: float = Field(1e-8, gt=0)
    """Added to the denominator."""
    weight_decay: float = Field(0.0, ge=0)
    """Decoupled weight decay."""
    warmup_steps: int = Field(0, ge=0)
    """Updates over which the step size grows linearly to its full value."""
    max_grad_norm: float = Field(1.0, gt=0)
    """Gradients are scaled down to this global norm."""


def build_optimizer(model: nn.Module, settings: OptimizerSettings) -> torch.optim.AdamW:
    """AdamW over the parameters that require gradients."""
    return torch.optim.AdamW(
        [parameter for parameter in model.parameters() if parameter.requires_grad],
        lr=settings.learning_rate,
        betas=(settings.beta1, settings.beta2),
        eps=settings.eps,
        weight_decay=settings.weight_decay,
    )


def optimizer_step(optimizer: torch.optim.AdamW, settings: OptimizerSettings, step: int) -> float:
    """Clip, step and clear the gradients.

    Args:
        step: number of this update, counted from 1; sets the warm-up.

    Returns:
        Global gradient norm before clipping.

    Raises:
        UnmaskError: the gradient is not finite; weights are left as they were.
    """
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    for parameter in parameters:
        if parameter.grad is None:  # a loss that depends on nothing: the same as one with gradients of zero
            parameter.grad = torch.zeros_like(parameter)
    norm = nn.utils.clip_grad_norm_(parameters, settings.max_grad_norm).item()
    if not math.isfinite(norm):
        raise UnmaskError(
            f"step {step}: the gradient norm is {norm}; lower optimizer.learning_rate or check the rewards"
        )
    for group in optimizer.param_groups:
        group["lr"] = settings.learning_rate * min(1.0, step / (settings.warmup_steps + 1))
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    return norm

"""Low-rank adapters through PEFT: which layers get one, and the same model without it as reference policy."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

from peft import LoraConfig, PeftModel, get_peft_model
from pydantic import BaseModel, ConfigDict, Field
from torch import nn

from unmask.errors import UnmaskError
from unmask.models.denoiser import Denoiser


class LoraSettings(BaseModel):
    """Shape of the adapters. Defaults are those of the diffusion papers' recipes (d1 and its successors)."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    rank: int = Field(default=128, ge=1)
    """Width of the update's bottleneck."""
    alpha: float = Field(default=64, gt=0)
    """The update is scaled by alpha / rank."""
    dropout: float = Field(default=0.05, ge=0, lt=1)
    """Chance that an input of the update is dropped while the model is in training mode."""
    targets: list[str] | Literal["all-linear"] = "all-linear"
    """Names of the linear layers that get an adapter, or all of them; never the LM head."""


def linear_names(model: Denoiser) -> dict[str, list[str]]:
    """Last part of the name -> full names, for every linear layer but the head."""
    head = model.get_output_embeddings()
    names: dict[str, list[str]] = {}
    for name, module in model.named_modules():
        if isinstance(module, nn.Linear) and module is not head:
            names.setdefault(name.rpartition(".")[2], []).append(name)
    return names


def add_lora(model: Denoiser | PeftModel, settings: LoraSettings) -> PeftModel:
    """Freeze `model` and give its layers trainable adapters that start as zero updates.

    Args:
        model: a plain denoiser; its layers are wrapped in place.
        settings: every name in `targets` has to exist in this family.

    Raises:
        UnmaskError: a target matches no layer (recipes for Llama name layers that LLaDA calls otherwise).
    """
    if isinstance(model, PeftModel):
        raise UnmaskError("the model has an adapter already; load it without, or train the one it has")
    known = linear_names(model)
    targets = list(known) if settings.targets == "all-linear" else list(dict.fromkeys(settings.targets))
    if not targets:
        raise UnmaskError("lora.targets is empty; name layers or write all-linear")
    for target in targets:
        if target not in known:
            listed = ", ".join(known)
            raise UnmaskError(f"lora.targets: {target} matches no layer of this {model.family} model; it has {listed}")
    head = model.get_output_embeddings()
    config = LoraConfig(
        r=settings.rank,
        lora_alpha=settings.alpha,  # type: ignore[arg-type]
        lora_dropout=settings.dropout,
        target_modules=targets,
        # LLaDA calls the last layer of every MLP and its head by the same name.
        exclude_modules=[name for name, module in model.named_modules() if module is head],
        base_model_name_or_path=model.name_or_path,
    )
    return get_peft_model(model, config)


@contextmanager
def without_adapter(model: Denoiser | PeftModel) -> Iterator[PeftModel]:
    """The model without its adapter, for as long as the context lasts: the reference policy of a LoRA run."""
    if not isinstance(model, PeftModel):
        raise UnmaskError("a model without an adapter is its own reference only before training; keep a frozen copy")
    with model.disable_adapter():
        yield model

"""Masked-diffusion supervised fine-tuning, also used to train the tiny model from nothing.

Half of a batch's responses are masked at random (each position with the row's own probability t ~ U(0, 1), as in
LLaDA), half are left-to-right states (a prefix is visible, the rest masked), so that the model is at home in the
states both kinds of decoding visit. The loss is the mean cross-entropy over masked positions.
"""

import time
from collections.abc import Callable
from typing import Any

import torch
from pydantic import BaseModel, ConfigDict, Field
from torch import Tensor, nn

from unmask.errors import UnmaskError
from unmask.models import Denoiser
from unmask.randomness import stream
from unmask.tasks import Task
from unmask.tasks.rendering import left_pad, prompt_tokens
from unmask.training.optimizer import OptimizerSettings, build_optimizer, optimizer_step


class SftSettings(BaseModel):
    """Length and shape of supervised training."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    steps: int = Field(400, ge=1)
    """Optimizer updates."""
    batch: int = Field(128, ge=2)
    """Examples in an update."""
    length: int = Field(256, ge=1)
    """Response length L in tokens; solutions are filled up with end tokens, longer ones are an error."""
    left_to_right: float = Field(0.5, ge=0, le=1)
    """Share of a batch that is masked from a position to the end; the rest is masked at random."""


def supervised_loss(
    model: Denoiser, prompt_ids: Tensor, prompt_mask: Tensor, response_ids: Tensor, masked: Tensor
) -> Tensor:
    """Mean cross-entropy over masked response positions.

    Args:
        prompt_ids, prompt_mask: (B, P), left-padded.
        response_ids: (B, L) the solution.
        masked: (B, L) bool, what the model does not see.
    """
    noisy = torch.where(masked, model.mask_token_id, response_ids)
    attention = None if prompt_mask.all() else torch.cat([prompt_mask, torch.ones_like(masked)], dim=-1)
    hidden = model(torch.cat([prompt_ids, noisy], dim=-1), attention, return_hidden=True).hidden
    logits = model.head(hidden[:, prompt_ids.shape[1] :][masked])  # (N, V)
    return nn.functional.cross_entropy(
        logits.to(torch.promote_types(logits.dtype, torch.float32)), response_ids[masked]
    )


def draw_masks(rows: int, length: int, left_to_right: float, generator: torch.Generator) -> Tensor:
    """(rows, length) bool with at least one masked position in each row; the left-to-right states come first."""
    position = torch.arange(length)
    ordered = round(rows * left_to_right)
    start = torch.randint(length, (ordered, 1), generator=generator)
    level = torch.rand(rows - ordered, 1, generator=generator)
    scattered = torch.rand(rows - ordered, length, generator=generator) < level
    at_least = torch.randint(length, (rows - ordered, 1), generator=generator)
    return torch.cat([position >= start, scattered | (position == at_least)])


def supervised_batch(
    task: Task, tokenizer: Any, settings: SftSettings, seed: int, step: int
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Prompt ids, prompt mask, response ids and masks of one update; a function of the seed and the step alone."""
    generator = stream(seed, "sft", step)
    data = task.train()
    picked = torch.randint(len(data), (settings.batch,), generator=generator).tolist()
    prompts, responses = [], []
    for index in picked:
        example = data[index]
        prompts.append(prompt_tokens(task, example, tokenizer))
        solution = tokenizer(task.solution(example), add_special_tokens=False).input_ids
        if len(solution) > settings.length:
            raise UnmaskError(
                f"sft.length={settings.length}: solution {index} has {len(solution)} tokens; use a longer length"
            )
        responses.append(solution + [tokenizer.eos_token_id] * (settings.length - len(solution)))
    prompt_ids, prompt_mask = left_pad(prompts, tokenizer.pad_token_id or 0)
    masked = draw_masks(settings.batch, settings.length, settings.left_to_right, generator)
    return prompt_ids, prompt_mask, torch.tensor(responses), masked


def supervised_training(
    model: Denoiser,
    tokenizer: Any,
    task: Task,
    settings: SftSettings,
    optimizer_settings: OptimizerSettings,
    *,
    seed: int,
    report: Callable[[dict[str, float]], None],
) -> None:
    """Train `model` in place; `report` gets the metrics of every update."""
    device = next(model.parameters()).device
    optimizer = build_optimizer(model, optimizer_settings)
    model.train()
    for step in range(1, settings.steps + 1):
        began = time.perf_counter()
        prompt_ids, prompt_mask, response_ids, masked = (
            part.to(device) for part in supervised_batch(task, tokenizer, settings, seed, step)
        )
        loss = supervised_loss(model, prompt_ids, prompt_mask, response_ids, masked)
        loss.backward()
        grad_norm = optimizer_step(optimizer, optimizer_settings, step)
        report(
            {
                "step": step,
                "loss": loss.item(),
                "grad_norm": grad_norm,
                "time/step": time.perf_counter() - began,
            }
        )
    model.eval()

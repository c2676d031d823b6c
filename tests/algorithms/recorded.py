"""Feeding recorded responses of the authors' code to an algorithm, and comparing what comes out."""

import pytest
import torch
from torch import Tensor

from tests.golden_data import golden_model
from tests.helpers import FixedActor, gradients
from unmask.algorithms import Experience, Plan
from unmask.decoding import Decoding, Rollout
from unmask.models import Denoiser, load_model
from unmask.replay import Replay


def recorded_model(name: str) -> Denoiser:
    return load_model(golden_model(name), dtype="float32")


def recorded_rollout(
    prompt_ids: Tensor, response_ids: Tensor, prompt_mask: Tensor | None = None, reveal_step: Tensor | None = None
) -> Rollout:
    """Rows with equal prompts are one group. Most authors show padded prompts whole: no `prompt_mask`."""
    group = torch.unique(prompt_ids, dim=0, return_inverse=True)[1]
    return Rollout(
        prompt_ids=prompt_ids,
        prompt_mask=torch.ones_like(prompt_ids, dtype=torch.bool) if prompt_mask is None else prompt_mask,
        response_ids=response_ids,
        trainable=torch.ones_like(response_ids, dtype=torch.bool),
        reveal_step=torch.zeros_like(response_ids) if reveal_step is None else reveal_step,
        logprob=torch.zeros(response_ids.shape),
        entropy=torch.zeros(response_ids.shape),
        prompt=group,
        group=group,
        row_forwards=0,
    )


def recorded_experience(rollout: Rollout, advantage: Tensor) -> Experience:
    return Experience(rollout, advantage, advantage.unsqueeze(-1), advantage, torch.arange(len(advantage)))


def recorded_batch(
    tensors: dict[str, Tensor], advantage: Tensor, credit: Tensor, rows: slice, prompt_mask: Tensor
) -> Experience:
    """Rows of a recorded batch as an algorithm's experience; `prompt_mask` (B, P) is what the authors' model got."""
    rollout = recorded_rollout(tensors["prompt_ids"][rows], tensors["completion_ids"][rows], prompt_mask[rows])
    return Experience(
        rollout, tensors["rewards"][rows], advantage[rows], credit[rows], torch.arange(len(advantage))[rows]
    )


def recorded_groups(tensors: dict[str, Tensor]) -> Tensor:
    """(B,) group index: equal prompts, padding included."""
    return torch.unique(tensors["prompt_ids"], dim=0, return_inverse=True)[1]


def actor_of(model: Denoiser) -> FixedActor:
    """An actor that only counts: the responses are there."""
    return FixedActor(model, Decoding(), lambda rollout: torch.zeros(0), end_token_id=model.end_token_id)


def replay_of(model: Denoiser, rollout: Rollout) -> Replay:
    return Replay(model, rollout, temperature=1.0, batch_tokens=100)


def check_update(
    replay: Replay,
    plan: Plan,
    recorded_gradients: dict[str, Tensor],
    *,
    loss: float,
    grad_norm: float,
    old: Tensor | None = None,
    reference: Tensor | None = None,
    loss_tolerance: float = 1e-4,
    relative_loss_tolerance: float = 0.0,
) -> None:
    """The loss, the gradient's norm and every recorded gradient; old and reference (N,) as `Replay` takes them."""
    _, found_loss = replay.accumulate(plan.states, plan.objective, old=old, reference=reference)
    found = gradients(replay.model)
    if found and replay.model.family == "dream":  # whose authors' class keeps the padding token's embedding as it is
        found["model.embed_tokens.weight"][replay.model.pad_token_id] = 0
    assert float(found_loss) == pytest.approx(loss, rel=relative_loss_tolerance, abs=loss_tolerance)
    assert_gradients(found, recorded_gradients, grad_norm)


def assert_gradients(found: dict[str, Tensor], recorded: dict[str, Tensor], grad_norm: float) -> None:
    """The norm of all gradients, and each recorded one by parameter name, to 1e-3."""
    norm = torch.stack([gradient.double().square().sum() for gradient in found.values()]).sum().sqrt() if found else 0.0
    assert float(norm) == pytest.approx(grad_norm, rel=1e-3, abs=1e-8)
    assert recorded
    for name, expected in recorded.items():
        gradient = found.get(name, torch.zeros_like(expected))
        torch.testing.assert_close(gradient, expected, rtol=1e-3, atol=1e-3 * float(expected.abs().max()) + 1e-8)


def recorded_gradients(tensors: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """By parameter name, of the tensors `<prefix>.grad:<name>`."""
    start = f"{prefix}.grad:"
    return {key.removeprefix(start): value for key, value in tensors.items() if key.startswith(start)}

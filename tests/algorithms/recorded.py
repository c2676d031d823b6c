"""What the tests on recorded losses of one-step methods share: a rollout from a case, gradients against its own."""

import torch
from torch import Tensor

from unmask.algorithms import Experience
from unmask.decoding import Rollout


def recorded_experience(
    tensors: dict[str, Tensor], advantage: Tensor, credit: Tensor, rows: slice, prompt_mask: Tensor
) -> Experience:
    """Rows of a recorded batch as an algorithm's experience; `prompt_mask` (B, P) is what the authors' model got."""
    prompt_ids, response_ids = tensors["prompt_ids"][rows], tensors["completion_ids"][rows]
    shape = response_ids.shape
    rollout = Rollout(
        prompt_ids=prompt_ids,
        prompt_mask=prompt_mask[rows],
        response_ids=response_ids,
        trainable=torch.ones(shape, dtype=torch.bool),
        reveal_step=torch.arange(shape[1]).expand(shape),
        logprob=torch.zeros(shape),
        entropy=torch.zeros(shape),
        # rows of one prompt are alike here; each on its own keeps states apart, which changes no number
        prompt=torch.arange(len(response_ids)),
        group=torch.arange(len(response_ids)),
        row_forwards=0,
    )
    key = torch.arange(len(response_ids))
    return Experience(rollout, tensors["rewards"][rows], advantage[rows], credit[rows], key)


def recorded_groups(tensors: dict[str, Tensor]) -> Tensor:
    """(B,) group index of prompt-major rows: equal neighbouring prompts, padding included."""
    prompt_ids = tensors["prompt_ids"]
    changes = (prompt_ids[1:] != prompt_ids[:-1]).any(-1).long()
    return torch.cat([changes.new_zeros(1), changes.cumsum(0)])


def assert_gradients(found: dict[str, Tensor], tensors: dict[str, Tensor], case: str, grad_norm: float) -> None:
    """The norm of all gradients, and each recorded one, to 1e-3."""
    norm = torch.stack([gradient.double().square().sum() for gradient in found.values()]).sum().sqrt()
    torch.testing.assert_close(float(norm), grad_norm, rtol=1e-3, atol=0)
    recorded = {key.split(":", 1)[1]: value for key, value in tensors.items() if key.startswith(f"{case}.grad:")}
    assert recorded
    for name, gradient in recorded.items():
        torch.testing.assert_close(found[name], gradient, rtol=1e-3, atol=1e-3 * float(gradient.abs().max()))

"""Likelihood of a given answer, for a model that has none in closed form: a bound by random masks, and greediness.

The masked-diffusion lower bound of log p(y | x) is the expectation, over l uniform on 1..L and a subset M of l of the
L target positions, of L/l · Σ_{i ∈ M} log p(y_i | x, y outside M). It equals the mean over all orders of revealing y
one token at a time of the sum of log-probabilities. Source: LLaDA, "conditional likelihood evaluation".
"""

import torch
from torch import Tensor

from unmask.decoding import Decoding, Rollout, sample
from unmask.models import Denoiser
from unmask.randomness import uniform
from unmask.replay import Replay, masked_states, masking_keys, random_subset


def random_masks(key: Tensor, draws: int, length: int) -> Tensor:
    """(B, D, L) bool masks of each target, D = `draws` of them.

    Every size 1..L is equally likely in each draw, and every subset among those of its size. The D sizes of a target
    are spread evenly over 1..L from one random start, which leaves each draw as it is and takes most of the variance
    that comes from the size.

    Args:
        key: (B,) int64, each target's own randomness.
    """
    spread = torch.arange(draws, device=key.device) / draws
    size = ((uniform(key, 1).unsqueeze(-1) + spread) % 1 * length).long() + 1  # (B, D)
    keys = masking_keys(key, draws)
    everything = torch.ones(keys.numel(), length, dtype=torch.bool, device=key.device)
    return random_subset(keys.flatten(), everything, size.flatten()).view(*keys.shape, length)


def likelihood_bound(
    model: Denoiser,
    prompt_ids: Tensor,
    prompt_mask: Tensor,
    target_ids: Tensor,
    masked: Tensor,
    *,
    prompt: Tensor,
    batch_tokens: int,
) -> Tensor:
    """Mean over the masks of L/l · Σ_masked log p, an unbiased estimate of the bound with `random_masks`.

    Equal states are run once: those that small targets meet again, and those that targets of one prompt share.

    Args:
        prompt_ids: (B, P) int64, left-padded; rows of one prompt are equal.
        prompt_mask: (B, P) bool, true on real tokens.
        target_ids: (B, L) int64.
        masked: (B, D, L) bool, at least one true in each mask.
        prompt: (B,) int64, which prompt each row has.
        batch_tokens: most tokens (rows × (P + L)) in one forward pass.

    Returns:
        (B,) float64, in nats.
    """
    rows, draws, length = masked.shape
    accumulation = torch.promote_types(next(model.parameters()).dtype, torch.float32)
    nothing = torch.zeros(target_ids.shape, dtype=accumulation, device=target_ids.device)
    rollout = Rollout(
        prompt_ids=prompt_ids,
        prompt_mask=prompt_mask,
        response_ids=target_ids,
        trainable=torch.zeros_like(target_ids, dtype=torch.bool),
        reveal_step=torch.full_like(target_ids, -1),
        logprob=nothing,
        entropy=nothing,
        prompt=prompt,
        group=prompt,
        row_forwards=0,
    )
    response = torch.arange(rows, device=target_ids.device).repeat_interleave(draws)
    hidden = masked.flatten(0, 1)  # (BD, L)
    states = masked_states(rollout, response, ~hidden, hidden)
    logprob = Replay(model, rollout, temperature=1.0, batch_tokens=batch_tokens).score(states).double()
    weight = length / hidden.sum(-1)[states.source]  # (N,)
    return logprob.new_zeros(rows).index_add(0, states.row, weight * logprob) / draws


def is_greedy(
    model: Denoiser, prompt_ids: Tensor, prompt_mask: Tensor, target_ids: Tensor, *, prompt: Tensor, batch_tokens: int
) -> Tensor:
    """(B,) bool: the target is what greedy decoding of its length writes: most likely tokens, the surest first.

    One token a step over the whole target, so as many forward passes as it has tokens; once for each prompt.

    Args: as for `likelihood_bound`.
    """
    decoding = Decoding(order="static", length=target_ids.shape[1], temperature=0, batch_tokens=batch_tokens)
    first = torch.stack([(prompt == number).nonzero()[0, 0] for number in prompt.unique()])
    row = torch.arange(len(first), device=prompt.device)
    written = sample(model, prompt_ids[first], prompt_mask[first], decoding, row, prompt=row, group=row).response_ids
    which = torch.searchsorted(prompt[first], prompt)
    return (written[which] == target_ids).all(-1)

"""The one loop that reveals. Rows of different prompts, lengths and stages share a batch.

Each turn takes the rows in flight through the model once, scores only the candidates of each row's current block,
draws a token for each, and reveals those that the order chooses. A finished row leaves the batch and a waiting one
takes its place, so full batches last to the end and nothing is computed for rows that are done; rows in the same
state are run once. Every draw is a function of the row's own key, the step and the position (see `randomness`): a
row's tokens do not depend on its neighbours.
"""

import torch
from torch import Tensor

from unmask.decoding.distinct import distinct_rows
from unmask.decoding.order import Decoding, candidates, choose, static_share
from unmask.decoding.rollout import Rollout
from unmask.errors import UnmaskError
from unmask.models import Denoiser
from unmask.randomness import uniform


def decode(
    model: Denoiser,
    prompt_ids: Tensor,
    prompt_mask: Tensor,
    decoding: Decoding,
    *,
    generator: torch.Generator,
    given_ids: Tensor | None = None,
    is_given: Tensor | None = None,
) -> Rollout:
    """Sample one response to each prompt.

    Args:
        model: a denoiser, or one with an adapter around it.
        prompt_ids: (B, P) int64, left-padded.
        prompt_mask: (B, P), 1 or true on real tokens.
        generator: each row's key is drawn from it, in row order.
        given_ids, is_given: (B, L) tokens to keep and where; nothing is given when left out.

    Returns:
        A rollout on the model's device in which each row is its own prompt and group.

    Raises:
        UnmaskError: a prompt is empty or not padded on the left.
    """
    rows = prompt_ids.shape[0]
    key = torch.randint(2**62, (rows,), generator=generator, device=generator.device)
    row = torch.arange(rows)
    return sample(
        model,
        prompt_ids,
        prompt_mask,
        decoding,
        key,
        prompt=row,
        group=row,
        given_ids=given_ids,
        is_given=is_given,
    )


@torch.no_grad()
def sample(
    model: Denoiser,
    prompt_ids: Tensor,
    prompt_mask: Tensor,
    decoding: Decoding,
    key: Tensor,
    *,
    prompt: Tensor,
    group: Tensor,
    given_ids: Tensor | None = None,
    is_given: Tensor | None = None,
) -> Rollout:
    """As `decode`, with each row's randomness key (B,), prompt index (B,) and group index (B,) given by the caller."""
    device = next(model.parameters()).device
    rows, prompt_length = prompt_ids.shape
    length = decoding.length
    prompt_mask = prompt_mask.bool()
    if not (prompt_mask[:, -1:].all() and prompt_length and (prompt_mask[:, 1:] >= prompt_mask[:, :-1]).all()):
        raise UnmaskError("prompts must be padded on the left, and none may be empty; see prompt_mask")
    padding = (~prompt_mask).sum(-1).tolist()  # left padding of each row, on the host
    prompt_ids, prompt_mask = prompt_ids.to(device), prompt_mask.to(device)
    key, prompt, group = key.to(device), prompt.to(device), group.to(device)

    tokens = torch.full((rows, length), model.mask_token_id, device=device)
    revealed = torch.zeros(rows, length, dtype=torch.bool, device=device)
    if given_ids is not None and is_given is not None:
        revealed = is_given.to(device).clone()
        tokens = torch.where(revealed, given_ids.to(device), tokens)
    trainable = ~revealed
    reveal_step = torch.full((rows, length), -1, device=device)
    logprob = torch.zeros(rows, length, device=device, dtype=_accumulation_dtype(model))
    entropy = torch.zeros_like(logprob)
    step = torch.zeros(rows, dtype=torch.int64, device=device)
    block_step = torch.zeros_like(step)
    block_masked = torch.zeros_like(step)

    was_training = model.training
    model.eval()
    # longest prompts first: rows in flight then have like lengths, and padding can be cut off
    waiting = sorted((row for row, done in enumerate(revealed.all(-1).tolist()) if not done), key=padding.__getitem__)
    capacity = max(1, decoding.batch_tokens // (prompt_length + length))
    in_flight: list[int] = []
    row_forwards = 0
    while waiting or in_flight:
        if len(in_flight) < capacity and waiting:
            taken = capacity - len(in_flight)
            in_flight, waiting = in_flight + waiting[:taken], waiting[taken:]
            active = torch.tensor(in_flight, device=device)
            cut = min(padding[row] for row in in_flight)
            ids_prompt = prompt_ids[active, cut:]
            attention = None
            if any(padding[row] > cut for row in in_flight):
                ones = torch.ones(len(in_flight), length, dtype=torch.bool, device=device)
                attention = torch.cat([prompt_mask[active, cut:], ones], dim=-1)

        position, is_masked = candidates(revealed[active], decoding.block_length)  # (A, S)
        ids, scored = torch.cat([ids_prompt, tokens[active]], dim=-1), position + ids_prompt.shape[-1]
        # rows of one prompt that have revealed the same tokens so far are one state
        first, which = distinct_rows(torch.cat([ids, scored, prompt[active].unsqueeze(-1)], dim=-1))
        row_forwards += len(first)
        logits = model(ids[first], None if attention is None else attention[first], scored=scored[first]).logits[
            which
        ]  # (A, S, V)
        draw = uniform(key[active].unsqueeze(-1), step[active].unsqueeze(-1), position)
        token, token_logprob, token_entropy = draw_tokens(logits, decoding.temperature, draw)

        if decoding.order == "static":
            starts = block_step[active] == 0
            block_masked[active] = torch.where(starts, is_masked.sum(-1), block_masked[active])
        share = static_share(decoding, block_masked[active], block_step[active])
        chosen = choose(decoding, token_logprob.exp(), is_masked, share)

        row, column = chosen.nonzero(as_tuple=True)
        at = (active[row], position[row, column])
        tokens[at] = token[row, column]
        revealed[at] = True
        reveal_step[at] = step[active][row]
        logprob[at] = token_logprob[row, column]
        entropy[at] = token_entropy[row, column]
        step[active] += 1
        block_over = chosen.sum(-1) == is_masked.sum(-1)
        block_step[active] = torch.where(block_over, 0, block_step[active] + 1)

        finished = revealed[active].all(-1)
        if finished.any():
            stays = (~finished).tolist()
            in_flight = [row for row, stay in zip(in_flight, stays, strict=True) if stay]
            active, ids_prompt = active[~finished], ids_prompt[~finished]
            attention = None if attention is None else attention[~finished]
    model.train(was_training)

    return Rollout(
        prompt_ids=prompt_ids,
        prompt_mask=prompt_mask,
        response_ids=tokens,
        trainable=trainable,
        reveal_step=reveal_step,
        logprob=logprob,
        entropy=entropy,
        prompt=prompt,
        group=group,
        row_forwards=row_forwards,
    )


def draw_tokens(logits: Tensor, temperature: float, draw: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """One token per position by inverting its distribution function at `draw`.

    Args:
        logits: (..., V) in any float type; computed on in at least float32.
        temperature: 0 takes the most likely token; log-probability and entropy are then those of temperature 1.
        draw: (...) float64 uniform in (0, 1).

    Returns:
        token int64, its log-probability, and the distribution's entropy in nats, each (...).
    """
    logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
    all_logprobs = (logits if temperature in (0, 1) else logits / temperature).log_softmax(-1)
    probabilities = all_logprobs.exp()
    if temperature == 0:
        token = logits.argmax(-1)
    else:
        # float64: over 10⁵ tokens a float32 running sum is off by more than rare tokens weigh
        cumulative = probabilities.double().cumsum(-1)
        threshold = (draw * cumulative[..., -1]).unsqueeze(-1)
        token = torch.searchsorted(cumulative, threshold).squeeze(-1).clamp(max=logits.shape[-1] - 1)
    logprob = all_logprobs.gather(-1, token.unsqueeze(-1)).squeeze(-1)
    # −∞·0 of a token that cannot be drawn counts as 0
    entropy = -(probabilities * all_logprobs.clamp(min=-1e4)).sum(-1)
    return token, logprob, entropy


def _accumulation_dtype(model: Denoiser) -> torch.dtype:
    return torch.promote_types(next(model.parameters()).dtype, torch.float32)

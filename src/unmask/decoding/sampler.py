"""The one loop that reveals. Rows of different prompts, lengths and stages share a batch.

Each turn takes the rows in flight through the model once, scores only the candidates of each row's current block,
draws a token for each, and reveals those that the order chooses. A finished row leaves the batch and a waiting one
takes its place, so full batches last to the end and nothing is computed for rows that are done; rows in the same
state are run once, unless a cache gives each its own approximation. Every draw is a function of the row's own key,
the step and the position (see `randomness`): a row's tokens do not depend on its neighbours.
"""

import torch
from torch import Tensor

from unmask.decoding.cache import BlockCache
from unmask.decoding.distinct import distinct_rows
from unmask.decoding.draw import draw_from_hidden
from unmask.decoding.order import choose, next_turn
from unmask.decoding.rollout import Rollout
from unmask.decoding.schedule import Schedule
from unmask.decoding.settings import Decoding
from unmask.errors import UnmaskError
from unmask.models import Denoiser


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
    schedule = Schedule(decoding, device) if decoding.order in ("static", "random") else None

    was_training = model.training
    model.eval()
    # longest prompts first: rows in flight then have like lengths, and padding can be cut off
    waiting = sorted((row for row, done in enumerate(revealed.all(-1).tolist()) if not done), key=padding.__getitem__)
    passes = 2 if decoding.guidance else 1
    capacity = max(1, decoding.batch_tokens // (prompt_length + length) // passes)
    # never larger than needed: a cache has a slot for each row in flight
    capacity = min(capacity, max(1, len(waiting)))
    cache = BlockCache(model, decoding, capacity, device) if decoding.cache != "none" else None
    in_flight: list[int] = []
    row_forwards = 0
    while waiting or in_flight:
        if len(in_flight) < capacity and waiting:
            taken = capacity - len(in_flight)
            in_flight, waiting = in_flight + waiting[:taken], waiting[taken:]
            active = torch.tensor(in_flight, device=device)
            # kept keys are rotated by their position, so with a cache no position may shift when rows come and go
            cut = min(padding[row] for row in in_flight) if cache is None else min(padding)
            ids_prompt = prompt_ids[active, cut:]
            attention = None
            if any(padding[row] > cut for row in in_flight):
                ones = torch.ones(len(in_flight), length, dtype=torch.bool, device=device)
                attention = torch.cat([prompt_mask[active, cut:], ones], dim=-1)

        turn = next_turn(decoding, schedule, revealed[active], key[active], step[active], block_step[active])
        ids, scored = torch.cat([ids_prompt, tokens[active]], dim=-1), turn.position + ids_prompt.shape[-1]
        if cache is None:
            # rows of one prompt that have revealed the same tokens so far are one state
            first, which = distinct_rows(torch.cat([ids, scored, prompt[active].unsqueeze(-1)], dim=-1))
            visible = None if attention is None else attention[first]
            hidden = _hidden(model, ids[first], visible, scored[first], ids_prompt.shape[-1] if passes == 2 else 0)
        else:
            which = torch.arange(len(active), device=device)
            slot = cache.slots(in_flight)
            hidden = cache.hidden(ids, attention, scored, slot, ids_prompt.shape[-1]).unsqueeze(0)
        row_forwards += hidden.shape[0] * hidden.shape[1]

        row, column = turn.is_candidate.nonzero(as_tuple=True)  # (n,) each
        draws = draw_from_hidden(
            model,
            hidden.flatten(1, 2),
            which[row] * hidden.shape[2] + column,
            decoding,
            key[active][row],
            turn.step[row],
            turn.position[row, column],
        )
        confidence = draws.confidence.new_zeros(turn.position.shape)
        confidence[row, column] = draws.confidence
        chosen = choose(decoding, turn, confidence)

        is_chosen = chosen[row, column]
        row, column = row[is_chosen], column[is_chosen]
        at = (active[row], turn.position[row, column])
        tokens[at] = draws.token[is_chosen]
        revealed[at] = True
        reveal_step[at] = turn.step[row]
        logprob[at] = draws.logprob[is_chosen]
        entropy[at] = draws.entropy[is_chosen]
        is_over = chosen.sum(-1) == turn.masked
        step[active] = turn.step + 1
        if schedule is not None:
            # steps that the schedule has left after the block is full
            left = (schedule.steps - 1 - turn.block_step).clamp(min=0)
            step[active] += torch.where(is_over, schedule.counted(left), 0)
        block_step[active] = torch.where(is_over, 0, turn.block_step + 1)

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


def _hidden(model: Denoiser, ids: Tensor, attention: Tensor | None, scored: Tensor, masked_prompt: int) -> Tensor:
    """Hidden states (1, U, S, d) of states (U, T) at `scored` (U, S).

    With guidance (2, U, S, d): once more with the first `masked_prompt` tokens masked out.
    """
    if not masked_prompt:
        return model(ids, attention, scored=scored, return_hidden=True).hidden.unsqueeze(0)
    unconditional = ids.clone()
    unconditional[:, :masked_prompt] = model.mask_token_id
    both = None if attention is None else torch.cat([attention, attention])
    ids, scored = torch.cat([ids, unconditional]), torch.cat([scored, scored])
    return model(ids, both, scored=scored, return_hidden=True).hidden.unflatten(0, (2, -1))


def _accumulation_dtype(model: Denoiser) -> torch.dtype:
    return torch.promote_types(next(model.parameters()).dtype, torch.float32)

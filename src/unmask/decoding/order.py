"""Which positions a decoding step looks at, and which of them it reveals.

A response of length L is filled in blocks from left to right; inside the current block an order picks positions:

- `left_to_right`  the next position, whatever the model thinks: the exact sequential policy of JustGRPO and ForkGRPO.
- `static`         the most confident positions, as many as the schedule says (LLaDA's low-confidence remasking).
- `dynamic`        every position at least `threshold` confident, or the single most confident one if none is.
- `random`         positions drawn before the model is asked, so that only these are scored.

Everything here works on rows that are at different stages: nothing but the row's own `revealed` and step counts.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from unmask.decoding.schedule import Schedule
from unmask.decoding.settings import Decoding
from unmask.randomness import derive, uniform

ORDER_DRAWS = -1
"""Counter that keeps the random order's draws apart from those of tokens."""


class Turn(NamedTuple):
    """What A rows do next, each at its own step."""

    position: Tensor
    """(A, S) int64: positions to look at; a row with fewer repeats its first."""
    is_candidate: Tensor
    """(A, S) bool: false on padding."""
    masked: Tensor
    """(A,) masked positions of the row's block."""
    share: Tensor
    """(A,) how many candidates a static step reveals."""
    step: Tensor
    """(A,) the row's step, counted from 0 where it started."""
    block_step: Tensor
    """(A,) the same, counted from the start of its block."""


def next_turn(
    decoding: Decoding, schedule: Schedule | None, revealed: Tensor, key: Tensor, step: Tensor, block_step: Tensor
) -> Turn:
    """The next step of each row that reveals anything.

    Args:
        schedule: of the static or random order, else none.
        revealed: (A, L) bool; every row has at least one masked position.
        key: (A,) keys of the rows' draws.
        step: (A,) the row's next step.
        block_step: (A,) steps that the row has behind it in its block; 0 on entering it.
    """
    position, is_masked = candidates(revealed, decoding.block_length)
    masked = is_masked.sum(-1)
    if schedule is None:
        if decoding.opening == "first_token":
            position, is_masked = opened(decoding, position, is_masked)
        return Turn(position, is_masked, masked, torch.ones_like(masked), step, block_step)

    done = decoding.block_length - masked
    block_step = torch.where(block_step == 0, schedule.elapsed(done), block_step)
    if decoding.order == "random" and decoding.schedule == "linear":
        chosen, skipped = independent_draws(schedule, position, is_masked, key, block_step)
        position, is_masked = pack(position, chosen)
        step = step + schedule.counted(skipped)
        return Turn(position, is_masked, masked, is_masked.sum(-1), step, block_step + skipped)
    upcoming, share = schedule.upcoming(done)
    step = step + schedule.counted(upcoming - block_step)
    if decoding.order == "random":
        draw = order_draw(key.unsqueeze(-1), upcoming.unsqueeze(-1), position)
        position, is_masked = pack(position, most_confident(draw, is_masked, share))
    elif decoding.opening == "first_token":
        position, is_masked = opened(decoding, position, is_masked)
    return Turn(position, is_masked, masked, share, step, upcoming)


def choose(decoding: Decoding, turn: Turn, confidence: Tensor) -> Tensor:
    """Which candidates a step reveals.

    Args:
        confidence: (A, S) of each candidate, higher is surer; anything on padding.

    Returns:
        (A, S) bool, at least one true in each row.
    """
    if decoding.order in ("left_to_right", "random") or confidence.shape[-1] == 1:
        return turn.is_candidate
    if decoding.order == "static":
        return most_confident(confidence, turn.is_candidate, turn.share)
    best = most_confident(confidence, turn.is_candidate, torch.ones_like(turn.share))
    return ((confidence >= decoding.threshold) & turn.is_candidate) | best


def candidates(revealed: Tensor, block: int) -> tuple[Tensor, Tensor]:
    """The masked positions of each row's current block: the only ones a step may reveal.

    Args:
        revealed: (A, L) bool; every row has at least one masked position.
        block: tokens in a block.

    Returns:
        position (A, S) int64, ascending in a row and padded with a repeated position; is_masked (A, S) bool, false
        on padding.
    """
    first = (~revealed).int().argmax(-1, keepdim=True)  # (A, 1)
    if block == 1:
        return first, torch.ones_like(first, dtype=torch.bool)
    inside = first - first % block + torch.arange(block, device=revealed.device)  # (A, block)
    return pack(inside, ~revealed.gather(-1, inside))


def behind_end(tokens: Tensor, end_token_id: int) -> Tensor:
    """(A, L) bool: the positions behind the first end token among `tokens` (A, L), masked ones being none."""
    is_end = (tokens == end_token_id).long()
    return is_end.cumsum(-1) > is_end


def opened(decoding: Decoding, position: Tensor, is_masked: Tensor) -> tuple[Tensor, Tensor]:
    """The candidates with `opening=first_token`: alone the block's first position while that is masked."""
    opens = position[:, :1] % decoding.block_length == 0  # ascending: the first candidate is the block's first
    alone = torch.arange(position.shape[-1], device=position.device) == 0
    return pack(position, is_masked & (alone | ~opens))


def pack(position: Tensor, keep: Tensor) -> tuple[Tensor, Tensor]:
    """Positions to keep (A, S), at least one a row, moved to the front and cut to as many as any row keeps.

    Returns:
        position (A, S') in the same order, padded with the row's first; keep (A, S'), false on padding.
    """
    most = int(keep.sum(-1).max())
    keep, order = keep.sort(dim=-1, descending=True, stable=True)
    position, keep = position.gather(-1, order)[:, :most], keep[:, :most]
    return torch.where(keep, position, position[:, :1]), keep


def most_confident(confidence: Tensor, is_candidate: Tensor, share: Tensor) -> Tensor:
    """(A, S) bool: the `share` (A,) candidates with the highest confidence (A, S), the first on ties."""
    confidence = confidence.masked_fill(~is_candidate, -torch.inf)
    rank = confidence.argsort(dim=-1, descending=True, stable=True).argsort(-1)
    return (rank < share.unsqueeze(-1)) & is_candidate


def order_draw(key: Tensor, block_step: Tensor, position: Tensor) -> Tensor:
    """Uniform numbers of the random order, float64 in (0, 1), broadcast."""
    return uniform(derive(key, ORDER_DRAWS), block_step, position)


def independent_draws(
    schedule: Schedule, position: Tensor, is_masked: Tensor, key: Tensor, block_step: Tensor
) -> tuple[Tensor, Tensor]:
    """Each masked position with the step's probability; steps that reveal nothing are passed over.

    Returns:
        chosen (A, S) bool, at least one true in each row, and the steps passed over (A,).
    """
    skipped = torch.zeros_like(block_step)
    while True:
        now = (block_step + skipped).unsqueeze(-1)
        chosen = (order_draw(key.unsqueeze(-1), now, position) < schedule.chance[now]) & is_masked
        nothing = ~chosen.any(-1)
        if not nothing.any():
            return chosen, skipped
        skipped += nothing.long()

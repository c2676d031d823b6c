"""The one loop that reveals. Rows of different prompts, lengths and stages share a batch.

Each turn takes the rows in flight through the model once, scores only the candidates of each row's current block,
draws a token for each, and reveals those that the order chooses. A finished row leaves the batch and a waiting one
takes its place, so full batches last to the end and nothing is computed for rows that are done; rows in the same
state are run once, unless a cache gives each its own approximation, and left to right also those that come to it
later. Rows that can only be asked for when others are
finished (forks) join the queue then. Every draw is a function of the row's own key, the step and the position (see
`randomness`): a row's tokens do not depend on its neighbours.
"""

from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor

from unmask.decoding.cache import BlockCache
from unmask.decoding.distinct import Memory, distinct_rows
from unmask.decoding.draw import draw_from_hidden
from unmask.decoding.order import Turn, behind_end, choose, next_turn
from unmask.decoding.rollout import Rollout
from unmask.decoding.rows import Follow, Progress, Rows
from unmask.decoding.schedule import Schedule
from unmask.decoding.settings import Decoding
from unmask.errors import UnmaskError
from unmask.models import Denoiser

FORWARD_CHUNK = {"cpu": 2**20}
"""Numbers inside an MLP at a time, 4 MiB in float32 that stay near a CPU: a pass over more costs up to half more a row.
GPUs are not listed; they run all rows in flight together."""


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
    follow: Follow | None = None,
) -> Rollout:
    """As `decode`, with each row's randomness key (B,), prompt index (B,) and group index (B,) given by the caller.

    Args:
        follow: asks for more rows when some are finished. They start as soon as there is room, after those that wait
            already, and come out behind them in the order in which they were asked for.
    """
    device = next(model.parameters()).device
    prompt_mask = prompt_mask.bool()
    if not (prompt_mask[:, -1:].all() and prompt_ids.shape[1] and (prompt_mask[:, 1:] >= prompt_mask[:, :-1]).all()):
        raise UnmaskError("prompts must be padded on the left, and none may be empty; see prompt_mask")
    rows = Rows(prompt, key, group, given_ids, is_given)
    was_training = model.training
    model.eval()
    rollout = _Sampling(model, decoding, prompt_ids.to(device), prompt_mask.to(device), rows).run(follow)
    model.train(was_training)
    return rollout


class _Sampling:
    """One call of `sample`."""

    def __init__(
        self, model: Denoiser, decoding: Decoding, prompt_ids: Tensor, prompt_mask: Tensor, rows: Rows
    ) -> None:
        self.model, self.decoding, self.device = model, decoding, prompt_ids.device
        self.end_token_id = model.end_token_id if decoding.stop_at_end else None
        self.schedule = Schedule(decoding, self.device) if decoding.order in ("static", "random") else None
        self.padding = (~prompt_mask).sum(-1).tolist()
        """Left padding of each row, on the host."""
        self.row_of = {prompt: row for row, prompt in reversed([*enumerate(rows.prompt.tolist())])}
        """The first row of each prompt."""
        self.has_groups = len(self.row_of) < len(self.padding)
        """Some rows answer the same prompt, and may meet in a state."""
        self.memory = Memory()
        self.progress = self._start(prompt_ids, prompt_mask, rows)
        self.in_flight: list[int] = []
        self.row_forwards = self.places = self.places_filled = 0

    def run(self, follow: Follow | None) -> Rollout:
        """Until no row is left and `follow` asks for none."""
        waiting, finished = self._divide(range(len(self.padding)))
        capacity = max(1, self.decoding.batch_tokens // self._width // (2 if self.decoding.guidance else 1))
        if follow is None:
            # never larger than needed: a cache has a slot for each row in flight
            capacity = min(capacity, max(1, len(waiting)))
        cached = self.decoding.cache != "none"
        cache = BlockCache(self.model, self.decoding, capacity, self.device) if cached else None
        passes = filled = 0  # since rows were last taken
        while waiting or self.in_flight or finished:
            if finished:
                more = follow(torch.tensor(finished), self._outcome(finished)) if follow is not None else None
                finished = []
                if more is not None:
                    taken, finished = self._divide(self._add(more))
                    waiting += taken
                continue
            if len(self.in_flight) < capacity and waiting:
                # passes since then had room for rows that were still to come
                self.places, self.places_filled = self.places + passes * capacity, self.places_filled + filled
                passes = filled = 0
                room = capacity - len(self.in_flight)
                self.in_flight, waiting = self.in_flight + waiting[:room], waiting[room:]
                batch = self._batch(cache is not None)
            passes, filled = passes + 1, filled + len(self.in_flight)
            batch, finished = self._step(batch, cache)
        return replace(
            self.progress.rollout(self.end_token_id),
            row_forwards=self.row_forwards,
            places=self.places,
            places_filled=self.places_filled,
        )

    @property
    def _width(self) -> int:
        return self.progress.prompt_ids.shape[1] + self.decoding.length

    def _start(self, prompt_ids: Tensor, prompt_mask: Tensor, rows: Rows) -> Progress:
        return Progress.start(
            prompt_ids,
            prompt_mask,
            rows,
            length=self.decoding.length,
            mask_token_id=self.model.mask_token_id,
            end_token_id=self.end_token_id,
            dtype=_accumulation_dtype(self.model),
        )

    def _add(self, rows: Rows) -> range:
        """Take down new rows; returns their numbers."""
        like = [self.row_of[prompt] for prompt in rows.prompt.tolist()]
        known = len(self.padding)
        self.padding += [self.padding[row] for row in like]
        ids, mask = self.progress.prompt_ids[like], self.progress.prompt_mask[like]
        self.progress = Progress.cat([self.progress, self._start(ids, mask, rows)])
        return range(known, len(self.padding))

    def _divide(self, rows: range) -> tuple[list[int], list[int]]:
        """Rows to be sampled, longest prompts first, and rows in which nothing is left to sample."""
        done = self.progress.is_closed[rows.start : rows.stop].all(-1).tolist()
        # rows in flight then have like lengths, and padding can be cut off
        waiting = sorted((row for row, over in zip(rows, done, strict=True) if not over), key=self.padding.__getitem__)
        return waiting, [row for row, over in zip(rows, done, strict=True) if over]

    def _outcome(self, rows: list[int]) -> Rollout:
        return self.progress.take(torch.tensor(rows, device=self.device)).rollout(self.end_token_id)

    def _batch(self, has_cache: bool) -> "_Batch":
        """The rows in flight, without padding that none of them needs."""
        progress, active = self.progress, torch.tensor(self.in_flight, device=self.device)
        # kept keys are rotated by their position, so with a cache no position may shift when rows come and go
        cut = min(self.padding) if has_cache else min(self.padding[row] for row in self.in_flight)
        attention = None
        if any(self.padding[row] > cut for row in self.in_flight):
            ones = torch.ones(len(active), self.decoding.length, dtype=torch.bool, device=self.device)
            attention = torch.cat([progress.prompt_mask[active, cut:], ones], dim=-1)
        return _Batch(active, progress.prompt_ids[active, cut:], attention)

    def _step(self, batch: "_Batch", cache: BlockCache | None) -> tuple["_Batch", list[int]]:
        """One turn of the rows in flight. Returns those that go on, and the numbers of those that are finished."""
        progress, active, decoding = self.progress, batch.active, self.decoding
        key, step = progress.key[active], progress.step[active]
        turn = next_turn(decoding, self.schedule, progress.is_closed[active], key, step, progress.block_step[active])
        hidden, which = self._forward(batch, turn, cache)
        row, column = turn.is_candidate.nonzero(as_tuple=True)  # (n,) each
        draws = draw_from_hidden(
            self.model,
            hidden.flatten(1, 2),
            which[row] * hidden.shape[2] + column,
            decoding,
            key[row],
            turn.step[row],
            turn.position[row, column],
        )
        confidence = draws.confidence.new_zeros(turn.position.shape)
        confidence[row, column] = draws.confidence
        chosen = choose(decoding, turn, confidence)

        is_chosen, position = chosen[row, column], turn.position[row, column]
        if self.end_token_id is not None:
            drawn = progress.tokens[active]
            drawn[row[is_chosen], position[is_chosen]] = draws.token[is_chosen]
            behind = behind_end(drawn, self.end_token_id)
            progress.close(active, behind)
            is_chosen &= ~behind[row, position]
        at = (active[row[is_chosen]], position[is_chosen])
        progress.tokens[at] = draws.token[is_chosen]
        progress.is_closed[at] = True
        progress.reveal_step[at] = turn.step[row[is_chosen]]
        progress.logprob[at] = draws.logprob[is_chosen]
        progress.entropy[at] = draws.entropy[is_chosen]
        self._advance(active, turn, is_over=chosen.sum(-1) == turn.masked)

        stays = ~progress.is_closed[active].all(-1)
        if stays.all():
            return batch, []
        goes_on = stays.tolist()
        finished = [row for row, stay in zip(self.in_flight, goes_on, strict=True) if not stay]
        self.in_flight = [row for row, stay in zip(self.in_flight, goes_on, strict=True) if stay]
        attention = None if batch.attention is None else batch.attention[stays]
        return _Batch(active[stays], batch.prompt_ids[stays], attention), finished

    def _forward(self, batch: "_Batch", turn: Turn, cache: BlockCache | None) -> tuple[Tensor, Tensor]:
        """Hidden states at the turn's positions, (1 or 2 with guidance, U, S, d), and which of U each row has (A,)."""
        active, start = batch.active, batch.prompt_ids.shape[-1]
        ids = torch.cat([batch.prompt_ids, self.progress.tokens[active]], dim=-1)
        scored = turn.position + start
        if cache is None:
            # rows of one prompt that have revealed the same tokens so far are one state
            tokens, prompt = self.progress.tokens[active], self.progress.prompt[active].unsqueeze(-1)
            states = torch.cat([tokens, turn.position, prompt], dim=-1)
            first, which = distinct_rows(states)

            def run(chosen: Tensor) -> Tensor:
                parts = [run_part(part) for part in chosen.split(self._rows_at_once(ids))]
                hidden = parts[0] if len(parts) == 1 else torch.cat(parts, dim=1)
                self.row_forwards += hidden.shape[0] * hidden.shape[1]
                return hidden

            def run_part(chosen: Tensor) -> Tensor:
                visible = None if batch.attention is None else batch.attention[chosen]
                masked_prompt = start if self.decoding.guidance else 0
                return _hidden(self.model, ids[chosen], visible, scored[chosen], masked_prompt)

            # what a block order looks at in a state is too much to remember
            if self.has_groups and turn.position.shape[1] == 1:
                hidden = self.memory.look_up(states[first], lambda unknown: run(first[unknown]))
            else:
                hidden = run(first)
        else:
            which = torch.arange(len(active), device=self.device)
            slot = cache.slots(self.in_flight)
            hidden = cache.hidden(ids, batch.attention, scored, slot, start).unsqueeze(0)
            self.row_forwards += len(active)
        return hidden, which

    def _rows_at_once(self, ids: Tensor) -> int:
        """Most rows of (A, T) in one forward pass."""
        if self.device.type not in FORWARD_CHUNK:
            return max(1, len(ids))
        numbers = ids.shape[1] * self.model.config.intermediate_size * (2 if self.decoding.guidance else 1)
        return max(1, FORWARD_CHUNK[self.device.type] // numbers)

    def _advance(self, active: Tensor, turn: Turn, is_over: Tensor) -> None:
        """Count the step; `is_over` (A,) where it completed the row's block."""
        progress, step = self.progress, turn.step + 1
        if self.schedule is not None:
            # steps that the schedule has left after the block is full
            left = (self.schedule.steps - 1 - turn.block_step).clamp(min=0)
            step = step + torch.where(is_over, self.schedule.counted(left), 0)
        progress.step[active] = step
        progress.block_step[active] = torch.where(is_over, 0, turn.block_step + 1)


class _Batch(NamedTuple):
    """The A rows in flight."""

    active: Tensor
    """(A,) their numbers."""
    prompt_ids: Tensor
    """(A, P') without common padding."""
    attention: Tensor | None
    """(A, P' + L) bool, false on padding; none = there is none."""


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

"""Block-wise caching: while a block is decoded, most positions keep the keys and values of the block's first step.

An approximation, in return for speed. A block's first step is a full pass and exact; in its later steps the kept keys
and values are those of a state in which the block's tokens were still masked, so log-probabilities differ from those
of an exact pass over the same state. `prefix` keeps what lies before the block, `dual` also what lies after it; with
a `horizon` positions further on are not even seen. Source: Fast-dLLM, and RLDF's sampler.

Every row has its own place in the cache, so rows in different blocks share a batch.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from unmask.decoding.settings import Decoding
from unmask.models import Cache, Denoiser


class BlockCache:
    """Forward passes with a cache, for rows that come and go.

    Args:
        capacity: most rows in flight at a time. Memory is theirs: keys and values of all prompt and response tokens.
    """

    def __init__(self, model: Denoiser, decoding: Decoding, capacity: int, device: torch.device) -> None:
        self.model, self.decoding, self.capacity = model, decoding, capacity
        self.cache = Cache(capacity)
        self.slot_of: dict[int, int] = {}
        self.filled = torch.full((capacity,), -1, device=device)
        """(slots,) the block for which a slot was last filled; −1 = not for this row."""

    def slots(self, rows: Sequence[int]) -> Tensor:
        """(A,) slots of the rows in flight; a new row gets a free one, and rows that are not named lose theirs."""
        self.slot_of = {row: self.slot_of[row] for row in rows if row in self.slot_of}
        free = iter(sorted(set(range(self.capacity)) - set(self.slot_of.values())))
        for row in rows:
            if row not in self.slot_of:
                self.slot_of[row] = next(free)
                self.filled[self.slot_of[row]] = -1
        return torch.tensor([self.slot_of[row] for row in rows], device=self.filled.device)

    def hidden(self, ids: Tensor, attention: Tensor | None, scored: Tensor, slot: Tensor, prompt_length: int) -> Tensor:
        """Hidden states (A, S, d) at `scored` (A, S): by a full pass in rows that enter a block, else by a cached one.

        Args:
            ids: (A, T); T has to be the same in all calls.
            attention: (A, T) bool, false on padding; `None` = none.
            slot: (A,) from `slots`.
            prompt_length: where responses begin in `ids`.
        """
        block = (scored[:, 0] - prompt_length) // self.decoding.block_length
        enters = self.filled[slot] != block
        self.filled[slot] = block
        parts = []
        for is_full, row in ((True, enters.nonzero().squeeze(-1)), (False, (~enters).nonzero().squeeze(-1))):
            if len(row) == 0:
                continue
            fed, visible = None, None if attention is None else attention[row]
            if not is_full:
                first = prompt_length + block[row] * self.decoding.block_length
                fed, within = self._window(scored[row], first, ids.shape[1])
                if within is not None:
                    visible = within if visible is None else within & visible
            kept = self.cache.rows(slot[row], fed)
            hidden = self.model(ids[row], visible, scored=scored[row], return_hidden=True, cache=kept).hidden
            parts.append((row, hidden))
        row, hidden = (torch.cat(part) for part in zip(*parts, strict=True))
        return hidden[row.argsort()]

    def _window(self, scored: Tensor, first: Tensor, length: int) -> tuple[Tensor, Tensor | None]:
        """The positions that a cached pass runs, and which it sees.

        Args:
            first: (A,) where each row's block begins in its T = `length` positions.

        Returns:
            fed (A, W), padded with each row's last; visible (A, T) bool, `None` = everything.
        """
        end = first + self.decoding.block_length
        until, visible = torch.full_like(end, length), None
        if self.decoding.horizon is not None:
            until = (end + self.decoding.horizon).clamp(max=length)
            visible = torch.arange(length, device=end.device) < until.unsqueeze(-1)
        if self.decoding.cache == "dual":
            until = end
        if self.model.is_shifted:
            # the block's first token is predicted by the one before it
            first = first - (scored == first.unsqueeze(-1)).any(-1).long()
        width = torch.arange(int((until - first).max()), device=end.device)
        return torch.minimum(first.unsqueeze(-1) + width, until.unsqueeze(-1) - 1), visible

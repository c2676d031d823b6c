"""Rows: which responses are asked for, and how far each of them is. No model here."""

from collections.abc import Callable
from dataclasses import dataclass, fields

import torch
from torch import Tensor

from unmask.decoding.order import behind_end
from unmask.decoding.rollout import Rollout


@dataclass(frozen=True)
class Rows:
    """R responses to sample."""

    prompt: Tensor
    """(R,) int64: which prompt of the batch each answers."""
    key: Tensor
    """(R,) int64: each one's randomness key."""
    group: Tensor
    """(R,) int64: group index."""
    given_ids: Tensor | None = None
    """(R, L) int64: tokens to keep."""
    is_given: Tensor | None = None
    """(R, L) bool: where tokens are kept; goes with `given_ids`, and nothing is given when they are left out."""


Follow = Callable[[Tensor, Rollout], Rows | None]
"""What to sample besides, now that some rows are finished: given their numbers (b,) int64, counted in the order in
which rows were asked for, and what came out of them. Called after every step that finishes any. New rows answer
prompts that earlier rows answer."""


@dataclass(frozen=True)
class Progress:
    """How far R rows are. The sampler writes into these tensors."""

    prompt_ids: Tensor
    prompt_mask: Tensor
    prompt: Tensor
    key: Tensor
    group: Tensor
    tokens: Tensor
    """(R, L): the mask token where nothing is revealed."""
    is_closed: Tensor
    """(R, L) bool: no longer to be sampled: given, revealed, or behind the end."""
    trainable: Tensor
    reveal_step: Tensor
    logprob: Tensor
    entropy: Tensor
    step: Tensor
    """(R,) steps made."""
    block_step: Tensor
    """(R,) steps made in the current block."""

    @staticmethod
    def start(
        prompt_ids: Tensor,
        prompt_mask: Tensor,
        rows: Rows,
        *,
        length: int,
        mask_token_id: int,
        end_token_id: int | None,
        dtype: torch.dtype,
    ) -> "Progress":
        """Rows before their first step, on the device of `prompt_ids` (R, P).

        Args:
            end_token_id: nothing is sampled behind this token; none = responses do not end early.
            dtype: of log-probabilities and entropies.
        """
        device, shape = prompt_ids.device, (len(prompt_ids), length)
        is_given = torch.zeros(shape, dtype=torch.bool, device=device)
        tokens = torch.full(shape, mask_token_id, device=device)
        if rows.given_ids is not None and rows.is_given is not None:
            is_given = rows.is_given.to(device)
            tokens = torch.where(is_given, rows.given_ids.to(device), tokens)
        progress = Progress(
            prompt_ids=prompt_ids,
            prompt_mask=prompt_mask,
            prompt=rows.prompt.to(device),
            key=rows.key.to(device),
            group=rows.group.to(device),
            tokens=tokens,
            is_closed=is_given.clone(),
            trainable=~is_given,
            reveal_step=torch.full(shape, -1, device=device),
            logprob=torch.zeros(shape, dtype=dtype, device=device),
            entropy=torch.zeros(shape, dtype=dtype, device=device),
            step=torch.zeros(shape[0], dtype=torch.int64, device=device),
            block_step=torch.zeros(shape[0], dtype=torch.int64, device=device),
        )
        if end_token_id is not None:
            progress.close(torch.arange(shape[0], device=device), behind_end(tokens, end_token_id))
        return progress

    @staticmethod
    def cat(parts: "list[Progress]") -> "Progress":
        """Stacked, rows in the given order."""
        return Progress(*(torch.cat([getattr(part, field.name) for part in parts]) for field in fields(Progress)))

    def close(self, rows: Tensor, behind: Tensor) -> None:
        """Nothing more is sampled in `rows` (A,) at the positions `behind` (A, L)."""
        row, position = (behind & ~self.is_closed[rows]).nonzero(as_tuple=True)
        at = (rows[row], position)
        self.is_closed[at] = True
        self.trainable[at] = False
        self.reveal_step[at] = behind.shape[-1]

    def rollout(self, end_token_id: int | None) -> Rollout:
        """What came out of the rows, all finished; costs are left to the caller."""
        tokens = self.tokens
        if end_token_id is not None:
            tokens = torch.where(self.reveal_step == tokens.shape[-1], end_token_id, tokens)
        return Rollout(
            prompt_ids=self.prompt_ids,
            prompt_mask=self.prompt_mask,
            response_ids=tokens,
            trainable=self.trainable,
            reveal_step=self.reveal_step,
            logprob=self.logprob,
            entropy=self.entropy,
            prompt=self.prompt,
            group=self.group,
            row_forwards=0,
        )

    def take(self, rows: Tensor) -> "Progress":
        """Copies of some rows (b,)."""
        return Progress(*(getattr(self, field.name)[rows] for field in fields(Progress)))

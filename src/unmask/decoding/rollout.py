"""Rollout: what was sampled, in which order, and how sure the policy was. Data only."""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

import torch
from torch import Tensor


@dataclass(frozen=True)
class Rollout:
    """B responses of length L to prompts padded on the left to P tokens."""

    prompt_ids: Tensor
    """(B, P) int64, left-padded."""
    prompt_mask: Tensor
    """(B, P) bool, true on real prompt tokens."""
    response_ids: Tensor
    """(B, L) int64."""
    trainable: Tensor
    """(B, L) bool: sampled here by the policy; false for copied prefixes and behind the end (`stop_at_end`)."""
    reveal_step: Tensor
    """(B, L) int64: the decoding step that revealed the position, counted per row from 0, less than L; −1 =
    given. A schedule's steps that reveal nothing are counted, unless there are more steps than tokens. L = never
    revealed, behind the end: every state that the model saw shows the mask token there, the response an end token."""
    logprob: Tensor
    """(B, L) log-probability of the token in its reveal state, at the sampling temperature; 0 where not sampled."""
    entropy: Tensor
    """(B, L) entropy in nats of the distribution the token was drawn from; 0 where not sampled."""
    prompt: Tensor
    """(B,) int64: which prompt of the batch the row answers."""
    group: Tensor
    """(B,) int64: rows that started from the same state share a group, 0..G−1."""
    row_forwards: int
    """Rows that went through the model, over all forward passes: the cost of sampling. Rows in one state count once."""
    places: int = 0
    """Places for rows in the forward passes made while some row had not started yet."""
    places_filled: int = 0
    """Those of them that a row in flight had; the batches were full when this is `places`."""

    @property
    def tokens_generated(self) -> int:
        return int(self.trainable.sum())

    @property
    def tokens_saved(self) -> int:
        """Positions that were never sampled because they lie behind the end."""
        return int((self.reveal_step == self.reveal_step.shape[1]).sum())

    @property
    def rows_needed(self) -> int:
        """States in which something was sampled, each row's counted on their own: what sampling costs when nothing
        is shared and nothing is run in vain."""
        row, position = self.trainable.nonzero(as_tuple=True)
        return len((row * self.reveal_step.shape[1] + self.reveal_step[row, position]).unique())

    def take(self, rows: Tensor) -> "Rollout":
        """Some rows (b,), in the order given. The costs stay those of the whole rollout."""
        return replace(self, **{name: getattr(self, name)[rows] for name in _ROW_FIELDS})

    @staticmethod
    def cat(parts: Sequence["Rollout"]) -> "Rollout":
        """Stack rollouts with equal P and L, rows in the given order; costs add up."""
        stacked = {name: torch.cat([getattr(part, name) for part in parts]) for name in _ROW_FIELDS}
        return Rollout(
            **stacked,
            row_forwards=sum(part.row_forwards for part in parts),
            places=sum(part.places for part in parts),
            places_filled=sum(part.places_filled for part in parts),
        )


_ROW_FIELDS = [field.name for field in fields(Rollout) if field.type is Tensor]

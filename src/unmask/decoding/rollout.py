"""Rollout: what was sampled, in which order, and how sure the policy was. Data only."""

from collections.abc import Sequence
from dataclasses import dataclass, fields

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
    """(B, L) bool: sampled here by the policy; false for copied prefixes."""
    reveal_step: Tensor
    """(B, L) int64: the decoding step that revealed the position, counted per row from 0, less than L; −1 =
    given. A schedule's steps that reveal nothing are counted, unless there are more steps than tokens."""
    logprob: Tensor
    """(B, L) log-probability of the token in its reveal state, at the sampling temperature; 0 where given."""
    entropy: Tensor
    """(B, L) entropy in nats of the distribution the token was drawn from; 0 where given."""
    prompt: Tensor
    """(B,) int64: which prompt of the batch the row answers."""
    group: Tensor
    """(B,) int64: rows that started from the same state share a group, 0..G−1."""
    row_forwards: int
    """Rows that went through the model, over all forward passes: the cost of sampling. Rows in one state count once."""

    @property
    def tokens_generated(self) -> int:
        return int(self.trainable.sum())

    @staticmethod
    def cat(parts: Sequence["Rollout"]) -> "Rollout":
        """Stack rollouts with equal P and L, rows in the given order."""
        names = [f.name for f in fields(Rollout) if f.name != "row_forwards"]
        stacked = {name: torch.cat([getattr(part, name) for part in parts]) for name in names}
        return Rollout(**stacked, row_forwards=sum(part.row_forwards for part in parts))

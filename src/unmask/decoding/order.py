"""Which positions a decoding step looks at, and which of them it reveals.

A response of length L is filled in blocks from left to right; inside the current block an order picks positions:

- `left_to_right`  the next position, whatever the model thinks: the exact sequential policy of JustGRPO and ForkGRPO.
- `static`         the most confident positions, as many as the step's share of the block (LLaDA's low-confidence
  remasking).
- `dynamic`        every position at least `threshold` confident, or the single most confident one if none is.

Everything here works on rows that are at different stages: nothing but the row's own `revealed` and `step` counts.
"""

from typing import Literal, Self

import torch
from pydantic import BaseModel, ConfigDict, Field, model_validator
from torch import Tensor

OrderName = Literal["left_to_right", "static", "dynamic"]


class Decoding(BaseModel):
    """How responses are sampled. METHODS: explore; "Sequential decoding", RLDF "explore"."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    order: OrderName = "left_to_right"
    """Which positions a step reveals."""
    length: int = Field(256, ge=1)
    """Response length L in tokens; every response has exactly this many positions."""
    steps: int | None = Field(None, ge=1)
    """Decoding steps of a whole response (static order only); none means one token a step."""
    block: int | None = Field(None, ge=1)
    """Tokens in a block (static and dynamic order); none means one block over the whole response."""
    threshold: float = Field(0.9, gt=0, le=1)
    """Confidence from which the dynamic order reveals a position, a probability."""
    temperature: float = Field(1.0, ge=0)
    """Sampling temperature; 0 takes the most likely token."""
    batch_tokens: int = Field(65_536, ge=1)
    """Most tokens (rows × (prompt + response)) in one forward pass; a limit of memory, not of results."""

    @model_validator(mode="after")
    def _agree(self) -> Self:
        if self.order == "left_to_right":
            if self.steps not in (None, self.length):
                raise ValueError(f"steps={self.steps}: left_to_right reveals one token a step; leave steps out")
            if self.block not in (None, 1, self.length):
                raise ValueError(f"block={self.block}: left_to_right knows no blocks; leave block out")
            return self
        block = self.block or self.length
        if self.length % block:
            raise ValueError(f"block={block} does not divide length={self.length}")
        if self.order == "dynamic" and self.steps is not None:
            raise ValueError(f"steps={self.steps}: the dynamic order decides its steps by threshold; leave steps out")
        blocks = self.length // block
        if self.steps is not None and self.steps % blocks:
            raise ValueError(f"steps={self.steps} does not divide over the {blocks} blocks of {block} tokens")
        return self

    @property
    def block_length(self) -> int:
        return 1 if self.order == "left_to_right" else self.block or self.length

    @property
    def steps_per_block(self) -> int:
        return (self.steps or self.length) // (self.length // self.block_length)


def candidates(revealed: Tensor, block: int) -> tuple[Tensor, Tensor]:
    """The masked positions of each row's current block: the only ones a step scores.

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
    is_masked = ~revealed.gather(-1, inside)
    most = int(is_masked.sum(-1).max())
    is_masked, chosen = is_masked.sort(dim=-1, descending=True, stable=True)
    position = inside.gather(-1, chosen)[:, :most]
    is_masked = is_masked[:, :most]
    return torch.where(is_masked, position, position[:, :1]), is_masked


def choose(decoding: Decoding, confidence: Tensor, is_masked: Tensor, share: Tensor) -> Tensor:
    """Which candidates a step reveals.

    Args:
        confidence: (A, S) probability of each candidate's token.
        is_masked: (A, S) false on padding.
        share: (A,) how many a static step reveals in this row.

    Returns:
        (A, S) bool, at least one true in each row.
    """
    if confidence.shape[-1] == 1:
        return is_masked
    confidence = confidence.masked_fill(~is_masked, -1.0)
    rank = confidence.argsort(dim=-1, descending=True, stable=True).argsort(-1)
    if decoding.order == "static":
        return (rank < share.unsqueeze(-1)) & is_masked
    return ((confidence >= decoding.threshold) | (rank == 0)) & is_masked


def static_share(decoding: Decoding, block_masked: Tensor, block_step: Tensor) -> Tensor:
    """Tokens the static order reveals at a block's step: masked // steps, the first remainder steps one more.

    Args:
        block_masked: (A,) masked positions when the row entered its block.
        block_step: (A,) steps the row has done in this block.
    """
    steps = decoding.steps_per_block
    share = block_masked // steps + (block_step < block_masked % steps).long()
    return share.clamp(min=1)

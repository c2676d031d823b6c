"""What an algorithm is to the trainer: it collects experience and says which states to replay with what credit."""

from dataclasses import dataclass, field
from typing import Protocol

import torch
from torch import Tensor

from unmask.decoding import Rollout
from unmask.replay import States
from unmask.tasks import Example


@dataclass(frozen=True)
class Prompts:
    """The n prompts of one update (of this worker's share of it)."""

    ids: Tensor
    """(n, P) int64, left-padded."""
    mask: Tensor
    """(n, P) bool, true on real tokens."""
    key: Tensor
    """(n,) int64 randomness key of each prompt in this update; every draw made for a prompt derives from it."""
    examples: tuple[Example, ...]
    """What the task judges answers by."""

    def __len__(self) -> int:
        return self.ids.shape[0]


@dataclass(frozen=True)
class Experience:
    """Judged responses and the credit of their tokens."""

    rollout: Rollout
    reward: Tensor
    """(B,) terminal rewards."""
    advantage: Tensor
    """(B, L) what people look at: the tokens' advantage summed over the terms of the loss, before normalisation."""
    credit: Tensor
    """(B, L, C) what replay uses: each term's advantage times its normaliser; zero for tokens not trained on.
    With it the loss is Σ_c Σ_i ℓ(ρ_i, credit_ic), a mean over the prompts of all workers."""
    metrics: dict[str, float] = field(default_factory=dict)
    """The algorithm's own numbers to log."""


class Actor(Protocol):
    """What an algorithm may do with the current policy while it collects experience."""

    def sample(
        self,
        prompts: Prompts,
        prompt: Tensor,
        key: Tensor,
        group: Tensor,
        given_ids: Tensor | None = None,
        is_given: Tensor | None = None,
    ) -> Rollout:
        """Responses for rows that answer prompt `prompt` (B,), with randomness keys (B,) and group indices (B,)."""
        ...

    def reward(self, prompts: Prompts, rollout: Rollout) -> Tensor:
        """(B,) the task's verdict on each row."""
        ...

    @property
    def reward_range(self) -> float:
        """Largest minus smallest reward of the task."""
        ...

    def total(self, value: float) -> float:
        """Sum of a number over all workers."""
        ...


class Algorithm(Protocol):
    """Explore and credit, then replay. The loss itself is the recipe's objective."""

    def collect(self, prompts: Prompts, actor: Actor) -> Experience:
        """Sample, judge and credit the responses of one update."""
        ...

    def replay(self, experience: Experience) -> States:
        """The states to look at again."""
        ...


def check_left_to_right(algorithm: str, order: str, temperature: float) -> None:
    """For algorithms whose likelihood is exact only when tokens are sampled one by one.

    Raises:
        ValueError: naming the decoding key at fault.
    """
    if order != "left_to_right":
        raise ValueError(f"decoding.order={order}: {algorithm} samples left to right; set decoding.order=left_to_right")
    if temperature == 0:
        raise ValueError(f"decoding.temperature=0: {algorithm} needs different responses; use a temperature above 0")


def spread(value: Tensor, rollout: Rollout) -> Tensor:
    """(B,) per response → (B, L) on its trainable tokens, exactly zero elsewhere."""
    return torch.where(rollout.trainable, value.unsqueeze(-1), torch.zeros_like(value).unsqueeze(-1))

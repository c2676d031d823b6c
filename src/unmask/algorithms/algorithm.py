"""What an algorithm is to the trainer: it collects experience and says which states to replay under which objective."""

from dataclasses import dataclass, field
from typing import Protocol

import torch
from torch import Tensor

from unmask.algorithms.work import Outcome, Replayed, Window
from unmask.decoding import Decoding, Follow, Rollout
from unmask.objectives import Objective, ObjectiveSettings
from unmask.randomness import derive
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
    """What the algorithm's own replay uses: advantage times normaliser, (B, L, C) for C terms or (B,) for a response;
    zero for what is not trained on."""
    key: Tensor
    """(B,) int64 the key each response was drawn with; masks drawn for it derive from it."""
    metrics: dict[str, float] = field(default_factory=dict)
    """The algorithm's own numbers to log."""


@dataclass(frozen=True)
class Plan:
    """What one update replays, and how it becomes a loss over the prompts of all workers."""

    states: States
    objective: Objective


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
        follow: Follow | None = None,
    ) -> Rollout:
        """Responses for rows that answer prompt `prompt` (B,), with randomness keys (B,) and group indices (B,), and
        for those that `follow` asks for in the course."""
        ...

    def reward(self, prompts: Prompts, rollout: Rollout) -> Tensor:
        """(B,) the task's verdict on each row."""
        ...

    @property
    def reward_range(self) -> float:
        """Largest minus smallest reward of the task."""
        ...

    @property
    def end_token_id(self) -> int:
        """The id that ends a response."""
        ...

    def total(self, value: float) -> float:
        """Sum of a number over all workers, which must all ask."""
        ...

    def gather(self, rows: Tensor) -> tuple[Tensor, int]:
        """All workers' rows (n, C), one worker's after the other's, and where the own ones begin; all must ask."""
        ...


class Algorithm(Protocol):
    """Explore and credit, then replay under an objective."""

    def collect(self, prompts: Prompts, actor: Actor) -> Experience:
        """Sample, judge and credit the responses of one rollout batch."""
        ...

    def replay(self, experience: Experience, actor: Actor, updates: int) -> list[Plan]:
        """What each of `updates` optimizer updates on this experience replays; one plan may serve several."""
        ...

    @property
    def windows(self) -> tuple[Window, ...]:
        """Reveal steps, first and last, between which each further group of responses begins; () = roots alone."""
        ...

    def replayed(self, decoding: Decoding, outcome: Outcome) -> Replayed:
        """How much each update replays; at most, where random draws or end tokens can make it less. Where states are
        drawn the tokens are those of states that no two responses share."""
        ...


def sample_group(prompts: Prompts, actor: Actor, size: int) -> tuple[Rollout, Tensor]:
    """`size` independent responses to each prompt, one group a prompt. Returns the rollout and its keys (B,)."""
    prompt = torch.arange(len(prompts)).repeat_interleave(size)  # (B,)
    member = torch.arange(size).repeat(len(prompts))
    key = derive(prompts.key[prompt], 0, member)
    return actor.sample(prompts, prompt, key, group=prompt), key


def until_end(rollout: Rollout, end_token_id: int) -> Tensor:
    """(B, L) bool: the sampled tokens of each response up to its first end token, which is included."""
    ended = (rollout.response_ids == end_token_id).cumsum(-1)
    after = (ended > 1) | ((ended == 1) & (rollout.response_ids != end_token_id))
    return rollout.trainable & ~after


def check_left_to_right(algorithm: str, decoding: Decoding) -> None:
    """For algorithms whose likelihood is exact only when tokens are sampled one by one, from all of them.

    Raises:
        ValueError: naming the decoding key at fault.
    """
    if decoding.order != "left_to_right":
        raise ValueError(
            f"decoding.order={decoding.order}: {algorithm} samples left to right; set decoding.order=left_to_right"
        )
    check_all_tokens(algorithm, decoding)
    check_varied(algorithm, decoding.temperature)


def check_all_tokens(algorithm: str, decoding: Decoding) -> None:
    """For algorithms that replay the very distribution that tokens were drawn from.

    Raises:
        ValueError: tokens would be drawn from the most likely ones alone.
    """
    for key in ("top_k", "top_p"):
        if getattr(decoding, key) is not None:
            raise ValueError(
                f"decoding.{key}={getattr(decoding, key)}: {algorithm}'s likelihood is that of all tokens; leave it out"
            )


def check_varied(algorithm: str, temperature: float) -> None:
    """For algorithms that compare responses to one prompt.

    Raises:
        ValueError: all responses would be the same.
    """
    if temperature == 0:
        raise ValueError(f"decoding.temperature=0: {algorithm} needs different responses; use a temperature above 0")


def check_no_kl(algorithm: str, objective: ObjectiveSettings) -> None:
    """For algorithms without a divergence in their objective.

    Raises:
        ValueError: naming the key.
    """
    if objective.kl_weight:
        raise ValueError(
            f"objective.kl_weight={objective.kl_weight:g}: {algorithm} has no KL term; leave objective.kl_weight out"
        )


def check_no_clip(algorithm: str, objective: ObjectiveSettings) -> None:
    """For algorithms without a probability ratio in their objective.

    Raises:
        ValueError: naming the key.
    """
    for key in ("clip_low", "clip_high"):
        value = getattr(objective, key)
        if value != ObjectiveSettings.model_fields[key].default:
            raise ValueError(f"objective.{key}={value:g}: {algorithm} has no ratio to clip; leave objective.{key} out")


def check_no_mismatch(algorithm: str, objective: ObjectiveSettings) -> None:
    """For algorithms that score tokens in states which the rollout never saw.

    Raises:
        ValueError: naming the key.
    """
    if objective.mismatch != "none":
        raise ValueError(
            f"objective.mismatch={objective.mismatch}: {algorithm} scores tokens in states of its own, where sampling "
            "left no probability to compare with; set objective.mismatch=none"
        )


def spread(value: Tensor, rollout: Rollout) -> Tensor:
    """(B,) per response → (B, L) on its trainable tokens, exactly zero elsewhere."""
    return torch.where(rollout.trainable, value.unsqueeze(-1), torch.zeros_like(value).unsqueeze(-1))

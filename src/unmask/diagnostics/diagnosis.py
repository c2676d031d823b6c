"""Sample fork trees from a model on a task, and take every measure of them."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from unmask.algorithms import ForkGRPO, ForkGRPOSettings, Prompts
from unmask.decoding import Decoding, Rollout
from unmask.diagnostics.mismatch import Mismatch, mismatch
from unmask.diagnostics.monte_carlo import Stability, Theorem, stability, theorem
from unmask.diagnostics.tokens import TokenAnalysis, analyse
from unmask.diagnostics.trees import ForkTrees
from unmask.errors import UnmaskError
from unmask.models import Denoiser
from unmask.objectives import ObjectiveSettings
from unmask.randomness import derive, name_seed, stream
from unmask.tasks import Example, Task
from unmask.tasks.rendering import prompt_batch
from unmask.training.distributed import World
from unmask.training.trainer import PolicyActor

CONTINUATIONS = 32
"""Of every held-out state; the paper's high-sample reference."""
STABILITY_SIZES, STABILITY_REPEATS = (2, 4, 8, 16), 20
THEOREM_SIZES, THEOREM_REPEATS = (2, 4, 8, 16, 32, 64, 128), 200
ROWS = 256
"""Root responses sampled at a time, about; a matter of memory and of how often progress is told."""


@dataclass(frozen=True)
class Diagnosis:
    """All measures, and what they were taken on."""

    decoding: Decoding
    settings: ForkGRPOSettings
    """Group size and windows of the fork trees."""
    prompts: int
    held_out: int
    """Further prompts, whose states got `CONTINUATIONS` continuations."""
    seed: int
    states: int
    """Held-out states, roots and forks."""
    accuracy: float
    """Share of root responses with full reward."""
    tokens_generated: int
    mismatch: Mismatch
    """By groups of the settings' size: what training sees, with its noise."""
    held_out_mismatch: Mismatch
    """By `CONTINUATIONS`, on the held-out prompts: with less noise."""
    stability: tuple[Stability, ...]
    theorem: Theorem
    tokens: TokenAnalysis
    """Of the root responses: forks lie where the model is unsure, so their continuations are no fair sample."""
    pieces: tuple[str, ...]
    """Text of the least sure tokens, in the order of `tokens.unsure`."""


def paper_windows(length: int) -> tuple[tuple[int, int], ...]:
    """The paper's windows for 256 tokens, scaled to `length`.

    Raises:
        UnmaskError: the response is too short for them.
    """
    if length < 8:
        raise UnmaskError(f"a response of {length} tokens is too short for the paper's windows; give --windows")
    return tuple((length * part // 8, length * (part + 1) // 8 - 1) for part in (1, 2, 3))


def check_sampling(decoding: Decoding, task: Task, examples: int) -> None:
    """What can be said before the length of a response is known.

    Args:
        examples: how many evaluation examples the diagnosis takes.

    Raises:
        UnmaskError: temperature 0, guidance, or a task with fewer examples.
    """
    if decoding.temperature == 0:
        raise UnmaskError("temperature=0: diagnosis compares different responses; use a temperature above 0")
    if decoding.guidance:
        raise UnmaskError(
            f"guidance={decoding.guidance:g}: diagnosed is what is trained, the model without guidance; leave it out"
        )
    found = len(task.evaluation())
    if found < examples:
        raise UnmaskError(
            f"prompts and held-out prompts need {examples} evaluation examples together, but the task has {found}; "
            "use fewer"
        )


def check(settings: ForkGRPOSettings, decoding: Decoding, task: Task, examples: int) -> None:
    """As `check_sampling`, and that the windows lie inside the response.

    Raises:
        UnmaskError: one line with what was given and what would be right.
    """
    check_sampling(decoding, task, examples)
    if settings.windows and settings.windows[-1][1] >= decoding.length:
        raise UnmaskError(
            f"windows end at step {settings.windows[-1][1]}, but a response of {decoding.length} tokens "
            f"has steps 0..{decoding.length - 1}"
        )


def diagnose(
    model: Denoiser,
    tokenizer: Any,
    task: Task,
    settings: ForkGRPOSettings,
    decoding: Decoding,
    *,
    prompts: int,
    held_out: int,
    seed: int,
    advance: Callable[[int], None] = lambda _: None,
) -> Diagnosis:
    """Diagnose a model on the first evaluation examples of a task.

    Args:
        settings: group size and windows.
        prompts: how many examples get fork trees with groups of that size.
        held_out: how many examples after those get trees with `CONTINUATIONS` in a group.
        seed: every draw derives from it and from the example's number.
        advance: told how many prompts were sampled since the last time.

    Raises:
        UnmaskError: as `check` does.
    """
    check(settings, decoding, task, prompts + held_out)
    data = task.evaluation()
    examples = [data[index] for index in range(prompts + held_out)]
    actor = PolicyActor(model, tokenizer, task, decoding, World(0, 1))
    key = derive(torch.tensor(name_seed(seed, "diagnosis")), torch.arange(len(examples)))

    def sample(numbers: range, size: int) -> tuple[ForkTrees, list[Rollout]]:
        forking = ForkGRPO(settings.model_copy(update={"group_size": size}), ObjectiveSettings())
        trees, rollouts = [], []
        for chosen in _parts(numbers, max(1, ROWS // size)):
            experience = forking.collect(_prompts(task, tokenizer, examples, key, chosen), actor)
            trees.append(ForkTrees.read(experience))
            rollouts.append(experience.rollout)
            advance(len(chosen))
        return ForkTrees.cat(trees), rollouts

    few, rollouts = sample(range(prompts), settings.group_size)
    many, more = sample(range(prompts, len(examples)), CONTINUATIONS)
    tokens = _root_tokens(rollouts)
    reward_range = task.reward_max - task.reward_min
    return Diagnosis(
        decoding=decoding,
        settings=settings,
        prompts=prompts,
        held_out=held_out,
        seed=seed,
        states=int(many.exists.sum()),
        accuracy=(few.reward[:, 0] >= task.reward_max).double().mean().item(),
        tokens_generated=sum(rollout.tokens_generated for rollout in rollouts + more),
        mismatch=mismatch(few, task.reward_max),
        held_out_mismatch=mismatch(many, task.reward_max),
        stability=stability(many, STABILITY_SIZES, STABILITY_REPEATS, stream(seed, "diagnosis", "stability")),
        theorem=theorem(many, THEOREM_SIZES, THEOREM_REPEATS, reward_range, stream(seed, "diagnosis", "theorem")),
        tokens=tokens,
        pieces=tuple(tokenizer.decode([found.token]) for found in tokens.unsure),
    )


def _parts(numbers: range, size: int) -> list[range]:
    return [numbers[start : start + size] for start in range(0, len(numbers), size)]


def _prompts(task: Task, tokenizer: Any, examples: list[Example], key: Tensor, chosen: range) -> Prompts:
    asked = [examples[index] for index in chosen]
    ids, mask = prompt_batch(task, asked, tokenizer)
    return Prompts(ids, mask, key[list(chosen)], tuple(asked))


def _root_tokens(rollouts: list[Rollout]) -> TokenAnalysis:
    columns = []
    for rollout in rollouts:
        is_root = rollout.trainable.all(-1)
        fields = (rollout.response_ids, rollout.logprob.exp(), rollout.entropy, rollout.reveal_step)
        columns.append([field[is_root].flatten().cpu() for field in fields])
    token, probability, entropy, step = (torch.cat(column) for column in zip(*columns, strict=True))
    return analyse(token, probability, entropy, step)

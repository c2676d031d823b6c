"""Accuracy of a model on a task's evaluation examples."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from unmask.decoding import Decoding, sample
from unmask.randomness import derive, name_seed
from unmask.tasks import Example, Task
from unmask.tasks.rendering import prompt_batch, response_text


@dataclass(frozen=True)
class Evaluation:
    """One response to each example, with its verdict."""

    examples: tuple[Example, ...]
    responses: tuple[str, ...]
    rewards: tuple[float, ...]
    accuracy: float
    """Share of responses with full reward (pass@1)."""
    row_forwards: int


def evaluate(
    model: nn.Module, tokenizer: Any, task: Task, decoding: Decoding, *, examples: int | None, seed: int
) -> Evaluation:
    """Sample one response to each of the first `examples` evaluation examples (all when None) and judge it.

    The draws depend on the seed and the example alone, so two models are compared on the same random numbers.
    """
    data = task.evaluation()
    chosen: Sequence[Example] = [data[index] for index in range(min(examples or len(data), len(data)))]
    ids, mask = prompt_batch(task, chosen, tokenizer)
    rows = torch.arange(len(chosen))
    key = derive(torch.tensor(name_seed(seed, "evaluation")), rows)
    rollout = sample(model, ids, mask, decoding, key, prompt=rows, group=rows)
    responses = response_text(tokenizer, rollout.response_ids)
    rewards = [task.reward(example, response) for example, response in zip(chosen, responses, strict=True)]
    solved = sum(reward >= task.reward_max for reward in rewards)
    return Evaluation(tuple(chosen), tuple(responses), tuple(rewards), solved / len(chosen), rollout.row_forwards)

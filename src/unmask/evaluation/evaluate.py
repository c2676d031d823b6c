"""Accuracy of a model on a task's evaluation examples."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

from unmask.decoding import Decoding, sample
from unmask.models import Denoiser
from unmask.randomness import derive, name_seed
from unmask.tasks import Example, Task, Verdict
from unmask.tasks.rendering import prompt_batch, response_text


@dataclass(frozen=True)
class Evaluation:
    """One response to each example, with its verdict."""

    examples: tuple[Example, ...]
    responses: tuple[str, ...]
    rewards: tuple[float, ...]
    solved: int
    """Responses with full reward."""
    row_forwards: int
    unsure: tuple[int, ...] = ()
    """Indices of responses that could not be judged surely; they count as not right."""
    conditions: dict[str, str] = field(default_factory=dict)
    """What the verdicts depend on besides the responses (`Task.conditions`)."""

    @property
    def accuracy(self) -> float:
        """Share of responses with full reward (pass@1)."""
        return self.solved / max(1, len(self.rewards))


def evaluate(
    model: Denoiser,
    tokenizer: Any,
    task: Task,
    decoding: Decoding,
    *,
    examples: int | None,
    seed: int,
    share: Callable[[int], range] = range,
) -> Evaluation:
    """Sample one response to each of the first `examples` evaluation examples (all when None) and judge it.

    The draws depend on the seed and the example alone, so two models are compared on the same random numbers.

    Args:
        share: from how many examples there are to the indices of those to do here; a worker's share of them.
    """
    data = task.evaluation()
    indices = share(min(examples or len(data), len(data)))
    chosen = [data[index] for index in indices]
    if not chosen:
        return Evaluation((), (), (), 0, 0, conditions=task.conditions)
    ids, mask = prompt_batch(task, chosen, tokenizer)
    rows = torch.arange(len(chosen))
    key = derive(torch.tensor(name_seed(seed, "evaluation")), torch.tensor(indices))
    rollout = sample(model, ids, mask, decoding, key, prompt=rows, group=rows)
    responses = response_text(tokenizer, rollout.response_ids)
    judgements = task.judge_all(chosen, responses)
    return Evaluation(
        tuple(chosen),
        tuple(responses),
        tuple(judgement.reward for judgement in judgements),
        sum(judgement.verdict is Verdict.RIGHT for judgement in judgements),
        rollout.row_forwards,
        tuple(index for index, judgement in enumerate(judgements) if judgement.verdict is Verdict.UNSURE),
        task.conditions,
    )

"""Accuracy of a model on a task's evaluation examples."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from unmask.decoding import Decoding, sample
from unmask.evaluation.responses import Judged, ResponseFile
from unmask.evaluation.statistics import pass_at_k, wilson
from unmask.models import Denoiser
from unmask.randomness import derive, name_seed
from unmask.tasks import Example, Task, Verdict, judge_safely
from unmask.tasks.rendering import left_pad, prompt_tokens, response_text

CHUNK_TOKENS = 16_384
"""Prompt and response tokens that are decoded before they are judged: enough to keep an accelerator busy, and minutes
of an 8B model's work, which is the most that an interruption loses. Of no influence on results."""


@dataclass(frozen=True)
class Evaluation:
    """`samples` responses to each example, with their verdicts; the responses to an example follow each other."""

    examples: tuple[Example, ...]
    responses: tuple[str, ...]
    rewards: tuple[float, ...]
    solved: int
    """Responses with full reward."""
    row_forwards: int
    """Of the responses that were decoded here, not read from a file."""
    unsure: tuple[int, ...] = ()
    """Indices of responses that could not be judged surely; they count as not right."""
    conditions: dict[str, str] = field(default_factory=dict)
    """What the verdicts depend on besides the responses (`Task.conditions`)."""
    samples: int = 1
    is_right: tuple[bool, ...] = ()
    """Whether each response has full reward."""

    @property
    def accuracy(self) -> float:
        """Share of responses with full reward (pass@1)."""
        return self.solved / max(1, len(self.rewards))

    @property
    def interval(self) -> tuple[float, float]:
        """95 % interval of the accuracy; over examples, which are independent."""
        return wilson(self.accuracy, len(self.examples))

    @property
    def pass_at(self) -> dict[int, float]:
        """k → unbiased pass@k, mean over examples, for k = 1, 2, 4, ... and `samples`."""
        n = self.samples
        right = [sum(self.is_right[start : start + n]) for start in range(0, len(self.is_right), n)]
        powers = [2**exponent for exponent in range(n.bit_length())]
        return {
            k: sum(pass_at_k(n, count, k) for count in right) / max(1, len(right)) for k in dict.fromkeys([*powers, n])
        }


def evaluate(
    model: Denoiser,
    tokenizer: Any,
    task: Task,
    decoding: Decoding,
    *,
    examples: int | None,
    seed: int,
    samples: int = 1,
    share: Callable[[int], range] = range,
    file: ResponseFile | None = None,
    listener: Callable[[Sequence[Judged]], None] = lambda judged: None,
) -> Evaluation:
    """Sample responses to each of the first `examples` evaluation examples (all when None) and judge them.

    A response's draws depend on the seed, the example and the response's number alone: two models are compared on the
    same random numbers, and more examples or samples add to what fewer give.

    Args:
        samples: responses to each example; the draws of the first are those of an evaluation with one.
        share: from how many examples there are to the indices of those to do here; a worker's share of them.
        file: where responses are kept as they are judged; those that are there are not decoded again.
        listener: told the responses that were found in the file, then each chunk that was judged.
    """
    data = task.evaluation()
    chosen = {index: data[index] for index in share(min(examples or len(data), len(data)))}
    wanted = [(index, number) for index in chosen for number in range(samples)]
    done: dict[tuple[int, int], Judged] = {}
    if file is not None:
        found = [file.find(index, number, chosen[index]) for index, number in wanted]
        done = {(one.index, one.sample): one for one in found if one is not None}
        listener([*done.values()])
    row_forwards = 0
    missing = [name for name in wanted if name not in done]
    prompts = {index: prompt_tokens(task, chosen[index], tokenizer) for index in {index for index, _ in missing}}
    for chunk in _chunks(missing, prompts, decoding.length):
        ids, mask = left_pad([prompts[index] for index, _ in chunk], tokenizer.pad_token_id or 0)
        prompt = torch.tensor([index for index, _ in chunk]).unique(return_inverse=True)[1]
        rollout = sample(model, ids, mask, decoding, _keys(seed, chunk), prompt=prompt, group=prompt)
        row_forwards += rollout.row_forwards
        asked = [chosen[index] for index, _ in chunk]
        responses = response_text(tokenizer, rollout.response_ids)
        judgements, _ = judge_safely(task, asked, responses)
        judged = [
            Judged(*name, response, judgement.reward, judgement.verdict)
            for name, response, judgement in zip(chunk, responses, judgements, strict=True)
        ]
        if file is not None:
            file.append(asked, judged, task.conditions)
        done |= zip(chunk, judged, strict=True)
        listener(judged)
    results = [done[name] for name in wanted]
    is_right = tuple(one.verdict is Verdict.RIGHT for one in results)
    return Evaluation(
        tuple(chosen.values()),
        tuple(one.response for one in results),
        tuple(one.reward for one in results),
        sum(is_right),
        row_forwards,
        tuple(row for row, one in enumerate(results) if one.verdict is Verdict.UNSURE),
        task.conditions,
        samples,
        is_right,
    )


def _chunks(
    names: Sequence[tuple[int, int]], prompts: Mapping[int, list[int]], length: int
) -> Iterator[Sequence[tuple[int, int]]]:
    """(example, number) pairs in runs of at most `CHUNK_TOKENS` tokens, prompts padded; at least one pair each."""
    longest = max(map(len, prompts.values()), default=0)
    size = max(1, CHUNK_TOKENS // (longest + length))
    for start in range(0, len(names), size):
        yield names[start : start + size]


def _keys(seed: int, names: Sequence[tuple[int, int]]) -> Tensor:
    """(B,) the randomness key of each (example, number) pair."""
    seeds = {
        number: name_seed(seed, "evaluation", *([number] if number else []))
        for number in {number for _, number in names}
    }
    return derive(torch.tensor([seeds[number] for _, number in names]), torch.tensor([index for index, _ in names]))

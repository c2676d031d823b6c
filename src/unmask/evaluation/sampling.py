"""Responses to examples, sampled and judged: the one way from a model to verdicts, whatever they are for."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from unmask.decoding import Decoding, sample
from unmask.errors import UnmaskError
from unmask.evaluation.responses import Judged, ResponseFile
from unmask.models import Denoiser
from unmask.models.files import one_line
from unmask.randomness import derive, name_seed
from unmask.tasks import Example, Task, judge_safely
from unmask.tasks.rendering import left_pad, prompt_tokens, response_text

CHUNK_TOKENS = 16_384
"""Prompt and response tokens that are decoded before they are judged: enough to keep an accelerator busy, and minutes
of an 8B model's work, which is the most that an interruption loses. Of no influence on results."""


class Watcher(Protocol):
    """Is told how far the sampling is."""

    def begin(self, title: str, responses: int) -> None:
        """Something starts that asks for as many responses."""

    def advance(self, judged: Sequence[Judged]) -> None:
        """Some of them are there."""


class Answers(NamedTuple):
    """What a model said."""

    judged: list[Judged]
    """The responses to an example follow each other, in the order of the examples."""
    row_forwards: int
    """Of the responses that were decoded here, not read from a file."""
    failures: list[str]
    """What the task raised where it could not judge one of them, in one line each."""


def sample_and_judge(
    model: Denoiser,
    tokenizer: Any,
    task: Task,
    examples: Mapping[int, Example],
    decoding: Decoding,
    *,
    purpose: str,
    seed: int,
    samples: int = 1,
    file: ResponseFile | None = None,
    listener: Callable[[Sequence[Judged]], None] = lambda judged: None,
) -> Answers:
    """Sample responses to each example and judge them.

    A response's draws depend on the seed, the purpose, the example's number and the response's alone: two models are
    compared on the same random numbers, and more examples or samples add to what fewer give.

    Args:
        examples: number → example.
        purpose: names the draws, e.g. `evaluation`.
        samples: responses to each example; the draws of the first are those of a call with one.
        file: where responses are kept as they are judged; those that are there are not decoded again.
        listener: told the responses that were found in the file, then each chunk that was judged.

    Raises:
        UnmaskError: the file cannot be written, or holds responses to other examples.
    """
    wanted = [(index, number) for index in examples for number in range(samples)]
    done: dict[tuple[int, int], Judged] = {}
    if file is not None:
        found = [file.find(index, number, examples[index]) for index, number in wanted]
        done = {(one.index, one.sample): one for one in found if one is not None}
        listener([*done.values()])
    row_forwards, failures = 0, list[str]()
    missing = [name for name in wanted if name not in done]
    prompts = {index: prompt_tokens(task, examples[index], tokenizer) for index in {index for index, _ in missing}}
    for chunk in _chunks(missing, prompts, decoding.length):
        ids, mask = left_pad([prompts[index] for index, _ in chunk], tokenizer.pad_token_id or 0)
        prompt = torch.tensor([index for index, _ in chunk]).unique(return_inverse=True)[1]
        rollout = sample(model, ids, mask, decoding, _keys(seed, purpose, chunk), prompt=prompt, group=prompt)
        row_forwards += rollout.row_forwards
        asked = [examples[index] for index, _ in chunk]
        responses = response_text(tokenizer, rollout.response_ids)
        judgements, errors = judge_safely(task, asked, responses)
        failures += [f"{type(error).__name__}: {one_line(error)}" for error in errors.values()]
        judged = [
            Judged(*name, response, judgement.reward, judgement.verdict)
            for name, response, judgement in zip(chunk, responses, judgements, strict=True)
        ]
        if file is not None:
            file.append(asked, judged, task.conditions)
        done |= zip(chunk, judged, strict=True)
        listener(judged)
    return Answers([done[name] for name in wanted], row_forwards, failures)


def check_samples(samples: int, decoding: Decoding, setting: str = "") -> None:
    """That several responses to an example can differ.

    Args:
        setting: what the decoding is called, where there are several.

    Raises:
        UnmaskError: they would all be the same.
    """
    if samples > 1 and decoding.temperature == 0 and decoding.order != "random":
        where = f" ({setting})" if setting else ""
        raise UnmaskError(
            f"--samples {samples}: temperature 0 gives the same response every time{where}; "
            "leave --samples out or set --temperature above 0"
        )


def _chunks(
    names: Sequence[tuple[int, int]], prompts: Mapping[int, list[int]], length: int
) -> Iterator[Sequence[tuple[int, int]]]:
    """(example, number) pairs in runs of at most `CHUNK_TOKENS` tokens, prompts padded; at least one pair each."""
    longest = max(map(len, prompts.values()), default=0)
    size = max(1, CHUNK_TOKENS // (longest + length))
    for start in range(0, len(names), size):
        yield names[start : start + size]


def _keys(seed: int, purpose: str, names: Sequence[tuple[int, int]]) -> Tensor:
    """(B,) the randomness key of each (example, number) pair."""
    seeds = {
        number: name_seed(seed, purpose, *([number] if number else [])) for number in {number for _, number in names}
    }
    return derive(torch.tensor([seeds[number] for _, number in names]), torch.tensor([index for index, _ in names]))

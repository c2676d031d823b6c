"""A training set without what a model cannot learn from: `unmask filter`.

An example is kept when prompt and response fit into a length and at least one of several sampled responses is right.
What is written are the task's own fields, one example a line, which the same task reads again as its training set.
"""

import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from unmask.decoding import Decoding
from unmask.errors import UnmaskError
from unmask.evaluation.grid import fingerprint
from unmask.evaluation.responses import ResponseFile
from unmask.evaluation.sampling import Watcher, check_samples, sample_and_judge
from unmask.models import load, load_tokenizer
from unmask.models.loading import find
from unmask.tasks import TASKS, Example, Task, Verdict, build_task
from unmask.tasks.rendering import prompt_tokens
from unmask.writing import replace_text


@dataclass(frozen=True)
class Filtered:
    """What became of a training set."""

    file: Path
    """The examples that are kept."""
    responses: Path
    """All responses with their verdicts."""
    rows: int
    """Examples that were read."""
    too_long: int
    """Of these, those that do not fit, which nobody answered."""
    samples: int
    """Responses to each of the others."""
    right: tuple[int, ...]
    """How many of them are right, for each of the others."""
    kept: int
    """Examples that were written."""

    @property
    def never_right(self) -> int:
        """Examples without a right response."""
        return self.right.count(0)

    @property
    def too_easy(self) -> int:
        """Examples with too large a share of right responses."""
        return self.rows - self.too_long - self.never_right - self.kept

    @property
    def solve_rate(self) -> float:
        """Share of right responses."""
        return sum(self.right) / (self.samples * len(self.right))

    @property
    def spread(self) -> dict[str, int]:
        """Share of right responses to an example → how many examples have it."""
        counts = {"never": self.never_right, "to 1/4": 0, "to 1/2": 0, "to 3/4": 0, "below 1": 0}
        counts["always"] = self.right.count(self.samples)
        for right in self.right:
            if 0 < right < self.samples:
                counts[("to 1/4", "to 1/2", "to 3/4", "below 1")[(4 * right - 1) // self.samples]] += 1
        return counts


def filter_examples(
    model: str,
    task_name: str,
    decoding: Callable[[Task, bool], Decoding],
    *,
    data: str | None,
    split: str | None,
    examples: int | None,
    samples: int,
    at_most: float,
    max_tokens: int | None,
    seed: int,
    output: Path,
    watcher: Watcher,
) -> Filtered:
    """Answer a task's training examples, and write those that are worth training on. Responses stand beside the file.

    Args:
        decoding: from the task, and whether the model has a chat template; raises an UnmaskError for bad options.
        data: training set, a file or hub name; none takes the task's own.
        split: of a hub data set; none takes the task's own.
        examples: how many of the training examples; none takes all.
        samples: responses to each example.
        at_most: largest share of right responses of an example that is kept, in (0, 1].
        max_tokens: most tokens of prompt and response together; none sets no limit.
        output: a `.jsonl` file; what is there already must have been written by this function.

    Raises:
        UnmaskError: bad input, before anything is sampled; or no example is left, and no file is written.
    """
    task, settings = _training_task(task_name, data, split)
    check_samples(samples, decoding(task, False))
    if at_most < 1 / samples:
        raise UnmaskError(f"--at-most {at_most:g}: one right response of {samples} is {1 / samples:g}; use no less")
    responses = output.with_name(f"{output.stem}.responses.jsonl")
    _check_output(output, responses, settings.train)
    if settings.train is None and examples is None:
        raise UnmaskError(f"task {task_name} makes {len(task.train()):,} examples; say with --examples how many")
    data_set = task.train()  # may be made on demand, and knows no slices then
    chosen = [data_set[index] for index in range(min(examples or len(data_set), len(data_set)))]
    lines = [_line(number, example) for number, example in enumerate(chosen, start=1)]
    folder = find(model)
    tokenizer = load_tokenizer(folder, model)
    has_template = bool(tokenizer.chat_template)
    how = decoding(task, has_template)
    file = ResponseFile(
        responses,
        {
            "model": {"name": model, "weights": fingerprint(folder)},
            "task": settings.model_dump(exclude={"evaluation", "evaluation_split", "evaluation_size", "instruction"}),
            "instruction": task.instruction if has_template else None,
            "seed": seed,
            "decoding": how.model_dump(exclude={"batch_tokens"}),  # of no influence on results
        },
    )
    short = _short_enough(task, chosen, tokenizer, how.length, max_tokens)
    denoiser, tokenizer = load(model)
    watcher.begin(f"{model} on {task_name}, {how.length} tokens", len(short) * samples)
    judged = sample_and_judge(
        denoiser,
        tokenizer,
        task,
        short,
        how,
        purpose="filter",
        seed=seed,
        samples=samples,
        file=file,
        listener=watcher.advance,
    ).judged
    is_right = [one.verdict is Verdict.RIGHT for one in judged]
    right = {index: sum(is_right[row * samples : (row + 1) * samples]) for row, index in enumerate(short)}
    kept = [index for index, count in right.items() if 0 < count / samples <= at_most]
    result = Filtered(output, responses, len(chosen), len(chosen) - len(short), samples, (*right.values(),), len(kept))
    if not kept:
        raise UnmaskError(
            f"{output}: not written, no example is left: of {result.rows}, {result.too_long} are too long, "
            f"{result.never_right} never right, {result.too_easy} right too often"
        )
    try:
        replace_text(output, "".join(lines[index] for index in kept))
    except OSError as error:
        raise UnmaskError(f"{output}: cannot be written: {error.strerror}") from error
    return result


def _training_task(name: str, data: str | None, split: str | None) -> tuple[Task, Any]:
    """A task on a training set of the user's choice, and its settings.

    Raises:
        UnmaskError: there is no such task, or it reads no training examples.
    """
    build_task(name)  # knows the nearest to a misspelt one
    settings: Any = TASKS.get(name)
    readers = [reader for reader, each in TASKS.items() if "train" in vars(each())]
    if name not in readers:
        raise UnmaskError(f"task {name}: reads no training examples from a file; those that do: {', '.join(readers)}")
    given = {key: value for key, value in [("train", data), ("train_split", split)] if value is not None}
    chosen = settings.model_validate(given)
    return chosen.build(), chosen


def _check_output(output: Path, responses: Path, data: str | None) -> None:
    if output.suffix != ".jsonl" or output.is_dir() or not output.absolute().parent.is_dir():
        raise UnmaskError(f"--output {output}: name a file in a folder that exists, FILE.jsonl")
    if not os.access(output.absolute().parent, os.W_OK):
        raise UnmaskError(f"--output {output}: cannot be written")
    if data is not None and Path(data).resolve() in (output.resolve(), responses.resolve()):
        raise UnmaskError(f"--output {output}: the training set would be overwritten; name another file")
    if output.exists() and not responses.exists():
        raise UnmaskError(f"--output {output}: is there, but no {responses.name} of `unmask filter`; name another file")


def _line(number: int, example: Example) -> str:
    try:
        return json.dumps(dict(example)) + "\n"
    except (TypeError, ValueError) as error:
        raise UnmaskError(f"training example {number} cannot be written as JSON: {error}") from error


def _short_enough(
    task: Task, examples: Sequence[Example], tokenizer: Any, length: int, limit: int | None
) -> Mapping[int, Example]:
    """Index → example of those whose prompt and response fit.

    Raises:
        UnmaskError: none does.
    """
    if limit is None:
        return dict(enumerate(examples))
    tokens = [len(prompt_tokens(task, example, tokenizer)) + length for example in examples]
    short = {index: examples[index] for index, count in enumerate(tokens) if count <= limit}
    if not short:
        raise UnmaskError(
            f"--max-tokens {limit}: no example is that short; the shortest of {len(tokens)} has {min(tokens)} tokens, "
            f"{length} of them for the response"
        )
    return short

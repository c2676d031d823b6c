"""Accuracy of a model on a task's evaluation examples."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from unmask.decoding import Decoding
from unmask.evaluation.responses import Judged, ResponseFile
from unmask.evaluation.sampling import sample_and_judge
from unmask.evaluation.statistics import pass_at_k, wilson
from unmask.models import Denoiser
from unmask.tasks import Example, Task, Verdict


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
    failures: tuple[str, ...] = ()
    """What the task raised where it could not judge a response, in one line each."""

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

    Args:
        share: from how many examples there are to the indices of those to do here; a worker's share of them.
        seed, samples, file, listener: as of `sample_and_judge`.
    """
    data = task.evaluation()
    chosen = {index: data[index] for index in share(min(examples or len(data), len(data)))}
    results, row_forwards, failures = sample_and_judge(
        model,
        tokenizer,
        task,
        chosen,
        decoding,
        purpose="evaluation",
        seed=seed,
        samples=samples,
        file=file,
        listener=listener,
    )
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
        tuple(failures),
    )

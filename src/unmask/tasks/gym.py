"""Tasks of `reasoning-gym`, which makes examples of a hundred kinds on demand.

Only its examples are used. Its scorers evaluate a response's text as code, so an answer here is right when it is the
example's answer: the same text but for spaces and LaTeX's wrapping, or the same number. Not by the rules of
`equivalence/`: many examples ask for a calculation, a simplification or an order, and there the question itself would
be equal to its answer.
"""

import re
from collections.abc import Sequence
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from unmask.errors import UnmaskError, nearest
from unmask.tasks.equivalence import number
from unmask.tasks.responses import last_boxed
from unmask.tasks.task import Example, Task

EVALUATION_SEED = 10**9
"""Example `index` is drawn from seed + index, so the sets' seeds must lie further apart than their sizes."""


class GymSettings(BaseModel):
    """A data set of `reasoning-gym` (`pip install unmask[gym]`)."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    name: Literal["gym"] = "gym"
    """Examples made by reasoning-gym."""
    dataset: str = "chain_sum"
    """Its name for a kind of examples, one with a single right answer."""
    train_size: int = Field(100_000, ge=1, le=EVALUATION_SEED)
    """Examples for training (made on demand)."""
    evaluation_size: int = Field(1_024, ge=1)
    """Examples for evaluation, from a seed of their own; small kinds may repeat a training example."""

    def build(self) -> Task:
        """The task."""
        return Gym(self)


class Gym(Task):
    """A question as text; the answer in `\\boxed{}`."""

    instruction = "Reason step by step, and put the final answer, and nothing else, inside \\boxed{}.\n\n"
    response_length = 32

    def __init__(self, settings: GymSettings | None = None) -> None:
        self.settings = settings or GymSettings()

    def train(self) -> Sequence[Example]:
        return Made(self.settings.dataset, self.settings.train_size, seed=0)

    def evaluation(self) -> Sequence[Example]:
        return Made(self.settings.dataset, self.settings.evaluation_size, seed=EVALUATION_SEED)

    def prompt(self, example: Example) -> str:
        return f"{example['question']}\n"

    def reward(self, example: Example, response: str) -> float:
        answer = last_boxed(response)
        return float(answer is not None and is_same(str(example["answer"]), answer))

    def solution(self, example: Example) -> str:
        return f"\\boxed{{{example['answer']}}}"


def is_same(gold: str, answer: str) -> bool:
    """Whether the texts are the same, or the same plain number."""
    wanted, given = _plain(gold), _plain(answer)
    return wanted == given or (number(wanted) is not None and number(wanted) == number(given))


def _plain(text: str) -> str:
    """Without LaTeX's wrapping of words and numbers, and without spaces that separate nothing."""
    text = re.sub(r"\\(?:text|math)(?:bf|it|rm|tt)?\s*\{([^{}]*)\}", r"\1", text.replace("−", "-"))
    text = re.sub(r"\\[,!;: ]|\{,\}|\$", lambda found: "," if found[0] == "{,}" else "", text)
    return re.sub(r"\s*([^\w\s])\s*", r"\1", " ".join(text.split()))


class Made(Sequence[Example]):
    """Example `index` depends on data set, seed and index alone.

    Args:
        options: the data set's own settings.
    """

    def __init__(self, dataset: str, size: int, seed: int, **options: Any) -> None:
        try:
            import reasoning_gym
            from reasoning_gym.factory import DATASETS
        except ModuleNotFoundError as error:
            raise UnmaskError("examples by reasoning-gym need `pip install unmask[gym]`") from error
        if dataset not in DATASETS:
            raise UnmaskError(f"task.dataset={dataset} is unknown{nearest(dataset, DATASETS)}")
        self.size, self.source = size, reasoning_gym.create_dataset(dataset, size=size, seed=seed, **options)
        if self.source[0]["answer"] is None:
            raise UnmaskError(f"task.dataset={dataset}: its examples have no answer to compare with; use another")

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int) -> Example:  # type: ignore[override]  # no slices
        if not 0 <= index < self.size:
            raise IndexError(index)
        return self.example(self.source[index])

    def example(self, made: dict[str, Any]) -> Example:
        """What is kept of reasoning-gym's own example."""
        return {"question": made["question"], "answer": made["answer"]}

"""Task: what is asked, and how an answer is judged. A new task is one subclass and nothing else."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any, NamedTuple

from unmask.errors import UnmaskError

Example = Mapping[str, Any]


class Verdict(StrEnum):
    """Whether a response is right."""

    RIGHT = "right"
    WRONG = "wrong"
    UNSURE = "unsure"
    """It could not be told: the answer was not understood, comparing it took too long, or judging it failed."""


class Judgement(NamedTuple):
    """What a task says of a response."""

    reward: float
    """In [reward_min, reward_max]."""
    verdict: Verdict


class Task(ABC):
    """Examples, the text a model is shown, and the reward of what it answers.

    Subclass it, give the examples and the reward, and every algorithm trains on it:

        class Parity(unmask.Task):
            def train(self): return [{"bits": format(i, "08b")} for i in range(200)]
            def evaluation(self): return [{"bits": format(i, "08b")} for i in range(200, 256)]
            def prompt(self, example): return example["bits"]
            def reward(self, example, response): return float(response == str(example["bits"].count("1") % 2))
    """

    reward_min: float = 0.0
    """Smallest reward there is; with `reward_max` it sets the noise scale of segment credit."""
    reward_max: float = 1.0
    """Largest reward there is: the answer is right."""
    instruction: str = ""
    """Said to a model that was tuned for chat, before the prompt or with the prompt in place of `{prompt}`; plain
    models see the prompt alone."""

    response_length: int = 256
    """Tokens of an answer without reasoning: what is decoded by default from a model without a chat template."""

    line_width: int | None = None
    """Tokens in a line when an answer is shown while it is revealed; none writes them on."""

    @property
    def conditions(self) -> dict[str, str]:
        """What a verdict depends on besides the response, as results name it: `{"sandbox": "unsafe"}`."""
        return {}

    @abstractmethod
    def train(self) -> Sequence[Example]:
        """Examples for training: anything with a length that can be indexed, also one that makes them on demand."""

    @abstractmethod
    def evaluation(self) -> Sequence[Example]:
        """Examples that training never sees, in a fixed order."""

    @abstractmethod
    def prompt(self, example: Example) -> str:
        """The question as text."""

    def message(self, example: Example) -> str:
        """What a model that was tuned for chat is told."""
        if "{prompt}" in self.instruction:
            return self.instruction.replace("{prompt}", self.prompt(example).strip("\n"))
        return self.instruction + self.prompt(example)

    @abstractmethod
    def reward(self, example: Example, response: str) -> float:
        """The verdict on a response, in [reward_min, reward_max]. Never executes the text, unless in a sandbox."""

    def judge(self, example: Example, response: str) -> Judgement:
        """Reward and verdict; for a task that can be unsure. Right is full reward."""
        reward = self.reward(example, response)
        return Judgement(reward, Verdict.RIGHT if reward >= self.reward_max else Verdict.WRONG)

    def judge_all(self, examples: Sequence[Example], responses: Sequence[str]) -> list[Judgement]:
        """The judgements of many responses, one after the other; define it where they can be found at the same time."""
        return [self.judge(example, response) for example, response in zip(examples, responses, strict=True)]

    def example(self, row: Mapping[str, Any]) -> Example:
        """A row of a file, checked for what judging needs: the task's own names for its fields.

        Raises:
            UnmaskError: a field is missing or wrong; names the field.
        """
        return row

    def solution(self, example: Example) -> str:
        """A right answer, for supervised fine-tuning.

        Raises:
            UnmaskError: the task has none.
        """
        raise UnmaskError(f"task {type(self).__name__} has no solutions to learn from; define solution(example)")

    def show(self, example: Example, response: str) -> str:
        """Question and answer as a person would want to read them, possibly over several lines."""
        return f"{self.prompt(example)} → {response}"


def judge_safely(
    task: Task, examples: Sequence[Example], responses: Sequence[str]
) -> tuple[list[Judgement], dict[int, BaseException]]:
    """As `task.judge_all`, but an error of the task costs only the responses in which it happens.

    Returns:
        The judgements, with the smallest reward and `unsure` where judging failed; and those errors, by index.

    Raises:
        UnmaskError: from the task, which says with it that nothing can be judged here; or a reward is out of range.
    """
    try:
        judgements = task.judge_all(examples, responses)
        for example, judgement in zip(examples, judgements, strict=True):
            _check_range(task, example, judgement.reward)
        return judgements, {}
    except UnmaskError:
        raise
    except (Exception, SystemExit) as error:  # a border: whatever a user's task raises
        if len(responses) == 1:
            return [Judgement(task.reward_min, Verdict.UNSURE)], {0: error}
    judgements = []
    errors: dict[int, BaseException] = {}
    for index, (example, response) in enumerate(zip(examples, responses, strict=True)):
        (judgement,), failed = judge_safely(task, [example], [response])
        judgements.append(judgement)
        if failed:
            errors[index] = failed[0]
    return judgements, errors


def _check_range(task: Task, example: Example, reward: float) -> None:
    if not task.reward_min <= reward <= task.reward_max:
        raise UnmaskError(
            f"task {type(task).__name__}: reward {reward} for prompt {task.prompt(example)!r} is outside "
            f"[{task.reward_min}, {task.reward_max}]; set reward_min and reward_max on the task"
        )

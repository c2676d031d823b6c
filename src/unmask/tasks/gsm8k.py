"""GSM8K: word problems of primary school, with numbers as answers.

The answer is what stands in the last `\\boxed{}` or, without one, after the last `####` of the response. Digits may be
grouped and a unit may follow.
"""

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from unmask.errors import UnmaskError
from unmask.tasks.data import DataSetTask, Instruction, text_field
from unmask.tasks.equivalence import compare, number
from unmask.tasks.responses import after_hashes, last_boxed
from unmask.tasks.task import Example, Judgement, Task, Verdict


class Gsm8kSettings(BaseModel):
    """Word problems: rows with `question` and `answer`, whose last line is `#### number`, or with `reasoning` apart."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    name: Literal["gsm8k"] = "gsm8k"
    """Primary-school word problems."""
    train: str = "openai/gsm8k:main"
    """Training set: a file, or a hub name (`name:configuration` where it has several)."""
    train_split: str = "train"
    """Split of a training set from the hub."""
    evaluation: str = "openai/gsm8k:main"
    """Evaluation set, named likewise."""
    evaluation_split: str = "test"
    """Split of an evaluation set from the hub."""
    instruction: Instruction | None = None
    """What a model that was tuned for chat is told, `{prompt}` standing for the problem; none = our own words."""

    def build(self) -> Task:
        """The task."""
        return Gsm8k(self)


class Gsm8k(DataSetTask):
    """A story with a question; the answer is a number in `\\boxed{}` or after `####`."""

    instruction = (
        "Solve the following word problem. Reason step by step, and put the final number inside \\boxed{}.\n\n"
    )

    def __init__(self, settings: Gsm8kSettings | None = None) -> None:
        super().__init__(settings or Gsm8kSettings())

    def problem(self, row: Mapping[str, Any]) -> Example:
        return {"question": text_field(row, "question"), **self.example(row)}

    def example(self, row: Mapping[str, Any]) -> Example:
        text = text_field(row, "answer").strip()
        answer = after_hashes(text) or text
        if number(answer.lstrip("$")) is None:
            raise UnmaskError(f"answer={text[-60:]!r}: must end in #### and a number")
        reasoning = text.rpartition("####")[0].strip() or str(row.get("reasoning") or "")
        return {"answer": answer.lstrip("$"), "reasoning": reasoning}

    def prompt(self, example: Example) -> str:
        return f"{example['question']}\n"

    def judge(self, example: Example, response: str) -> Judgement:
        answer = last_boxed(response)
        if answer is None:
            answer = after_hashes(response)
        verdict = Verdict.WRONG if answer is None else compare(example["answer"], answer)
        return Judgement(float(verdict is Verdict.RIGHT), verdict)

    def reward(self, example: Example, response: str) -> float:
        return self.judge(example, response).reward

    def solution(self, example: Example) -> str:
        return f"{example['reasoning']}\n\\boxed{{{example['answer']}}}".lstrip()

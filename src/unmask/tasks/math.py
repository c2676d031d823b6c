"""Competition mathematics: MATH, MATH-500, AMC 23, and files of the same form.

The answer is what stands in the last `\\boxed{}` of the response; without a box there is none. It is right when it is
the same as the data set's (`equivalence/`).
"""

import re
from collections.abc import Mapping
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from unmask.errors import UnmaskError
from unmask.tasks.data import DataSetTask, Instruction, text_field
from unmask.tasks.equivalence import compare
from unmask.tasks.responses import last_boxed
from unmask.tasks.task import Example, Judgement, Task, Verdict


class MathSettings(BaseModel):
    """Problems with answers in LaTeX: rows with `problem` or `question`, and `answer` or a `solution` that boxes it."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    name: Literal["math"] = "math"
    """Competition mathematics."""
    train: str = "DigitalLearningGmbH/MATH-lighteval"
    """Training set: a file, or a hub name (`name:configuration` where it has several)."""
    train_split: str = "train"
    """Split of a training set from the hub."""
    evaluation: str = "HuggingFaceH4/MATH-500"
    """Evaluation set, named likewise; `math-ai/amc23` is another."""
    evaluation_split: str = "test"
    """Split of an evaluation set from the hub."""
    instruction: Instruction | None = None
    """What a model that was tuned for chat is told, `{prompt}` standing for the problem; none = our own words."""

    def build(self) -> Task:
        """The task."""
        return Math(self)


class Math(DataSetTask):
    """A problem in words and LaTeX; the answer in `\\boxed{}`."""

    instruction = (
        "Solve the following mathematics problem. Reason step by step, "
        "and put the final answer, and nothing else, inside \\boxed{}.\n\n"
    )

    def __init__(self, settings: MathSettings | None = None) -> None:
        super().__init__(settings or MathSettings())

    def problem(self, row: Mapping[str, Any]) -> Example:
        return {"problem": text_field(row, "problem", "question"), **self.example(row)}

    def example(self, row: Mapping[str, Any]) -> Example:
        if "answer" not in row and "solution" in row:
            answer = last_boxed(text_field(row, "solution"))
            if not answer:
                raise UnmaskError("solution has no \\boxed{} answer")
        else:
            answer = text_field(row, "answer").strip()
            if "\\boxed" in answer:
                answer = last_boxed(answer) or ""
        if not answer.strip("$ ") or not _is_whole(answer):
            raise UnmaskError(
                f"answer={answer!r:.60}: empty, or cut off: its brackets do not match or its end is missing"
            )
        return {"answer": answer}

    def prompt(self, example: Example) -> str:
        return f"{example['problem']}\n"

    def judge(self, example: Example, response: str) -> Judgement:
        answer = last_boxed(response)
        verdict = Verdict.WRONG if answer is None else compare(example["answer"], answer)
        return Judgement(float(verdict is Verdict.RIGHT), verdict)

    def reward(self, example: Example, response: str) -> float:
        return self.judge(example, response).reward

    def solution(self, example: Example) -> str:
        return f"\\boxed{{{example['answer']}}}"


def _is_whole(answer: str) -> bool:
    """Whether nothing has been cut off an answer, as far as its signs tell; not whether it can be understood."""
    text = re.sub(r"\\[{}]", "", answer)
    opened, closed = (sum(text.count(sign) for sign in signs) for signs in ("([", ")]"))
    is_balanced = opened == closed and text.count("{") == text.count("}")
    return is_balanced and not re.search(r"(?:[-+*/^_=<>]|\\(?:sqrt|frac|cdot|times|left))[\s$]*$", answer)

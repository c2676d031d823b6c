"""Countdown: reach a target with given numbers and + − × ÷, each number used exactly once.

The expression stands in the last `\\boxed{}` or `<answer></answer>` of the response, and may be followed by `= target`.
It is read by a parser for these four operations and brackets, and worked out in exact fractions.
"""

import random
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from fractions import Fraction
from functools import cached_property
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from unmask.errors import UnmaskError
from unmask.tasks.data import load_examples
from unmask.tasks.responses import last_boxed, last_tagged
from unmask.tasks.task import Example, Task

LONGEST = 500
"""Characters in an expression; a longer one is wrong."""


class CountdownSettings(BaseModel):
    """Problems to make, or to read: rows with `numbers` (or `nums`, `input`) and `target` (or `output`)."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    name: Literal["countdown"] = "countdown"
    """Reach a target with given numbers."""
    train: str | None = None
    """Training set: a file or hub name, e.g. `Jiayi-Pan/Countdown-Tasks-3to4`; none makes problems on demand."""
    train_split: str = "train"
    """Split of a training set from the hub."""
    evaluation: str | None = None
    """Evaluation set, named likewise; none makes problems on demand, none of them a training problem."""
    evaluation_split: str = "test"
    """Split of an evaluation set from the hub."""
    numbers: int = Field(3, ge=2, le=6)
    """Numbers in a problem made on demand."""

    def build(self) -> Task:
        """The task."""
        return Countdown(self)


class Countdown(Task):
    """Numbers and a target: `44,19,35=60` is answered by `44-19+35`."""

    instruction = (
        "Use every given number exactly once, with + - * / and brackets, to make an expression that equals the target. "
        "The numbers come first, separated by commas, then = and the target. "
        "Reason step by step, and put the expression alone inside \\boxed{}.\n\n"
    )
    response_length = 32

    def __init__(self, settings: CountdownSettings | None = None) -> None:
        self.settings = settings or CountdownSettings()

    @cached_property
    def _train(self) -> Sequence[Example]:
        if self.settings.train is None:
            return Problems("train", 1_000_000, self.settings.numbers)
        return load_examples(self.settings.train, self.settings.train_split, self.example)

    @cached_property
    def _evaluation(self) -> Sequence[Example]:
        if self.settings.evaluation is None:
            return Problems("evaluation", 1_024, self.settings.numbers)
        return load_examples(self.settings.evaluation, self.settings.evaluation_split, self.example)

    def train(self) -> Sequence[Example]:
        return self._train

    def evaluation(self) -> Sequence[Example]:
        return self._evaluation

    def example(self, row: Mapping[str, Any]) -> Example:
        numbers = [_integer(name, value) for name, value in _several(row)]
        target, solution = _integer(*_one(row, "target", "output")), row.get("solution")
        example = {"numbers": numbers, "target": target}
        return {**example, "solution": solution} if _solves(numbers, target, solution) else example

    def prompt(self, example: Example) -> str:
        return f"{','.join(map(str, example['numbers']))}={example['target']}\n"

    def reward(self, example: Example, response: str) -> float:
        answer = last_boxed(response)
        if answer is None:
            answer = last_tagged(response)
        return float(answer is not None and reaches(example["numbers"], example["target"], answer))

    def solution(self, example: Example) -> str:
        if "solution" not in example:
            return super().solution(example)
        return f"\\boxed{{{example['solution']}}}"


def reaches(numbers: Sequence[int], target: int, answer: str) -> bool:
    """Whether an answer is an expression that uses each number exactly once and has exactly the target as its value."""
    if len(answer) > LONGEST:
        return False
    for written, plain in _SPELLINGS:
        answer = re.sub(written, plain, answer)
    while (shorter := re.sub(_FRACTION, r"((\1)/(\2))", answer)) != answer:  # the innermost first
        answer = shorter
    answer = answer.strip().rstrip(".")
    expression, equals, result = answer.partition("=")
    if equals:
        said = re.fullmatch(r"[\s{]*([+-]?)\s*([0-9]{1,12})(\.0*)?[\s}]*", result)
        if not said or int(said[1] + said[2]) != target:
            return False
    try:
        value, used = _Reader(expression).read()
    except (ValueError, ZeroDivisionError):
        return False
    return Counter(used) == Counter(numbers) and value == target


def _solves(numbers: Sequence[int], target: int, solution: Any) -> bool:
    """Whether a row's solution, if it has one, is an expression to learn from."""
    return isinstance(solution, str) and reaches(numbers, target, solution)


_SPELLINGS = [
    (r"[−–—‐﹣－]", "-"),
    (r"[＋﹢]", "+"),
    (r"[×✕✖·⋅∙•∗＊]|\\(?:times|cdot|ast)(?![A-Za-z])", "*"),
    (r"[÷∕⁄／]|\\div(?![A-Za-z])", "/"),
    (r"[（]", "("),
    (r"[）]", ")"),
    (r"[＝]", "="),
    (r"^\s*(\*\*|`+)(.*?)\1\s*$", r"\2"),
    (r"\\[,;!: ]|\\q?quad(?![A-Za-z])|\\$|\$", " "),
    (r"\\(?:left|right|[bB]igg?[lr]?|displaystyle|boldsymbol|text(?:bf|rm)?|math(?:bf|rm|it)|mbox)(?![A-Za-z])", ""),
    (r"\{\s*([-+*/=]?)\s*\}", r"\1"),
    (r"\\[dtc]?frac\s*(\d)\s*(\d)", r"(\1/\2)"),
]
_FRACTION = r"\\[dtc]?frac\s*\{([^{}]*)\}\s*\{([^{}]*)\}"


class _Reader:
    """sum = product ± product ...; product = item × item ...; item = signs, then a number or a sum in brackets."""

    def __init__(self, text: str) -> None:
        self.tokens = re.findall(r"\d+|\S", text)
        self.used: list[int] = []
        self.at = 0

    def read(self) -> tuple[Fraction, list[int]]:
        """Value, and the numbers used.

        Raises:
            ValueError: anything else than numbers, the four operations and brackets.
            ZeroDivisionError: as it says.
        """
        try:
            value = self.sum()
        except RecursionError:
            raise ValueError("nested too deeply") from None
        if self.at < len(self.tokens):
            raise ValueError(self.tokens[self.at])
        return value, self.used

    def take(self, *tokens: str) -> str | None:
        if self.at < len(self.tokens) and self.tokens[self.at] in tokens:
            self.at += 1
            return self.tokens[self.at - 1]
        return None

    def sum(self) -> Fraction:
        value = self.product()
        while sign := self.take("+", "-"):
            value = value + self.product() if sign == "+" else value - self.product()
        return value

    def product(self) -> Fraction:
        value = self.item()
        while sign := self.take("*", "/"):
            value = value * self.item() if sign == "*" else value / self.item()
        return value

    def item(self) -> Fraction:
        if sign := self.take("+", "-"):
            return self.item() if sign == "+" else -self.item()
        if bracket := self.take("(", "[", "{"):
            value = self.sum()
            if not self.take({"(": ")", "[": "]", "{": "}"}[bracket]):
                raise ValueError("a bracket is not closed")
            return value
        if self.at == len(self.tokens) or not re.fullmatch(r"[0-9]{1,12}", self.tokens[self.at]):
            raise ValueError("a number is missing")
        self.at += 1
        self.used.append(int(self.tokens[self.at - 1]))
        return Fraction(self.used[-1])


class Problems(Sequence[Example]):
    """Numbers from 1 to 99 and a target from 1 to 100 that they reach; made by combining them at random.

    Problems whose sorted numbers have an even sum of digits are for training, the others for evaluation: no set of
    numbers is in both.
    """

    def __init__(self, name: str, size: int, numbers: int) -> None:
        self.name, self.size, self.numbers = name, size, numbers

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int) -> Example:  # type: ignore[override]  # no slices
        if not 0 <= index < self.size:
            raise IndexError(index)
        draw = random.Random(f"countdown/{self.name}/{index}")
        while True:
            numbers = [draw.randint(1, 99) for _ in range(self.numbers)]
            is_for_training = sum(int(digit) for number in numbers for digit in str(number)) % 2 == 0
            if is_for_training != (self.name == "train"):
                continue
            value, text = _combine(numbers, draw)
            if value.denominator == 1 and 1 <= value <= 100:
                draw.shuffle(numbers)
                return {"numbers": numbers, "target": int(value), "solution": text}


def _combine(numbers: list[int], draw: random.Random) -> tuple[Fraction, str]:
    """A random expression of the numbers in their order, and its value."""
    if len(numbers) == 1:
        return Fraction(numbers[0]), str(numbers[0])
    cut = draw.randint(1, len(numbers) - 1)
    (left, left_text), (right, right_text) = _combine(numbers[:cut], draw), _combine(numbers[cut:], draw)
    sign = draw.choice("+-*/" if right else "+-*")
    value = {"+": left + right, "-": left - right, "*": left * right, "/": left / (right or 1)}[sign]
    texts = [text if text.isdigit() else f"({text})" for text in (left_text, right_text)]
    return value, sign.join(texts)


def _one(row: Mapping[str, Any], *names: str) -> tuple[str, Any]:
    name = next((name for name in names if name in row), None)
    if name is None:
        raise UnmaskError(f"{' or '.join(names)} is missing; the row has {', '.join(map(str, row)) or 'no fields'}")
    return name, row[name]


def _several(row: Mapping[str, Any]) -> list[tuple[str, Any]]:
    name, value = _one(row, "numbers", "nums", "input")
    values = value.strip(" []()").replace(",", " ").split() if isinstance(value, str) else value
    if not isinstance(values, Sequence) or not values:
        raise UnmaskError(f"{name}={value!r:.60}: must be a list of whole numbers")
    return [(name, item) for item in values]


def _integer(name: str, value: Any) -> int:
    if isinstance(value, str) and re.fullmatch(r"\s*-?[0-9]{1,12}\s*", value):
        return int(value)
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    raise UnmaskError(f"{name}={value!r:.60}: must be whole numbers")

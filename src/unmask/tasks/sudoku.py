"""4×4 sudoku, the planning task of the dLLM papers, made on demand.

A puzzle is a solved grid with 8 to 12 cells blanked; an answer is right when it is a solved grid that keeps every
clue, also when it is not the grid the puzzle was made from. There are only 288 solved grids: 48 of them are kept
for evaluation alone, so neither supervised nor reinforcement learning ever sees a puzzle made from one of those.
"""

import random
import re
from collections.abc import Mapping, Sequence
from functools import cache
from itertools import permutations
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from unmask.errors import UnmaskError
from unmask.tasks.data import load_examples, text_field
from unmask.tasks.responses import last_boxed, last_tagged
from unmask.tasks.task import Example, Task

HELD_OUT_GRIDS = 48


class SudokuSettings(BaseModel):
    """Puzzles to make."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    name: Literal["sudoku"] = "sudoku"
    """4×4 sudoku."""
    min_blanks: int = Field(8, ge=1, le=16)
    """Fewest blank cells in a puzzle."""
    max_blanks: int = Field(12, ge=1, le=16)
    """Most blank cells in a puzzle."""
    train_size: int = Field(1_000_000, ge=1)
    """Puzzles in the training set (made on demand)."""
    evaluation_size: int = Field(1_024, ge=1)
    """Puzzles in the evaluation set, all from held-out grids."""
    evaluation: str | None = None
    """Evaluation set in place of made puzzles: a file or hub name; rows with `Puzzle` and `Solution`, 16 digits."""
    evaluation_split: str = "test"
    """Split of an evaluation set from the hub."""

    @model_validator(mode="after")
    def _agree(self) -> Self:
        if self.min_blanks > self.max_blanks:
            raise ValueError(f"min_blanks={self.min_blanks} is more than max_blanks={self.max_blanks}")
        return self

    def build(self) -> Task:
        """The task."""
        return Sudoku(self)


class Sudoku(Task):
    """Rows read left to right, top to bottom; `0` is a blank: `3102200002100320=` → `3142243142131324`."""

    instruction = (
        "Solve this 4x4 sudoku: each row, column and 2x2 box must hold 1, 2, 3 and 4 once. "
        "The 16 cells are given row by row, 0 is blank. "
        "Answer with the 16 digits of the solved grid inside <answer></answer>.\n"
    )

    response_length = 16
    line_width = 4

    def __init__(self, settings: SudokuSettings | None = None) -> None:
        self.settings = settings or SudokuSettings()

    def train(self) -> Sequence[Example]:
        grids = solution_grids()[HELD_OUT_GRIDS:]
        return Puzzles("train", grids, self.settings.train_size, self.settings)

    def evaluation(self) -> Sequence[Example]:
        if self.settings.evaluation is not None:
            return load_examples(self.settings.evaluation, self.settings.evaluation_split, self.example)
        grids = solution_grids()[:HELD_OUT_GRIDS]
        return Puzzles("evaluation", grids, self.settings.evaluation_size, self.settings)

    def example(self, row: Mapping[str, Any]) -> Example:
        puzzle = text_field(row, "puzzle", "Puzzle").strip()
        if not re.fullmatch("[0-4]{16}", puzzle):
            raise UnmaskError(f"puzzle={puzzle!r:.60}: must be 16 digits from 0 to 4, 0 for a blank")
        if "solution" not in row and "Solution" not in row:
            return {"puzzle": puzzle}
        return {"puzzle": puzzle, "solution": text_field(row, "solution", "Solution").strip()}

    def prompt(self, example: Example) -> str:
        return f"{example['puzzle']}="

    def reward(self, example: Example, response: str) -> float:
        answer = last_tagged(response)
        if answer is None and "<answer>" not in response:
            boxed = last_boxed(response)
            answer = response if boxed is None else boxed
        return float(answer is not None and is_solution(example["puzzle"], "".join(answer.split())))

    def solution(self, example: Example) -> str:
        return str(example["solution"])

    def show(self, example: Example, response: str) -> str:
        puzzle = example["puzzle"]
        rows = []
        for start in range(0, 16, 4):
            question = " ".join("·" if c == "0" else c for c in puzzle[start : start + 4])
            answer = " ".join(response[start : start + 4].ljust(4, "?"))
            rows.append(f"{question}   {answer}")
        return "\n".join(rows)


class Puzzles(Sequence[Example]):
    """Puzzle `index` depends on set, range of blanks and index alone: a larger set begins like a smaller one."""

    def __init__(self, name: str, grids: Sequence[str], size: int, settings: SudokuSettings) -> None:
        self.name, self.grids, self.size, self.settings = name, grids, size, settings

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int) -> Example:  # type: ignore[override]  # no slices
        if not 0 <= index < self.size:
            raise IndexError(index)
        draw = random.Random(f"sudoku/{self.name}/{index}")
        grid = draw.choice(self.grids)
        blanks = draw.sample(range(16), draw.randint(self.settings.min_blanks, self.settings.max_blanks))
        puzzle = "".join("0" if cell in blanks else digit for cell, digit in enumerate(grid))
        return {"puzzle": puzzle, "solution": grid}


def is_solution(puzzle: str, answer: str) -> bool:
    """Whether `answer` is 16 digits that solve the grid and keep the clues of `puzzle`."""
    if not re.fullmatch("[1-4]{16}", answer):
        return False
    if any(clue not in ("0", digit) for clue, digit in zip(puzzle, answer, strict=True)):
        return False
    return all(len({answer[cell] for cell in unit}) == 4 for unit in _UNITS)


@cache
def solution_grids() -> tuple[str, ...]:
    """All 288 solved grids in a fixed shuffled order; the first 48 are for evaluation."""
    rows = ["".join(row) for row in permutations("1234")]
    grids = [
        grid
        for a in rows
        for b in rows
        if all(x != y for x, y in zip(a, b, strict=True)) and len({*a[:2], *b[:2]}) == 4
        for c in rows
        if all(z not in (x, y) for x, y, z in zip(a, b, c, strict=True))
        for d in rows
        if is_solution("0" * 16, grid := a + b + c + d)
    ]
    random.Random("sudoku/held out").shuffle(grids)
    return tuple(grids)


_UNITS = (
    [range(row * 4, row * 4 + 4) for row in range(4)]
    + [range(column, 16, 4) for column in range(4)]
    + [[corner, corner + 1, corner + 4, corner + 5] for corner in (0, 2, 8, 10)]
)

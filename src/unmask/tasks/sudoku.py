"""Sudoku: 4×4, the planning task of the dLLM papers, and 9×9, made on demand.

An answer is right when it is a solved grid that keeps every clue, also when it is not the grid the puzzle was made
from. A 4×4 puzzle is a solved grid with some cells blanked. There are only 288 such grids: 48 of them are kept for
evaluation alone, so neither supervised nor reinforcement learning ever sees a puzzle made from one of those. 9×9
puzzles come from reasoning-gym's generator and have one solution.
"""

import math
import random
import re
from collections.abc import Mapping, Sequence
from functools import cache, cached_property
from itertools import chain, permutations
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from unmask.errors import UnmaskError
from unmask.tasks.data import load_examples, text_field
from unmask.tasks.gym import EVALUATION_SEED, Made
from unmask.tasks.responses import last_boxed, last_tagged
from unmask.tasks.task import Example, Task

HELD_OUT_GRIDS = 48

BLANKS = {4: (8, 12), 9: (30, 50)}
"""Size → fewest and most blank cells, where a recipe does not say."""


class SudokuSettings(BaseModel):
    """Puzzles to make."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    name: Literal["sudoku"] = "sudoku"
    """Sudoku."""
    size: Literal[4, 9] = 4
    """Cells in a row. 9×9 puzzles are made by reasoning-gym (`pip install unmask[gym]`), 50 ms each."""
    min_blanks: int | None = Field(None, ge=1, le=64)
    """Fewest blank cells in a puzzle; none = 8, or 30 of 9×9."""
    max_blanks: int | None = Field(None, ge=1, le=64)
    """Most blank cells in a puzzle; none = 12, or 50 of 9×9. 9×9 puzzles with one solution may need to have fewer."""
    train_size: int = Field(1_000_000, ge=1)
    """Puzzles in the training set (made on demand)."""
    evaluation_size: int = Field(1_024, ge=1)
    """Puzzles in the evaluation set, all from held-out grids."""
    train: str | None = None
    """Training set in place of made puzzles: a file or hub name; rows with `puzzle` and `solution`, 16 digits or 81."""
    train_split: str = "train"
    """Split of a training set from the hub."""
    evaluation: str | None = None
    """Evaluation set, named likewise."""
    evaluation_split: str = "test"
    """Split of an evaluation set from the hub."""

    @model_validator(mode="after")
    def _agree(self) -> Self:
        fewest, most = self.blanks
        if fewest > most:
            raise ValueError(f"min_blanks={fewest} is more than max_blanks={most}")
        if self.size == 4 and most > 16:
            raise ValueError(f"max_blanks={most}: a 4×4 grid has 16 cells")
        return self

    @property
    def blanks(self) -> tuple[int, int]:
        """Fewest and most blank cells."""
        fewest, most = BLANKS[self.size]
        return self.min_blanks or fewest, self.max_blanks or most

    def build(self) -> Task:
        """The task."""
        return Sudoku(self)


class Sudoku(Task):
    """Rows read left to right, top to bottom; `0` is a blank: `3102200002100320=` → `3142243142131324`."""

    def __init__(self, settings: SudokuSettings | None = None) -> None:
        self.settings = settings or SudokuSettings()
        size = self.line_width = self.settings.size
        box, cells, digits = math.isqrt(size), size * size, ", ".join(map(str, range(1, size)))
        self.response_length = cells
        self.instruction = (
            f"Solve this {size}x{size} sudoku: "
            f"each row, column and {box}x{box} box must hold {digits} and {size} once. "
            f"The {cells} cells are given row by row, 0 is blank. "
            f"Answer with the {cells} digits of the solved grid inside <answer></answer>.\n"
        )

    @cached_property
    def _train(self) -> Sequence[Example]:
        if self.settings.train is not None:
            return load_examples(self.settings.train, self.settings.train_split, self._problem)
        if self.settings.size == 9:
            return Generated(self.settings, self.settings.train_size, seed=0)
        return Puzzles("train", solution_grids()[HELD_OUT_GRIDS:], self.settings.train_size, self.settings.blanks)

    @cached_property
    def _evaluation(self) -> Sequence[Example]:
        if self.settings.evaluation is not None:
            return load_examples(self.settings.evaluation, self.settings.evaluation_split, self._problem)
        if self.settings.size == 9:
            return Generated(self.settings, self.settings.evaluation_size, seed=EVALUATION_SEED)
        grids = solution_grids()[:HELD_OUT_GRIDS]
        return Puzzles("evaluation", grids, self.settings.evaluation_size, self.settings.blanks)

    def train(self) -> Sequence[Example]:
        return self._train

    def evaluation(self) -> Sequence[Example]:
        return self._evaluation

    def example(self, row: Mapping[str, Any]) -> Example:
        puzzle = text_field(row, "puzzle", "Puzzle").strip()
        if not re.fullmatch("[0-4]{16}|[0-9]{81}", puzzle):
            raise UnmaskError(f"puzzle={puzzle!r:.60}: must be 16 digits from 0 to 4, or 81 from 0 to 9; 0 for a blank")
        if "solution" not in row and "Solution" not in row:
            return {"puzzle": puzzle}
        solution = text_field(row, "solution", "Solution").strip()
        if not is_solution(puzzle, solution):
            raise UnmaskError(f"solution={solution!r:.90}: does not solve the puzzle")
        return {"puzzle": puzzle, "solution": solution}

    def _problem(self, row: Mapping[str, Any]) -> Example:
        """A row of a data set, whose puzzles are of one size."""
        example = self.example(row)
        if len(example["puzzle"]) != self.settings.size**2:
            raise UnmaskError(
                f"puzzle has {len(example['puzzle'])} cells; set task.size to {math.isqrt(len(example['puzzle']))}"
            )
        return example

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
        size = math.isqrt(len(puzzle))
        rows = []
        for start in range(0, len(puzzle), size):
            question = " ".join("·" if c == "0" else c for c in puzzle[start : start + size])
            answer = " ".join(response[start : start + size].ljust(size, "?"))
            rows.append(f"{question}   {answer}")
        return "\n".join(rows)


class Puzzles(Sequence[Example]):
    """Puzzle `index` depends on set, range of blanks and index alone: a larger set begins like a smaller one."""

    def __init__(self, name: str, grids: Sequence[str], size: int, blanks: tuple[int, int]) -> None:
        self.name, self.grids, self.size, self.blanks = name, grids, size, blanks

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int) -> Example:  # type: ignore[override]  # no slices
        if not 0 <= index < self.size:
            raise IndexError(index)
        draw = random.Random(f"sudoku/{self.name}/{index}")
        grid = draw.choice(self.grids)
        blanks = draw.sample(range(16), draw.randint(*self.blanks))
        puzzle = "".join("0" if cell in blanks else digit for cell, digit in enumerate(grid))
        return {"puzzle": puzzle, "solution": grid}


class Generated(Made):
    """9×9 puzzles of reasoning-gym."""

    def __init__(self, settings: SudokuSettings, size: int, seed: int) -> None:
        fewest, most = settings.blanks
        super().__init__("sudoku", size, seed, min_empty=fewest, max_empty=most)

    def example(self, made: dict[str, Any]) -> Example:
        return {name: "".join(map(str, chain(*made["metadata"][name]))) for name in ("puzzle", "solution")}


def is_solution(puzzle: str, answer: str) -> bool:
    """Whether `answer` is a solved grid, as many digits as `puzzle`, that keeps its clues."""
    size = math.isqrt(len(puzzle))
    if len(answer) != len(puzzle) or any(clue not in ("0", digit) for clue, digit in zip(puzzle, answer, strict=True)):
        return False
    digits = set("123456789"[:size])
    return all({answer[cell] for cell in unit} == digits for unit in units(size))


@cache
def units(size: int) -> tuple[tuple[int, ...], ...]:
    """The cells of every row, column and box."""
    box = math.isqrt(size)
    lines = range(size)
    return (
        *(tuple(row * size + column for column in lines) for row in lines),
        *(tuple(row * size + column for row in lines) for column in lines),
        *(
            tuple((top + row) * size + left + column for row in range(box) for column in range(box))
            for top in range(0, size, box)
            for left in range(0, size, box)
        ),
    )


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

"""What is asked and how an answer is judged.

`task.py` is the interface; every other file is one task. To add one: subclass `Task`, give its settings a `name`, and add a
line to `TASKS`. Nothing here knows of models or tokens.
"""

from unmask.tasks.sudoku import Sudoku, SudokuSettings
from unmask.tasks.task import Example, Task

TASKS: dict[str, tuple[type[SudokuSettings], type[Sudoku]]] = {
    "sudoku": (SudokuSettings, Sudoku),
}
"""Name in a recipe → (settings, task)."""

__all__ = ["TASKS", "Example", "Sudoku", "SudokuSettings", "Task"]

"""What is asked and how an answer is judged.

`task.py` is the interface; every other file is one task, with its settings. To add one: subclass `Task`, give its
settings a `name` and a `build`, and add it to `TASKS` and `TaskSettings`; or leave this package alone and name a class
of your own in the recipe (`custom.py`).
"""

from typing import Annotated

from pydantic import Discriminator, Tag

from unmask.tasks.code import Code, CodeSettings
from unmask.tasks.custom import CustomTaskSettings
from unmask.tasks.sudoku import Sudoku, SudokuSettings
from unmask.tasks.task import Example, Task

TASKS = {"sudoku": SudokuSettings, "code": CodeSettings}
"""Name in a recipe → settings of a task that comes with the package."""


def _kind(settings: object) -> str | None:
    name = settings.get("name") if isinstance(settings, dict) else getattr(settings, "name", None)
    return "module:Class" if isinstance(name, str) and ":" in name else name


TaskSettings = Annotated[
    Annotated[SudokuSettings, Tag("sudoku")]
    | Annotated[CodeSettings, Tag("code")]
    | Annotated[CustomTaskSettings, Tag("module:Class")],
    Discriminator(_kind),
]
"""The `task` section of a recipe."""

__all__ = [
    "TASKS",
    "Code",
    "CodeSettings",
    "CustomTaskSettings",
    "Example",
    "Sudoku",
    "SudokuSettings",
    "Task",
    "TaskSettings",
]

"""What is asked and how an answer is judged.

`task.py` is the interface; every other file is one task, with its settings. To add one: subclass `Task`, give its
settings a `name` and a `build`, and add it to `TASKS` and `TaskSettings`; or leave this package alone and name a class
of your own in the recipe (`custom.py`).
"""

from typing import Annotated

from pydantic import Discriminator, Tag, ValidationError

from unmask.errors import UnmaskError, nearest
from unmask.tasks.code import Code, CodeSettings
from unmask.tasks.countdown import Countdown, CountdownSettings
from unmask.tasks.custom import CustomTaskSettings
from unmask.tasks.gsm8k import Gsm8k, Gsm8kSettings
from unmask.tasks.gym import Gym, GymSettings
from unmask.tasks.math import Math, MathSettings
from unmask.tasks.sudoku import Sudoku, SudokuSettings
from unmask.tasks.task import Example, Judgement, Task, Verdict, judge_safely

TASKS = {
    "code": CodeSettings,
    "countdown": CountdownSettings,
    "gsm8k": Gsm8kSettings,
    "gym": GymSettings,
    "math": MathSettings,
    "sudoku": SudokuSettings,
}
"""Name in a recipe → settings of a task that comes with the package."""


def _kind(settings: object) -> str | None:
    name = settings.get("name") if isinstance(settings, dict) else getattr(settings, "name", None)
    return "module:Class" if isinstance(name, str) and ":" in name else name


TaskSettings = Annotated[
    Annotated[CodeSettings, Tag("code")]
    | Annotated[CountdownSettings, Tag("countdown")]
    | Annotated[Gsm8kSettings, Tag("gsm8k")]
    | Annotated[GymSettings, Tag("gym")]
    | Annotated[MathSettings, Tag("math")]
    | Annotated[SudokuSettings, Tag("sudoku")]
    | Annotated[CustomTaskSettings, Tag("module:Class")],
    Discriminator(_kind),
]
"""The `task` section of a recipe."""


def build_task(name: str) -> Task:
    """A task with its default settings.

    Args:
        name: one of `TASKS`, or `module:Class` for a class of the user's own.

    Raises:
        UnmaskError: there is none of this name.
    """
    if ":" in name:
        try:
            return CustomTaskSettings(name=name).build()
        except ValidationError as error:
            raise UnmaskError(f"task {name}: write module:Class, e.g. my_tasks:Parity") from error
    if name not in TASKS:
        raise UnmaskError(f"task {name}: unknown{nearest(name, TASKS)}")
    return TASKS[name]().build()


__all__ = [
    "TASKS",
    "Code",
    "CodeSettings",
    "Countdown",
    "CountdownSettings",
    "CustomTaskSettings",
    "Example",
    "Gsm8k",
    "Gsm8kSettings",
    "Gym",
    "GymSettings",
    "Judgement",
    "Math",
    "MathSettings",
    "Sudoku",
    "SudokuSettings",
    "Task",
    "TaskSettings",
    "Verdict",
    "build_task",
    "judge_safely",
]

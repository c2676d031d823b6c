"""The papers' benchmarks by name: tasks whose evaluation set is the published one."""

from unmask.errors import UnmaskError, nearest
from unmask.tasks import TASKS, CodeSettings, Gsm8kSettings, MathSettings, Task, build_task

BENCHMARKS: dict[str, MathSettings | Gsm8kSettings | CodeSettings] = {
    "math500": MathSettings(evaluation="HuggingFaceH4/MATH-500"),
    "gsm8k": Gsm8kSettings(evaluation="openai/gsm8k:main"),
    "amc23": MathSettings(evaluation="math-ai/amc23"),
    "humaneval": CodeSettings(evaluation="openai/openai_humaneval"),
    "mbpp": CodeSettings(evaluation="google-research-datasets/mbpp:full"),
}
"""Name → settings of its task, in the order of the papers' columns; all on the test split. `mbpp` is the 500 problems
of its `full` configuration."""


def evaluation_task(name: str) -> Task:
    """A benchmark, a task with its default settings, or a class of the user's own (`module:Class`).

    Raises:
        UnmaskError: there is none of this name.
    """
    if name in BENCHMARKS:
        return BENCHMARKS[name].build()
    if name not in TASKS and ":" not in name:
        raise UnmaskError(f"task {name}: unknown{nearest(name, {*TASKS, *BENCHMARKS})}")
    return build_task(name)

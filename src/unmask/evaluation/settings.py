"""The settings that papers evaluate in, by name. Each is one table of theirs; its lengths are the table's columns."""

import copy
from collections.abc import Mapping
from typing import Any

from unmask.decoding import Decoding
from unmask.errors import UnmaskError, nearest
from unmask.tasks import Task

SETTINGS: dict[str, list[Decoding]] = {
    "forkgrpo": [Decoding(order="static", length=256, steps=256, block=32, temperature=0)],
    "rldf-dynamic": [
        Decoding(order="dynamic", threshold=0.9, length=length, block=32, temperature=0) for length in (128, 256, 512)
    ],
    "rldf-static": [
        Decoding(order="static", length=length, steps=length, block=32, temperature=0) for length in (128, 256, 512)
    ],
}
"""Name → decodings. ForkGRPO: appendix C. RLDF: tables 2 and 3, appendix C.4; it states no temperature, and tokens
are "unmasked greedily by highest probability", which is taken as 0."""


MATHEMATICS = "You need to put your final answer in \\boxed{}. This is the problem:\n{prompt}"
PROGRAM = (
    "{prompt}\nPlace your code within a single Python code block ```python ```. "
    "Do not include more than one code block."
)
INSTRUCTIONS: dict[str, dict[str, str]] = {
    "forkgrpo": {"gsm8k": "{prompt}", "math500": "{prompt}"},
    "rldf": {
        "gsm8k": MATHEMATICS,
        "math500": MATHEMATICS,
        "amc23": MATHEMATICS,
        "humaneval": PROGRAM,
        "mbpp": PROGRAM,
    },
}
"""First part of a setting's name → benchmark → what a model that was tuned for chat is told. ForkGRPO builds on
JustGRPO's code, which asks the question and says nothing else; RLDF compares with TraceRL, which prints these prompts
for LLaDA and Dream. Other benchmarks are asked in our own words."""


def worded(task: Task, task_name: str, setting: str) -> Task:
    """The task in a paper's words, or the task itself where the paper has none for it."""
    instruction = INSTRUCTIONS.get(setting.partition("-")[0], {}).get(task_name)
    if instruction is None:
        return task
    task = copy.copy(task)
    task.instruction = instruction
    return task


def setting(name: str, options: Mapping[str, Any]) -> list[Decoding]:
    """The decodings of a setting that agree with every option: a length picks a column, anything else changes nothing.

    Args:
        options: fields of `Decoding` that were asked for besides.

    Raises:
        UnmaskError: there is no such setting, or an option says something else than it does.
    """
    if name not in SETTINGS:
        raise UnmaskError(f"--setting {name}: unknown{nearest(name, SETTINGS)}")
    decodings = SETTINGS[name]
    for key, value in options.items():
        has = list(dict.fromkeys(getattr(decoding, key) for decoding in decodings))
        if value not in has:
            values = " or ".join("none" if one is None else str(one) for one in has)
            raise UnmaskError(f"{key}={value}: --setting {name} has {values}; leave one of them out")
        decodings = [decoding for decoding in decodings if getattr(decoding, key) == value]
    return decodings

"""Programs, judged by unit tests: MBPP, HumanEval, and rows of their kinds.

The program is taken from the response alone, and the reward is the share of tests that it passes. It runs in a
sandbox and nowhere else, and the verdict is found where it cannot reach (`sandbox/`).
"""

import os
import re
import textwrap
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from unmask.errors import UnmaskError
from unmask.tasks.code_tests import assertions, completed
from unmask.tasks.data import DataSetTask, Instruction, text_field
from unmask.tasks.responses import fenced_blocks
from unmask.tasks.sandbox import Examination, Kind, Limits, Sandbox, SandboxLostError, examine, shared_sandbox
from unmask.tasks.task import Example, Judgement, Task

EXPERT = "You are an expert Python programmer, and here is your task:"
"""How MBPP's authors begin a prompt."""


class CodeSettings(BaseModel):
    """Problems with unit tests."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    name: Literal["code"] = "code"
    """Programs, judged by unit tests."""
    train: str = "google-research-datasets/mbpp:full"
    """Training set, in MBPP's, HumanEval's or a like form: a file, or a hub name (`name:configuration`)."""
    train_split: str = "train"
    """Split of a training set from the hub."""
    evaluation: str = "google-research-datasets/mbpp:full"
    """Evaluation set, named likewise."""
    evaluation_split: str = "test"
    """Split of an evaluation set from the hub."""
    instruction: Instruction | None = None
    """What a model that was tuned for chat is told, `{prompt}` standing for the problem; none = our own words."""
    sandbox: Kind = "bubblewrap"
    """Where programs run: bubblewrap, or unsafe (limited, but with this machine's network and files)."""
    seconds: float = Field(6.0, gt=0, le=600)
    """Time to load a program, and time of each test."""
    memory_mib: int = Field(512, ge=64)
    """Memory of each process of a program, in MiB."""

    def build(self) -> Task:
        """The task."""
        return Code(self)


class Code(DataSetTask):
    """A row is a problem in one of these forms.

    - MBPP: `text` (or `prompt`), `test_list`, and where it has them `test_setup_code`, `test_imports`, `code`.
    - HumanEval: `prompt` (the beginning of the function), `test` (a function `check`), `entry_point`, and where it has
      it `canonical_solution`. The response may be the whole function or what follows the prompt.
    - Any other: `tests`, with the question in `prompt`. A test is a text of assertions, or a pair of `input` and
      `output` for a program that reads and prints.
    """

    settings: CodeSettings
    instruction = "Answer with the program in one ```python code block.\n"

    def __init__(self, settings: CodeSettings | None = None) -> None:
        super().__init__(settings or CodeSettings())
        self.limits = Limits(seconds=self.settings.seconds, memory_bytes=self.settings.memory_mib * 2**20)

    @property
    def sandbox(self) -> Sandbox:
        """Where programs run; its `kind` says how safely."""
        return shared_sandbox(self.settings.sandbox)

    @property
    def conditions(self) -> dict[str, str]:
        return {"sandbox": self.settings.sandbox}

    def problem(self, row: Mapping[str, Any]) -> Example:
        text_field(row, *(["prompt"] if "entry_point" in row else ["text", "prompt"]))
        return self.example(row)

    def example(self, row: Mapping[str, Any]) -> Example:
        if not _is_printing(row):
            try:
                _examination(row)
            except UnmaskError as error:
                raise UnmaskError(f"{_field(row)}: {error}") from error
        return row

    def prompt(self, example: Example) -> str:
        if "entry_point" in example:
            return str(example["prompt"])
        question = str(example.get("text") or example.get("prompt") or "")
        tests = [test for test in _tests(example) if isinstance(test, str)]
        if not tests:
            return question
        listed = "\n".join(tests)
        return f"{EXPERT} {question} Your code should pass these tests:\n\n{listed}\n"

    def reward(self, example: Example, response: str) -> float:
        if _is_printing(example):
            program = extract_program(response)
            passed = [self._prints(program, test) for test in _tests(example)]
        else:
            examination = _examination(example)
            program = extract_program(response, examination.names)
            programs = readings(program, _beginning(example), examination.names[0])
            passed = examine(self.sandbox, programs, examination, self.limits)
        return sum(passed) / len(passed)

    def judge_all(self, examples: Sequence[Example], responses: Sequence[str]) -> list[Judgement]:
        if not responses:
            return []
        # as many at a time as this worker has cores: programs that wait for one another would run out of time
        cores = len(os.sched_getaffinity(0)) // int(os.environ.get("LOCAL_WORLD_SIZE", 1))
        with ThreadPoolExecutor(max(1, cores)) as threads:
            return list(threads.map(self.judge, examples, responses))

    def solution(self, example: Example) -> str:
        if "canonical_solution" in example:
            code = f"{example['prompt']}{example['canonical_solution']}"
        elif "code" in example:
            code = str(example["code"]).replace("\r\n", "\n")
        else:
            return super().solution(example)
        return f"```python\n{code.rstrip()}\n```"

    def _prints(self, program: str, test: Mapping[str, Any]) -> bool:
        read = str(test["input"]).replace("\r\n", "\n")
        for _ in range(2):  # a job that is lost need not be this program's fault
            outcome = self.sandbox.run(program, read, self.limits)
            if outcome.ending != "lost":
                return outcome.is_success and _printed(outcome.output) == _printed(str(test["output"]))
        raise SandboxLostError


def extract_program(response: str, names: Sequence[str] = ()) -> str:
    """The last fenced Python block of a response, also one that is not closed; all of it where there is no fence.

    What comes after the program is no program: its output, or an example of its use. So a block that defines one of the
    `names` comes before others, one in Python before one without a language, and that before one in another.
    """
    blocks = [(language, textwrap.dedent(text)) for language, text in fenced_blocks(response)]
    python = [text for language, text in blocks if language == "python"]
    unnamed = [text for language, text in blocks if not language and text.strip()]
    defining = [text for language, text in blocks if language in ("python", "") and _defines(text, names)]
    chosen = defining or python or unnamed or [text for _, text in blocks]
    return chosen[-1] if chosen else response.lstrip("\ufeff")


def _defines(program: str, names: Sequence[str]) -> bool:
    """Whether a program seems to define one of the names. It is searched, not parsed: nobody may trust it."""
    either = "|".join(map(re.escape, names)) or "(?!)"
    return re.search(rf"^(?:(?:async +def|def|class) +(?:{either})\b|(?:{either})\s*[:=])", program, re.M) is not None


def readings(program: str, beginning: str, name: str = "") -> list[str]:
    """What a program can mean, the most likely first, when its prompt was the `beginning` of a function with this name.

    It is the whole function or its body, and a body may have lost the indentation of all lines or of its first.
    """
    if not beginning or not program.strip():
        return [program]
    body = program.lstrip("\n")
    bodies = [textwrap.indent(textwrap.dedent(body), "    "), f"    {body}"]
    if body[0].isspace():
        bodies.insert(0, body)
    continued = [f"{beginning.rstrip()}\n{text}" for text in bodies]
    # the beginning alone is a function, too, that returns nothing: not what the program has left out
    whole = f"{completed(beginning)}\nglobals().pop({name!r}, None)\n{program}"
    is_whole = re.search(r"^(?:async +def|def|class|from|import|@|[A-Za-z_]\w* *=)", program, re.MULTILINE)
    return [whole, *continued, program] if is_whole else [*continued, whole]


def _examination(example: Example) -> Examination:
    return assertions(
        tuple(map(str, _tests(example))),
        setup=str(example.get("test_setup_code") or ""),
        prelude="\n".join([*(example.get("test_imports") or []), completed(_beginning(example))]),
        entry_point=str(example.get("entry_point", "")),
    )


def _beginning(example: Example) -> str:
    """The beginning of the function that is asked for, where the prompt is one."""
    return str(example.get("prompt", "")) if "entry_point" in example else ""


def _is_printing(example: Example) -> bool:
    """Whether the tests are of a program that reads and prints."""
    tests = _tests(example)
    pairs = [test for test in tests if isinstance(test, Mapping)]
    if pairs and (len(pairs) < len(tests) or any({"input", "output"} - {*pair} for pair in pairs)):
        raise UnmaskError("tests: all must be texts, or all pairs of input and output")
    return bool(pairs)


def _tests(example: Example) -> list[Any]:
    tests = example[_field(example)]
    return list(tests) if isinstance(tests, list | tuple) else [tests]


def _field(example: Example) -> str:
    """Where a row's tests are."""
    for key in ("test_list", "tests", "test"):
        if example.get(key):
            return key
    raise UnmaskError(f"test_list, tests or test is missing or empty; the row has {', '.join(example)}")


def _printed(text: str) -> list[str]:
    """Lines without the white space at their ends, and without empty ones at the end."""
    return [line.rstrip() for line in text.rstrip().splitlines()]

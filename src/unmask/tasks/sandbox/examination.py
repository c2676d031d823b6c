"""A candidate program examined by tests: one sandboxed job holds the program, another the tests."""

import json
import socket
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

from unmask.errors import UnmaskError
from unmask.tasks.sandbox.sandbox import Limits, Outcome, Sandbox, SandboxLostError

TIME_LIMITS = 3
"""Time of a whole examination, in limits of one test: so much can endless loops in several tests cost."""


@dataclass(frozen=True)
class Step:
    """A piece of an examination."""

    source: str
    """Python statements, run in one namespace with those of the steps before."""
    is_test: bool
    """A test passes when it raises nothing; what is no test is done for the tests after it."""


@dataclass(frozen=True, kw_only=True)
class Examination:
    """Tests for a candidate program."""

    prelude: str = ""
    """Imports and helpers of the tests, run before them."""
    names: tuple[str, ...]
    """Global names that mean the candidate's; in the tests `candidate` is another word for the first."""
    steps: tuple[Step, ...]
    """In order; at least one is a test."""


def examine(
    sandbox: Sandbox, programs: Sequence[str], examination: Examination, limits: Limits | None = None
) -> list[bool]:
    """Which tests pass.

    A test in which the candidate ends its process or takes too long fails, and the tests after it get a new process.

    Args:
        programs: readings of one response; the first that compiles is the candidate.
        limits: of the candidate's process; the time is for loading, and for each test.

    Raises:
        UnmaskError: there is no sandbox, or the tests themselves are broken.
        SandboxLostError: twice.
    """
    limits = limits or Limits()
    passed: dict[int, bool] = {}
    tests = [index for index, step in enumerate(examination.steps) if step.is_test]
    deadline = time.monotonic() + TIME_LIMITS * limits.seconds
    may_repeat = True
    while len(passed) < len(tests) and (left := deadline - time.monotonic()) > 0:
        outcome = _attempt(sandbox, programs, examination, limits, passed, left)
        if outcome.ending == "lost":  # which need not be this candidate's fault
            if not may_repeat:
                raise SandboxLostError
            may_repeat = False
            deadline = time.monotonic() + TIME_LIMITS * limits.seconds
            continue
        first, *lines = outcome.output.splitlines() or [""]
        if first.startswith("broken "):
            raise UnmaskError(f"code: the tests of {', '.join(examination.names)} do not start: {first[7:]}")
        if first != "loaded":
            break
        passed |= {int(index): verdict == "1" for index, verdict in (line.split() for line in lines if line != "done")}
        if lines[-1:] != ["done"]:  # the process was lost in the first test without a verdict
            passed[next(index for index in tests if index not in passed)] = False
    return [passed.get(index, False) for index in tests]


def _attempt(
    sandbox: Sandbox,
    programs: Sequence[str],
    examination: Examination,
    limits: Limits,
    passed: dict[int, bool],
    seconds: float,
) -> Outcome:
    """What the examiner writes about the tests that have no verdict yet, with new processes."""
    steps = [(step.source, step.is_test, index in passed) for index, step in enumerate(examination.steps)]
    tests = {"prelude": examination.prelude, "names": examination.names, "steps": steps}
    arguments = {"seconds": min(limits.seconds, seconds), "tests": json.dumps(tests)}
    whole = replace(limits, seconds=seconds)
    asked, answered = socket.socketpair()
    with (
        sandbox.job("candidate", {"programs": list(programs)}, whole, answered) as candidate,
        sandbox.job("examiner", arguments, whole, asked) as examiner,
    ):
        outcome = examiner.wait()
        is_lost = candidate.end().ending == "lost"
    return replace(outcome, ending="lost") if is_lost else outcome

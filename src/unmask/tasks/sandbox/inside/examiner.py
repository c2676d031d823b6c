"""The job that holds the tests: it runs them on a candidate that lives in another sandboxed process.

A name of the candidate's is a `Remote` here: calling it sends plain values and waits for plain values. So comparing,
counting and deciding all happen in this process, into which no code of the candidate's comes.
"""

import builtins
import contextlib
import json
import os
import socket
import time
from typing import Any

from unmask.tasks.sandbox.inside import plain

ALIAS = "candidate"


class Lost(BaseException):
    """The candidate's process is gone or too late. Not an `Exception`, so that a test does not catch it."""


class Remote:
    """A value that stays in the candidate's process.

    It is called, iterated and read there, but compares by identity here. What would tell the candidate the expected
    value, and let it decide, is never asked of it: equality, order, `in`, arithmetic.
    """

    def __init__(self, examiner: "Examiner", reference: list[Any]) -> None:
        vars(self).update(_examiner=examiner, _reference=reference)

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        return self._examiner.ask("call", (self, *arguments), keywords)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return self._examiner.ask("get", (self, name))

    def __setattr__(self, name: str, value: Any) -> None:
        self._examiner.ask("set", (self, name, value))

    def __getitem__(self, key: Any) -> Any:
        return self._examiner.ask("item", (self, key))

    def __setitem__(self, key: Any, value: Any) -> None:
        self._examiner.ask("set_item", (self, key, value))

    def __iter__(self) -> Any:
        return self._examiner.ask("iter", (self,))

    def __next__(self) -> Any:
        return self._examiner.ask("next", (self,))

    def __len__(self) -> int:
        return int(self._examiner.ask("len", (self,)))

    def __bool__(self) -> bool:
        return self._examiner.ask("bool", (self,)) is True

    def __str__(self) -> str:
        return str(self._examiner.ask("str", (self,)))

    def __repr__(self) -> str:
        return str(self._examiner.ask("repr", (self,)))


class Examiner:
    """The tests' side of the calls.

    Args:
        channel: to the candidate.
        report: file for the verdicts. Not standard output: a test may print what the candidate returned.
        seconds: that a test may take.
    """

    def __init__(self, channel: socket.socket, report: int, seconds: float) -> None:
        self.channel, self.report, self.seconds = channel, report, seconds
        self.received = bytearray()
        self.remotes: dict[int, Remote] = {}
        self.functions: list[Any] = []
        self.deadline = time.monotonic() + seconds
        self.is_lost = False

    def ask(self, operation: str, arguments: tuple[Any, ...], keywords: dict[str, Any] | None = None) -> Any:
        """Have something done in the candidate's process, and serve the calls that come back meanwhile."""
        self.send(["ask", operation, list(arguments), keywords or {}])
        while True:
            kind, *rest = self.receive()
            if kind == "return":
                if operation == "call":
                    given = [*arguments, *(keywords or {}).values()]
                    for mine, theirs in zip(given, rest[1]):  # noqa: B905  # the sandbox may have an older Python
                        _update(mine, theirs)
                return rest[0]
            if kind == "raise":
                raise plain.exception(*rest)
            try:
                answer = ["return", self.functions[rest[0]](*rest[1])]
            except Exception as error:
                answer = ["raise", *plain.describe(error)]
            self.send(answer)

    async def wait_for(self, coroutine: Remote) -> Any:
        """What the candidate's coroutine comes to; all of it runs there."""
        return self.ask("await", (coroutine,))

    def send(self, message: list[Any]) -> None:
        line = plain.dumps(message, self.refer)
        try:
            self.channel.settimeout(self.left())
            self.channel.sendall(line)
        except OSError as error:
            raise self.lost() from error

    def receive(self) -> list[Any]:
        """The next message; what cannot be read counts as a candidate that is gone."""
        start = 0
        try:
            while (end := self.received.find(b"\n", start)) < 0:
                start = len(self.received)
                self.channel.settimeout(self.left())
                part = self.channel.recv(1 << 16)
                if not part:
                    raise self.lost()
                self.received += part
            line = bytes(self.received[:end])
            del self.received[: end + 1]
            message = plain.loads(line, self.resolve)
            if type(message) is not list or message[0] not in ("loaded", "return", "raise", "call"):
                raise self.lost()
        except Exception as error:
            raise self.lost() from error
        return message

    def left(self) -> float:
        if (left := self.deadline - time.monotonic()) <= 0:
            raise self.lost()
        return left

    def lost(self) -> Lost:
        """The candidate is lost for good, even where the test catches this: `try: f(1)`, `except: pass`."""
        self.is_lost = True
        return Lost()

    def refer(self, value: Any) -> list[Any]:
        if isinstance(value, Remote):
            return list(value._reference)
        if hasattr(type(value), "__next__"):
            self.functions.append(value.__next__)
            return ["iterator", len(self.functions) - 1]
        if not callable(value):
            raise TypeError(f"a test cannot hand a {type(value).__name__} to the candidate")
        name = getattr(value, "__name__", "")
        if getattr(builtins, name, None) is value:
            return ["builtin", name]
        self.functions.append(value)
        return ["function", len(self.functions) - 1]

    def resolve(self, data: list[Any]) -> Any:
        kind, index = data
        if kind == "builtin" and isinstance(found := vars(builtins)[index], type):
            return found
        if kind not in ("object", "coroutine") or type(index) is not int:
            raise ValueError(kind)
        remote = self.remotes.setdefault(index, Remote(self, ["object", index]))
        return self.wait_for(remote) if kind == "coroutine" else remote

    def write(self, line: str) -> None:
        os.write(self.report, f"{line}\n".encode())

    def examine(self, prelude: str, names: list[str], steps: list[list[Any]]) -> None:
        """Run the steps in order, and report a line for every test: its index and 1 or 0.

        Args:
            prelude: imports and helpers of the tests.
            names: that mean the candidate's; `candidate` is another word for the first of them.
            steps: (source, is a test, is done already) each; what is no test is done for the tests after it.
        """
        namespace: dict[str, Any] = {"__name__": "tests"}
        try:
            exec(prelude, namespace)
        except Exception as error:  # the data set's mistake, and not the candidate's
            self.write(f"broken {type(error).__name__}: {error}")
            return
        if self.receive() != ["loaded"]:
            return
        self.write("loaded")
        # not asked of the candidate before a test needs it: a missing function fails tests, not the examination
        namespace.update({name: Remote(self, ["name", name]) for name in names})
        namespace[ALIAS] = namespace[names[0]]
        for index, (source, is_test, is_done) in enumerate(steps):
            if is_done:
                continue
            self.deadline = time.monotonic() + self.seconds
            try:
                exec(source, namespace)
                is_passed = True
            except Exception:
                is_passed = False
            if self.is_lost:
                raise Lost
            if is_test:
                self.write(f"{index} {is_passed:d}")
        self.write("done")


def _update(mine: Any, theirs: Any) -> None:
    """Do to an argument what the call did to its copy."""
    for kind in plain.MUTABLE:
        if isinstance(mine, kind) and isinstance(theirs, kind):
            mine.clear()
            getattr(mine, "extend" if hasattr(mine, "extend") else "update")(theirs)


def examine(channel: socket.socket, report: int, seconds: float, tests: str) -> None:
    """The whole job; `tests` is the JSON of `Examiner.examine`'s arguments."""
    with contextlib.suppress(Lost):
        Examiner(channel, report, seconds).examine(**json.loads(tests))

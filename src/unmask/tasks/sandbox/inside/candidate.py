"""The job that holds the candidate program: it loads the program, then answers calls until nobody asks any more.

It knows neither the tests nor the values they expect. The program may tamper with everything here; all that
it can do that way is to answer with other values.
"""

import builtins
import importlib
import json
import operator
import socket
import sys
import types
from typing import Any, Iterator  # noqa: UP035  # the sandbox may have an older Python

from unmask.tasks.sandbox.inside import plain

NAME = "solution"
"""`__name__` of the program: what it keeps under `if __name__ == "__main__"` is not run."""

OPERATIONS: dict[str, Any] = {
    "get": getattr,
    "set": setattr,
    "item": operator.getitem,
    "set_item": operator.setitem,
    "iter": iter,
    "next": next,
    "len": len,
    "bool": bool,
    "str": str,
    "repr": repr,
    "await": lambda coroutine: importlib.import_module("asyncio").run(coroutine),
}


class Candidate:
    """The program's side of the calls."""

    def __init__(self, channel: socket.socket) -> None:
        self.channel = channel
        self.lines = channel.makefile("rb")
        self.objects: list[Any] = []
        self.numbers: dict[int, int] = {}

    def refer(self, value: Any) -> list[Any]:
        """A reference to a value that is not plain: it stays here."""
        name = getattr(value, "__name__", "")
        if isinstance(value, type) and vars(builtins).get(name) is value:
            return ["builtin", name]
        number = self.numbers.setdefault(id(value), len(self.objects))  # kept, so no other has this id
        if number == len(self.objects):
            self.objects.append(value)
        return ["coroutine" if isinstance(value, types.CoroutineType) else "object", number]

    def resolve(self, data: list[Any]) -> Any:
        """A value of ours that comes back, or a function or iterator of the examiner's that can be used from here."""
        kind, index = data
        if kind == "object":
            return self.objects[index]
        if kind == "name":
            return vars(sys.modules[NAME])[index]
        if kind == "builtin":
            return getattr(builtins, index)
        if kind == "iterator":
            return self.pull(index)
        return lambda *arguments: self.call_back(index, arguments)

    def pull(self, index: int) -> Iterator[Any]:
        """The items of an iterator of the examiner's."""
        while True:
            try:
                item = self.call_back(index, ())
            except StopIteration:
                return
            yield item

    def call_back(self, index: int, arguments: tuple[Any, ...]) -> Any:
        """Have the examiner call a function that it handed over."""
        self.send(["call", index, arguments])
        return self.serve_until_answer()

    def send(self, message: list[Any]) -> None:
        self.channel.sendall(plain.dumps(message, self.refer))

    def serve_until_answer(self) -> Any:
        """Answer calls until the answer to our own comes."""
        while line := self.lines.readline():
            kind, *rest = json.loads(line)[1:]  # a list is written after its kind
            if kind == "ask":
                self.channel.sendall(self.answer(rest))
            elif kind == "return":
                return plain.decode(rest[0], self.resolve)
            else:
                raise plain.exception(*(plain.decode(part, self.resolve) for part in rest))
        raise SystemExit

    def answer(self, asked: list[Any]) -> bytes:
        """Do what was asked; the value, with lists, dicts and sets as the call left them."""
        try:
            operation, arguments, keywords = (plain.decode(part, self.resolve) for part in asked)
            if operation == "call":
                value = arguments[0](*arguments[1:], **keywords)
            else:
                value = OPERATIONS[operation](*arguments)
            given = [*arguments, *keywords.values()] if operation == "call" else []
            changed = [item if isinstance(item, plain.MUTABLE) else None for item in given]
            return plain.dumps(["return", value, changed], self.refer)
        except BaseException as error:
            return plain.dumps(["raise", *plain.describe(error)], self.refer)


def load(programs: list[str]) -> None:
    """Run the first of the programs that compiles; they are readings of one response."""
    module = types.ModuleType(NAME)
    sys.modules[NAME] = module
    for last, program in enumerate(programs, 1 - len(programs)):
        try:
            code = compile(program, NAME, "exec")
        except (SyntaxError, ValueError):
            if last == 0:
                raise
        else:
            exec(code, vars(module))
            return


def serve(channel: socket.socket, programs: list[str]) -> None:
    """The whole job."""
    candidate = Candidate(channel)
    load(programs)
    candidate.send(["loaded"])
    candidate.serve_until_answer()

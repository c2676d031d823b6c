"""The job that holds the candidate program: it loads the program, then answers calls until nobody asks any more.

It knows neither the tests nor the values they expect. The program may tamper with everything here; all that
it can do that way is to answer with other values.
"""

import builtins
import json
import operator
import socket
import sys
import types
from typing import Any

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
    "str": str,
    "repr": repr,
}


class Candidate:
    """The program's side of the calls."""

    def __init__(self, channel: socket.socket) -> None:
        self.channel = channel
        self.lines = channel.makefile("rb")
        self.objects: list[Any] = []

    def refer(self, value: Any) -> list[Any]:
        """A reference to a value that is not plain: it stays here."""
        name = getattr(value, "__name__", "")
        if isinstance(value, type) and vars(builtins).get(name) is value:
            return ["builtin", name]
        for index, known in enumerate(self.objects):
            if known is value:
                return ["object", index]
        self.objects.append(value)
        return ["object", len(self.objects) - 1]

    def resolve(self, data: list[Any]) -> Any:
        """A value of ours that comes back, or a function of the examiner's that can be called from here."""
        kind, index = data
        if kind == "object":
            return self.objects[index]
        if kind == "name":
            return vars(sys.modules[NAME])[index]
        if kind == "builtin":
            return getattr(builtins, index)
        return lambda *arguments: self.call_back(index, arguments)

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
                raise RuntimeError(rest[1])
        raise SystemExit

    def answer(self, asked: list[Any]) -> bytes:
        """Do what was asked; the value, with lists, dicts and sets as the call left them."""
        try:
            operation, arguments, keywords = (plain.decode(part, self.resolve) for part in asked)
            if operation == "call":
                value = arguments[0](*arguments[1:], **keywords)
            else:
                value = OPERATIONS[operation](*arguments)
            changed = [item if isinstance(item, (list, dict, set, bytearray)) else None for item in arguments]
            return plain.dumps(["return", value, changed if operation == "call" else []], self.refer)
        except BaseException as error:
            return plain.dumps(["raise", type(error).__name__, str(error)[:1000]], self.refer)


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

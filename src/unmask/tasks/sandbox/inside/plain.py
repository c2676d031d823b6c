"""Python values as JSON, without trust: decoding builds plain values of the standard types and runs no code.

Whatever a candidate returns is rebuilt by the examiner as an exact `int`, `str`, `list`, ... An instance of a
subclass comes out as its base, so an `__eq__` that always agrees is left behind in the candidate's process.
"""

import builtins
import collections
import datetime
import decimal
import fractions
import json
from typing import Any, Callable  # noqa: UP035  # the sandbox may have an older Python

SCALARS = (bool, int, float, str)
SEQUENCES: dict[str, Any] = {
    "list": (list, list),
    "tuple": (tuple, tuple),
    "set": (set, set),
    "frozenset": (frozenset, frozenset),
    "deque": (collections.deque, collections.deque),
    "keys": (type({}.keys()), lambda items: dict.fromkeys(items).keys()),
    "items": (type({}.items()), lambda items: dict(items).items()),
    "values": (type({}.values()), lambda items: dict(enumerate(items)).values()),
}
"""Tag → type, and how it is made from its items."""
MAPPINGS: dict[str, Any] = {"counter": collections.Counter, "ordered": collections.OrderedDict, "dict": dict}
"""Tag → type. All are dicts, so the plain one comes last."""
WRITTEN: dict[str, Any] = {
    "decimal": (decimal.Decimal, str, decimal.Decimal),
    "fraction": (fractions.Fraction, str, fractions.Fraction),
    "datetime": (datetime.datetime, datetime.datetime.isoformat, datetime.datetime.fromisoformat),
    "date": (datetime.date, datetime.date.isoformat, datetime.date.fromisoformat),
    "time": (datetime.time, datetime.time.isoformat, datetime.time.fromisoformat),
    "timedelta": (
        datetime.timedelta,
        lambda value: [value.days, value.seconds, value.microseconds],
        lambda parts: datetime.timedelta(*parts),
    ),
    "bytes": (bytes, bytes.hex, bytes.fromhex),
    "bytearray": (bytearray, bytearray.hex, bytearray.fromhex),
}
"""Tag → type, how it is written and how it is read. A datetime is a date too, so it comes first."""
MUTABLE = (list, dict, set, collections.deque, bytearray)
"""What a call may change and the caller then sees changed."""


class RemoteError(Exception):
    """The other side raised something that cannot be raised here, e.g. what ends a process."""


def dumps(value: Any, refer: Callable[[Any], list[Any]]) -> bytes:
    """A line of JSON. What is no plain value is written as `refer` has it, e.g. a reference."""
    return json.dumps(encode(value, refer)).encode() + b"\n"


def loads(line: bytes, resolve: Callable[[list[Any]], Any]) -> Any:
    """The value in a line.

    Raises:
        ValueError, TypeError and others of `Exception`: the line is no such value.
    """
    return decode(json.loads(line), resolve)


def encode(value: Any, refer: Callable[[Any], list[Any]]) -> Any:
    """JSON-like form: None, bool, float, str and short int as they are, all else a list that begins with its kind."""
    kind = type(value)
    if value is None or kind is bool or kind is float or kind is str:
        return value
    if isinstance(value, int):
        number = int.__index__(value)
        return number if abs(number) < 2**63 else ["int", int.__format__(number, "x")]
    if isinstance(value, float):
        return float.__float__(value)
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, complex):
        return ["complex", value.real, value.imag]
    for name, (base, _) in SEQUENCES.items():
        if isinstance(value, base):
            return [name, *(encode(item, refer) for item in base.__iter__(value))]
    for name, base in MAPPINGS.items():
        if isinstance(value, base):
            return [name, *([encode(key, refer), encode(item, refer)] for key, item in base.items(value))]
    for name, (base, write, _) in WRITTEN.items():
        if isinstance(value, base):
            return [name, write(value)]
    if kind is range:
        return ["range", value.start, value.stop, value.step]
    return refer(value)


def decode(data: Any, resolve: Callable[[list[Any]], Any]) -> Any:
    """The inverse of `encode`; `resolve` reads what `refer` wrote."""
    if data is None or type(data) in SCALARS:
        return data
    kind, *rest = data
    if kind in SEQUENCES:
        return SEQUENCES[kind][1](decode(item, resolve) for item in rest)
    if kind in MAPPINGS:
        return MAPPINGS[kind]({decode(key, resolve): decode(item, resolve) for key, item in rest})
    if kind in WRITTEN:
        return WRITTEN[kind][2](rest[0])
    if kind == "int":
        return int(rest[0], 16)
    if kind == "complex":
        return complex(*rest)
    if kind == "range":
        return range(*rest)
    return resolve(data)


def describe(error: BaseException) -> list[Any]:
    """An exception as the name of the nearest built-in kind, and its arguments; see `exception`."""
    kind = next(base for base in type(error).__mro__ if vars(builtins).get(base.__name__) is base)
    arguments = list(error.args)
    if not issubclass(kind, Exception) or str(exception(kind.__name__, arguments)) != str(error):
        arguments = [str(error)[:1000]]  # a kind with a text of its own
    return [kind.__name__, arguments]


def exception(name: str, arguments: list[Any]) -> Exception:
    """The built-in exception of that name, to be raised on this side."""
    kind = vars(builtins).get(name)
    if isinstance(kind, type) and issubclass(kind, Exception):
        try:
            return kind(*arguments)
        except Exception:  # not made from these
            pass
    return RemoteError(name, *arguments)

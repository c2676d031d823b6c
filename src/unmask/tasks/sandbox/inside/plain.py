"""Python values as JSON, without trust: decoding builds plain values of the standard types and runs no code.

Whatever a candidate returns is rebuilt by the examiner as an exact `int`, `str`, `list`, ... An instance of a
subclass comes out as its base, so an `__eq__` that always agrees is left behind in the candidate's process.
"""

import collections
import datetime
import decimal
import fractions
import json
from typing import Any, Callable  # noqa: UP035  # the sandbox may have an older Python

SCALARS = (bool, int, float, str)
SEQUENCES: dict[str, Any] = {
    "list": list,
    "tuple": tuple,
    "set": set,
    "frozenset": frozenset,
    "deque": collections.deque,
}
TEXTUAL: dict[str, Any] = {
    "decimal": (decimal.Decimal, str, decimal.Decimal),
    "fraction": (fractions.Fraction, str, fractions.Fraction),
    "datetime": (datetime.datetime, datetime.datetime.isoformat, datetime.datetime.fromisoformat),
    "date": (datetime.date, datetime.date.isoformat, datetime.date.fromisoformat),
    "time": (datetime.time, datetime.time.isoformat, datetime.time.fromisoformat),
    "bytes": (bytes, bytes.hex, bytes.fromhex),
    "bytearray": (bytearray, bytearray.hex, bytearray.fromhex),
}
"""Tag → type, how it is written and how it is read. A datetime is a date too, so it comes first."""


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
    for name, base in SEQUENCES.items():
        if isinstance(value, base):
            return [name, *(encode(item, refer) for item in base.__iter__(value))]
    if isinstance(value, dict):
        return ["dict", *([encode(key, refer), encode(item, refer)] for key, item in dict.items(value))]
    for name, (base, write, _) in TEXTUAL.items():
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
        return SEQUENCES[kind](decode(item, resolve) for item in rest)
    if kind == "dict":
        return {decode(key, resolve): decode(item, resolve) for key, item in rest}
    if kind in TEXTUAL:
        return TEXTUAL[kind][2](rest[0])
    if kind == "int":
        return int(rest[0], 16)
    if kind == "complex":
        return complex(*rest)
    if kind == "range":
        return range(*rest)
    return resolve(data)

"""What kind of thing an answer is: a value with its unit, a list, a point, an interval, a matrix, an equation."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TypeAlias

from unmask.tasks.equivalence.expressions import Expression, combined, read_expression, real
from unmask.tasks.equivalence.notations import NUMBER_WORDS, ROW_END
from unmask.tasks.equivalence.spelling import Unreadable, words_key
from unmask.tasks.equivalence.units import CURRENCIES, unit_key

Answer: TypeAlias = (
    "Words | Value | Numeral | Ratio | Many | Ordered | Interval | Union | Matrix | Named | Equation | Unequal"
)


@dataclass(frozen=True)
class Words:
    """Text, by its letters and digits."""

    key: str
    symbol: str = field(default="", compare=False)
    """The capital letter as it was written where it may be a symbol as well."""


@dataclass(frozen=True)
class Value:
    """A number or an expression, and its unit; empty when it has none."""

    expression: Expression
    unit: str
    text: str


@dataclass(frozen=True)
class Numeral:
    """Digits in a base that is written beside them, e.g. 52₈."""

    digits: str
    base: str


@dataclass(frozen=True)
class Ratio:
    """a : b, also a time of day."""

    parts: tuple[Answer, ...]
    is_time: bool


@dataclass(frozen=True)
class Many:
    """Values in any order: a set, or a list without brackets."""

    items: tuple[Answer, ...]
    is_set: bool


@dataclass(frozen=True)
class Ordered:
    """A point or vector."""

    items: tuple[Answer, ...]


@dataclass(frozen=True)
class Interval:
    """From `low` to `high`, with the brackets as written; `name` where it was written as an inequality."""

    brackets: str
    low: Answer
    high: Answer
    name: str = ""


@dataclass(frozen=True)
class Union:
    """Intervals and sets in any order."""

    parts: tuple[Answer, ...]


@dataclass(frozen=True)
class Matrix:
    rows: tuple[tuple[Answer, ...], ...]


@dataclass(frozen=True)
class Named:
    """A value with the name it was given: x = 5."""

    name: str
    value: Answer


@dataclass(frozen=True)
class Equation:
    """Two sides neither of which is a lone name."""

    left: Answer
    right: Answer


@dataclass(frozen=True)
class Unequal:
    """left ≠ right, or an inequality between expressions."""

    sign: str
    left: Answer
    right: Answer


_OPEN = {"(", "[", "{", "\\{", "\\langle"}
_CLOSE = {")", "]", "}", "\\}", "\\rangle"}
_PIECE = re.compile(r'"[^"]*"|\\[A-Za-z]+|\\.|.', re.DOTALL)
_NAME = re.compile(
    r'(?:"[^"]*"\s*|[A-Za-z]{1,4}|\\[A-Za-z]+)(?:_(?:\{[^{}]*\}|[A-Za-z0-9]))?\'*\s*(?:\(\s*[A-Za-z]\s*(?:,\s*[A-Za-z]\s*)*\))?'
)
_MATRIX = re.compile(
    r"[(\[]?\s*\\begin\s*\{((?:[pbB]|small)?matrix|array)\}(?:\{[lcr| ]*\})?(.*)\\end\s*\{\1\}\s*[)\]]?", re.DOTALL
)
_TIMES_MATRIX = re.compile(r"((?!\\begin).+?)\s*\*?\s*([(\[]?\s*\\begin.*)", re.DOTALL)
_LEFT_OUT = re.compile(rf"\s*{_NAME.pattern}\s*≠")
_BARS = re.compile(rf"\|\s*({_NAME.pattern})\s*\|")


def split(text: str, separators: str) -> list[tuple[str, str]]:
    """Parts of a text at separators outside all brackets, each with the separator before it (none for the first)."""
    depth, inside, parts = 0, 0, [("", "")]
    for piece in _PIECE.findall(text):
        inside += (piece == "\\begin") - (piece == "\\end")
        depth += (piece in _OPEN) - (piece in _CLOSE)
        if depth == 0 and inside == 0 and piece in separators:
            parts.append((piece, ""))
        else:
            parts[-1] = (parts[-1][0], parts[-1][1] + piece)
    return [(separator, part.strip()) for separator, part in parts]


def is_wrapped(text: str) -> bool:
    """Whether the bracket that opens the text closes at its end."""
    depth, pieces = 0, _PIECE.findall(text)
    for index, piece in enumerate(pieces):
        depth += (piece in _OPEN) - (piece in _CLOSE)
        if depth == 0:
            return index == len(pieces) - 1
    return False


def read(text: str) -> Answer:
    """An answer in the common notation.

    Raises:
        Unreadable: part of it is in no notation that is known here.
    """
    text = text.strip()
    if not text:
        raise Unreadable("empty")
    if re.fullmatch(r'\\reals|"(all )?(real numbers|reals)"', text, re.IGNORECASE):
        return Interval("()", read(r"-\infty"), read(r"\infty"))
    if re.fullmatch(r'"[^"]*"[\s.]*', text):
        return Words(words_key(text))
    if re.fullmatch(r"\(?[A-Z]\)?", text):
        return Words(words_key(text), text.strip("()"))
    if (name := _LEFT_OUT.match(text)) and not re.search("[=<>≤≥≠∪]", others := text.replace(name[0], "")):
        return _all_but(read(others))  # x ≠ 1, x ≠ 2
    if len(members := split(text, "∈")) == 2 and _NAME.fullmatch(members[0][1]):
        return read(members[1][1])
    parts = split(text, ",;")
    if len(parts) > 1:
        items = tuple(read(part) for _, part in parts)
        return _both(*items) if [separator for separator, _ in parts] == ["", ","] else Many(items, is_set=False)
    parts = split(text, "∪")
    if len(parts) > 1:
        return Union(tuple(read(part) for _, part in parts))
    if len(parts := split(text, "∖")) == 2 and parts[0][1] == "\\reals":
        return _all_but(read(parts[1][1]))
    if "≈" in text:
        exact, about = (part for _, part in split(text, "≈")[:2])
        return Named(exact, read(about)) if _NAME.fullmatch(exact) else read(exact)
    if len(relation := split(text, "=<>≤≥≠")) > 1:
        return _relation(relation)
    if matrix := _MATRIX.fullmatch(text):
        rows = [row for row in matrix[2].split(ROW_END) if row.strip()]
        cells = tuple(tuple(read(cell) for cell in row.split("&")) for row in rows)
        return cells[0][0] if [len(row) for row in cells] == [1] else Matrix(cells)
    if (times := _TIMES_MATRIX.fullmatch(text)) and _MATRIX.fullmatch(times[2]):
        return _times(read_expression("-1" if times[1] == "-" else times[1]), read(times[2]))
    if (bracketed := _bracketed(text)) is not None:
        return bracketed
    if numeral := re.fullmatch(r"([0-9A-F]*[0-9][0-9A-F]*)_(\w+)", re.sub(r'["\s{}()]', "", text)):
        base = NUMBER_WORDS.get(numeral[2], numeral[2])
        if base.isdigit():
            return Numeral(numeral[1], base)
    if "±" in text or "∓" in text:
        upper, lower = text.replace("±", "+").replace("∓", "-"), text.replace("±", "-").replace("∓", "+")
        return Many((read(upper), read(lower)), is_set=False)
    if len(parts := split(text, ":")) == 2:
        (_, left), (_, right) = parts
        return Ratio((read(left), read(right)), bool(re.fullmatch(r'\d\d?:\d\d(\s*"[^"]*")?', text)))
    return _value(text)


def _relation(parts: list[tuple[str, str]]) -> Answer:
    signs = [sign for sign, _ in parts[1:]]
    sides = [side for _, side in parts]
    if set(signs) == {"="}:
        if _NAME.fullmatch(sides[0]):
            return Named(re.sub(r"[\s\"]", "", sides[0]), read(sides[-1]))
        if _NAME.fullmatch(sides[-1]) and len(sides) == 2:
            return Named(re.sub(r"[\s\"]", "", sides[-1]), read(sides[0]))
        if re.fullmatch(r"\(\s*[A-Za-z](?:\s*,\s*[A-Za-z])+\s*\)", sides[0]):
            return read(sides[-1])  # (x, y) = (1, 2)
        return Equation(_left_side(sides[-2]), read(sides[-1]))
    if set(signs) <= {"<", "≤"} or set(signs) <= {">", "≥"}:
        if signs[0] in ">≥":
            sides.reverse()
            signs = ["≤" if sign == "≥" else "<" for sign in reversed(signs)]
        if len(sides) == 2 and (bars := _BARS.fullmatch(sides[0])):  # |x| < 3 is -3 < x < 3
            return _relation([("", f"-({sides[1]})"), (signs[0], bars[1]), (signs[0], sides[1])])
        if len(sides) == 2 and (bars := _BARS.fullmatch(sides[1])):
            below, above = [("", bars[1]), (signs[0], f"-({sides[0]})")], [("", sides[0]), (signs[0], bars[1])]
            return Union((_relation(below), _relation(above)))
        if len(sides) == 3 and _NAME.fullmatch(sides[1]):
            brackets = "(["[signs[0] == "≤"] + ")]"[signs[1] == "≤"]
            return Interval(brackets, read(sides[0]), read(sides[2]), sides[1])
        if len(sides) == 2 and _NAME.fullmatch(sides[0]):
            return Interval("(" + ")]"[signs[0] == "≤"], read(r"-\infty"), read(sides[1]), sides[0])
        if len(sides) == 2 and _NAME.fullmatch(sides[1]):
            return Interval("(["[signs[0] == "≤"] + ")", read(sides[0]), read(r"\infty"), sides[1])
    if len(signs) == 1:
        return Unequal(signs[0], read(sides[0]), read(sides[1]))
    raise Unreadable("a chain of relations")


def _left_side(text: str) -> Answer:
    """What stands before the last equals sign; words where it cannot be read, because the value after it may count."""
    try:
        return read(text)
    except Unreadable:
        return Words(words_key(text))


def _both(first: Answer, second: Answer) -> Answer:
    """x ≥ 2, x < 5 as one interval; all else stays a list."""
    if isinstance(first, Interval) and isinstance(second, Interval) and first.name == second.name != "":
        low, high = (first, second) if _is_infinite(first.high) else (second, first)
        ends = low.low, high.high
        if _is_infinite(low.high) and _is_infinite(high.low) and _in_order(ends) == ends:
            return Interval(low.brackets[0] + high.brackets[1], *ends, low.name)
    return Many((first, second), is_set=False)


def _is_infinite(end: Answer) -> bool:
    return isinstance(end, Value) and end.text.endswith("\\infty")


def _all_but(left_out: Answer) -> Answer:
    """The real numbers without a few values."""
    values = _in_order(left_out.items) if isinstance(left_out, Many) else (left_out,)
    if values is None:
        raise Unreadable("values without an order")
    ends = (read(r"-\infty"), *values, read(r"\infty"))
    return Union(tuple(Interval("()", *pair) for pair in pairwise(ends)))


def _in_order(answers: tuple[Answer, ...]) -> tuple[Answer, ...] | None:
    """From the smallest to the largest; none where they are not all real numbers."""
    places = []
    for answer in answers:
        place = real(answer.expression) if isinstance(answer, Value) else None
        if place is None:
            return None
        places.append(place)
    return tuple(answers[index] for index in sorted(range(len(places)), key=lambda index: places[index]))


def _times(factor: Expression, matrix: Answer) -> Answer:
    def cell(answer: Answer) -> Answer:
        if not isinstance(answer, Value):
            raise Unreadable("a multiple of something else than values")
        return Value(combined("*", factor, answer.expression), answer.unit, "")

    return Matrix(tuple(tuple(map(cell, row)) for row in matrix.rows)) if isinstance(matrix, Matrix) else cell(matrix)


def _bracketed(text: str) -> Answer | None:
    opened = next((bracket for bracket in ("\\{", "\\langle", "(", "[", "{") if text.startswith(bracket)), "")
    closed = next((bracket for bracket in ("\\}", "\\rangle", ")", "]", "}") if text.endswith(bracket)), "")
    if not opened or not closed or not is_wrapped(text):
        return None
    inner = text[len(opened) : len(text) - len(closed)]
    if opened == "{":
        return read(inner)
    if opened == "\\{":
        items = split(inner, ",;") if inner.strip() else []
        if condition := re.match(rf"\s*(?:{_NAME.pattern})\s*(?:∈\s*\\reals\s*)?[|:](.*)", inner):
            return read(condition[1])
        return Many(tuple(read(item) for _, item in items), is_set=True)
    items = split(inner, ",;")
    if len(items) == 1:
        return read(inner) if "∪" in inner else None  # brackets around an expression are the expression's
    answers = tuple(read(item) for _, item in items)
    if len(items) == 2 and opened in "([" and closed in ")]" and (opened + closed != "()" or "\\infty" in inner):
        return Interval(opened + closed, answers[0], answers[1])
    return Ordered(answers)


def _value(text: str) -> Value:
    text, unit = text.strip(), ""
    if (money := re.match(r'(-?)\s*"([^"\s]+)\s*([^"]*)"', text)) and unit_key(money[2]) in CURRENCIES:
        unit = unit_key(money[2])
        text = money[1] + (f'"{money[3]}"' if money[3] else "") + text[money.end() :]
    if found := _UNIT.search(text):
        if _DENIAL.search(found[0]):
            raise Unreadable("a value that is denied")
        text, unit = text[: found.start()].rstrip("* "), f"{unit_key(found[0])} {unit}".strip()
    if (found := re.search(r"\s*([%°])$", text)) and not re.search("sin|cos|tan|cot|sec|csc", text):
        text, unit = text[: found.start()], found[1]
    return Value(read_expression(text), unit, re.sub(r"\s", "", text))


_UNIT = re.compile(
    r'"[^"]*"(?:'
    r'(?:\^\s*\{?\s*-?\d|[/*]\s*(?:"[^"]*"|[A-Za-z]{1,3}(?![A-Za-z]))|"[^"]*"|[\s.{}])*'
    r'|(?<=for all")\s*[A-Za-z])$'
)
"""Words at the end, with powers, products and quotients of them; also `for all n`."""
_DENIAL = re.compile(r"\b(?:not|never|wrong|incorrect|false|or)\b", re.IGNORECASE)

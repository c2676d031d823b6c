"""What kind of thing an answer is: a value with its unit, a list, a point, an interval, a matrix, an equation."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TypeAlias

from unmask.tasks.equivalence.expressions import Expression, read_expression
from unmask.tasks.equivalence.spelling import ROW_END, Unreadable, unit_key, words_key

Answer: TypeAlias = (
    "Words | Value | Numeral | Ratio | Many | Ordered | Interval | Union | Matrix | Named | Equation | Unequal"
)


@dataclass(frozen=True)
class Words:
    """Text, by its letters and digits."""

    key: str


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
    r"[(\[]?\s*\\begin\s*\{([pbB]?matrix|array)\}(?:\{[lcr| ]*\})?(.*)\\end\s*\{\1\}\s*[)\]]?", re.DOTALL
)


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
    if re.fullmatch(r'\\reals|"(all )?real numbers"', text, re.IGNORECASE):
        return Interval("()", read(r"-\infty"), read(r"\infty"))
    if re.fullmatch(r'"[^"]*"[\s.]*', text) or re.fullmatch(r"\(?[A-Z]\)?", text):
        return Words(words_key(text))
    if (members := split(text, "∈")) and len(members) == 2:
        return read(members[1][1])
    parts = split(text, ",;")
    if len(parts) > 1:
        return Many(tuple(read(part) for _, part in parts), is_set=False)
    parts = split(text, "∪")
    if len(parts) > 1:
        return Union(tuple(read(part) for _, part in parts))
    if "≈" in text:
        exact, about = (part for _, part in split(text, "≈")[:2])
        return Named(exact, read(about)) if _NAME.fullmatch(exact) else read(exact)
    if len(relation := split(text, "=<>≤≥≠")) > 1:
        return _relation(relation)
    if matrix := _MATRIX.fullmatch(text):
        rows = [row for row in matrix[2].split(ROW_END) if row.strip()]
        return Matrix(tuple(tuple(read(cell) for cell in row.split("&")) for row in rows))
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


NUMBER_WORDS = {
    "zero": "0", "one": "1", "two": "2", "three": "3", "four": "4", "five": "5", "six": "6", "seven": "7", "eight": "8",
    "nine": "9", "ten": "10", "eleven": "11", "twelve": "12",
}  # fmt: skip


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
        return Equation(read(sides[-2]), read(sides[-1]))
    if set(signs) <= {"<", "≤"} or set(signs) <= {">", "≥"}:
        if signs[0] in ">≥":
            sides.reverse()
            signs = ["≤" if sign == "≥" else "<" for sign in reversed(signs)]
        if len(sides) == 3 and _NAME.fullmatch(sides[1]):
            brackets = "(["[signs[0] == "≤"] + ")]"[signs[1] == "≤"]
            return Interval(brackets, read(sides[0]), read(sides[2]), sides[1])
        if len(sides) == 2 and _NAME.fullmatch(sides[0]):
            return Interval("(" + ")]"[signs[0] == "≤"], read(r"-\infty"), read(sides[1]), sides[0])
        if len(sides) == 2 and _NAME.fullmatch(sides[1]):
            return Interval("(["[signs[0] == "≤"] + ")", read(sides[0]), read(r"\infty"), sides[1])
    if signs == ["≠"] and _NAME.fullmatch(sides[0]):
        value = read(sides[1])
        return Union((Interval("()", read(r"-\infty"), value), Interval("()", value, read(r"\infty"))))
    if len(signs) == 1:
        return Unequal(signs[0], read(sides[0]), read(sides[1]))
    raise Unreadable("a chain of relations")


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
    text = text.strip()
    unit = ""
    if text.startswith(('"$"', '-"$"', '- "$"')):
        text, unit = text.replace('"$"', "", 1), "$"
    elif currency := re.match(r'(-?\s*)"\$\s+([^"]*)"', text):
        text, unit = currency[1] + f'"{currency[2]}"' + text[currency.end() :], "$"
    if found := re.search(r'"[^"]*"[\s^0-9{}/"A-Za-z.*-]*$', text):
        text, unit = text[: found.start()].rstrip("* "), unit or unit_key(found[0])
    elif (found := re.search(r"\s*([%°])$", text)) and not re.search("sin|cos|tan|cot|sec|csc", text):
        text, unit = text[: found.start()], found[1]
    return Value(read_expression(text), unit, re.sub(r"\s", "", text))

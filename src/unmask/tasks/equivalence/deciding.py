"""The verdict on one pair of answers, with all the work that it takes: what runs inside a worker process.

Where this package reads both answers, it decides. Sums, products, integrals and limits, which it does not read, are
left to `math-verify`, whose yes is taken; its no is only a doubt. Nothing else is: it passes over what it does not
understand, so that `2, 3, \\ldots` would be right for `2, 3`. Only its LaTeX reader is used: the other evaluates text.
"""

import logging
import re
from functools import cache
from typing import Any

from unmask.tasks.equivalence.answers import Answer, Words, read
from unmask.tasks.equivalence.comparison import same
from unmask.tasks.equivalence.spelling import TooLarge, Unreadable, spell, words_key

LIBRARY_NOTATION = re.compile(r"\\(?:sum|prod|i*int|lim)(?![A-Za-z])")
"""What is left to math-verify."""


def decide(gold: str, answer: str) -> bool | None:
    """Whether `answer` says the same as `gold`; none when the values are too large to tell.

    Raises:
        Unreadable: one of them is in no notation that is read here.
    """
    try:
        expected, given = spell(gold), spell(answer)
        if _unspaced(expected) == _unspaced(given):
            return True
        if not re.search(r"\w|\\", given):
            return False
        if option := _OPTION.fullmatch(expected):
            if choice := _choice(given):
                return choice == option[1].lower()
            expected = option[2] if option[2].count('"') % 2 == 0 else f'"{option[2]}'
        wanted = _read(expected)
        if isinstance(wanted, Words):
            if len(wanted.key) > 1:
                return words_key(given) == wanted.key
            if (choice := _choice(given)) is not None:
                return choice == wanted.key
        return same(wanted, _read(given))
    except TooLarge:
        return None
    except (RecursionError, ValueError, ArithmeticError) as error:
        raise Unreadable(str(error)) from error


_OPTION = re.compile(r'"\(?([A-Z])[).:]\s*"?\s*(\S.*)')
"""An option of a multiple choice with its text: the letter and the text are both right."""


def _choice(spelled: str) -> str | None:
    """The letter of the one option that an answer names, `(C)`, also with the option's own text after it."""
    named = re.match(r'"?[(\[{]?\s*"?([A-Za-z])"?\s*(?:[.):\]}]|"?$)', spelled)
    if not named or re.search(r"[,;]|(?<![A-Za-z])[A-Z][.):\]]", spelled[named.end() :]):
        return None
    return named[1].lower()


def _unspaced(spelled: str) -> str:
    return re.sub(r"(?<!\d) | (?!\d)", "", spelled)


def _read(spelled: str) -> Answer:
    if re.fullmatch(r'["A-Za-z\s.\'!-]+', spelled) and '"' in spelled:  # words only, however they are quoted
        return read(f'"{spelled.replace(chr(34), "")}"')
    return read(spelled)


@cache
def math_verify() -> Any:
    """The library, imported once; it takes a second."""
    import math_verify

    logging.getLogger("math_verify").setLevel(logging.ERROR)  # it warns at every call that it has no time limit
    return math_verify


def decide_by_library(gold: str, answer: str) -> bool | None:
    """True where math-verify finds the answers equal, otherwise none. For `LIBRARY_NOTATION` alone."""
    library = math_verify()
    settings = [library.LatexExtractionConfig()]
    try:
        # its own time limits need the main thread's alarm; the worker has one that cannot be caught
        sides = [library.parse(f"${side}$", settings, parsing_timeout=None) for side in (gold, answer)]
        is_same = all(sides) and library.verify(*sides, float_rounding=15, timeout_seconds=None)
    except Exception:  # a border: it meets text that it was not written for with exceptions of all kinds
        return None
    return True if is_same else None

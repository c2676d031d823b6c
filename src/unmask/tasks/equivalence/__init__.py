"""Whether two mathematical answers are the same.

`spelling.py` brings notations together with the tables of `notations.py`, `units.py` knows units, `answers.py` finds
what kind of thing an answer is, `expressions.py` calculates, `comparison.py` holds the rules, `deciding.py` asks them
or math-verify, `workers.py` keeps all of it within a time limit. Not here: finding the answer in a response
(`tasks/responses.py`).
"""

import re
from fractions import Fraction
from functools import lru_cache

from unmask.tasks.equivalence import workers
from unmask.tasks.task import Verdict

_NUMBER = re.compile(r"[-+]?(?:[0-9]{1,3}(?:,[0-9]{3})+|[0-9]+)(?:\.[0-9]+)?")


@lru_cache(maxsize=65_536)
def compare(gold: str, answer: str) -> Verdict:
    """The verdict on an answer, the data set's being `gold`: LaTeX or plain text, without `\\boxed`.

    Takes microseconds for plain numbers and equal texts, milliseconds for most others, and never more than
    about 4 seconds: what takes longer is unsure, as is what is not understood.
    """
    gold, answer = gold.strip(), answer.strip()
    if gold == answer:
        return Verdict.RIGHT
    if _is_number(gold) and _is_number(answer):
        return Verdict.RIGHT if number(gold) == number(answer) else Verdict.WRONG
    return {True: Verdict.RIGHT, False: Verdict.WRONG, None: Verdict.UNSURE}[workers.ask(gold, answer)]


def _is_number(text: str) -> bool:
    return len(text) < 100 and _NUMBER.fullmatch(text) is not None


def number(text: str) -> Fraction | None:
    """The exact value of a plain decimal number, with or without thousands separators; none for any other text."""
    return Fraction(text.replace(",", "")) if _is_number(text) else None


__all__ = ["compare", "number"]

"""Errors that people read: one line that says what was given, where, and what would be right."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

MOST_LISTED = 40


class UnmaskError(ValueError):
    """A mistake in what a person gave us (a recipe, a file, a name); the message is one complete line.

    Broken invariants of our own code are `assert`, never this.
    """


def nearest(name: str, choices: Iterable[str]) -> str:
    """The end of an error message about an unknown name: the closest valid name, or a list of all of them.

    Examples:
        `nearest("forkgpro", ["forkgrpo", "wd1"])` is `"; did you mean forkgrpo?"`,
        `nearest("zzz", ["forkgrpo", "wd1"])` is `"; known: forkgrpo, wd1"`.
    """
    known = sorted(set(choices))
    close = get_close_matches(name, known, n=1, cutoff=0.6)
    if close:
        return f"; did you mean {close[0]}?"
    if not known:
        return "; none exist"
    listed = ", ".join(known[:MOST_LISTED])
    return f"; known: {listed}" + (", ..." if len(known) > MOST_LISTED else "")

"""Recipes compared honestly: the same task, start model, evaluation, seeds and budget, every run in its own folder.

`running.py` trains what is missing, `budget.py` says when a run ends, `result.py` is what came of it and how it is
written, `curves.py` draws accuracy over tokens. What recipes train on and with is theirs: nothing here tunes them.
"""

from unmask.comparison.budget import Budget
from unmask.comparison.result import ComparedRun, Comparison
from unmask.comparison.running import Watcher, compare

__all__ = ["Budget", "ComparedRun", "Comparison", "Watcher", "compare"]

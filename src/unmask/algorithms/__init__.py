"""One file an algorithm: its settings, its equations, and what it picks from credit, replay and objectives.

`algorithm.py` says what the trainer expects. To add one: write the file and add a line to `ALGORITHMS`. Shared code
never asks for an algorithm's name; when it wants to, a method on the algorithm is missing.
"""

from unmask.algorithms.algorithm import Actor, Algorithm, Experience, Prompts
from unmask.algorithms.forkgrpo import ForkGRPO, ForkGRPOSettings
from unmask.algorithms.justgrpo import JustGRPO, JustGRPOSettings

ALGORITHMS = {
    "forkgrpo": (ForkGRPOSettings, ForkGRPO),
    "justgrpo": (JustGRPOSettings, JustGRPO),
}
"""Name in a recipe → (settings, algorithm)."""

__all__ = [
    "ALGORITHMS",
    "Actor",
    "Algorithm",
    "Experience",
    "ForkGRPO",
    "ForkGRPOSettings",
    "JustGRPO",
    "JustGRPOSettings",
    "Prompts",
]

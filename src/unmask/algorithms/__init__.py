"""One file an algorithm: its settings, its equations, and what it picks from credit, replay and objectives.

`algorithm.py` says what the trainer expects. To add one: write the file and add it to
`ALGORITHMS` and `AlgorithmSettings` below. Shared code
never asks for an algorithm's name; when it wants to, a method on the algorithm is missing.
"""

from collections.abc import Callable
from typing import Annotated, Any

from pydantic import Field

from unmask.algorithms.algorithm import Actor, Algorithm, Experience, Plan, Prompts
from unmask.algorithms.forkgrpo import ForkGRPO, ForkGRPOSettings
from unmask.algorithms.justgrpo import JustGRPO, JustGRPOSettings
from unmask.algorithms.rldf import RLDF, RLDFSettings
from unmask.objectives import ObjectiveSettings

ALGORITHMS: dict[str, Callable[[Any, ObjectiveSettings], Algorithm]] = {
    "forkgrpo": ForkGRPO,
    "justgrpo": JustGRPO,
    "rldf": RLDF,
}
"""Name in a recipe → algorithm, made from its settings and the objective's."""

AlgorithmSettings = Annotated[ForkGRPOSettings | JustGRPOSettings | RLDFSettings, Field(discriminator="name")]
"""The `algorithm` section of a recipe."""

__all__ = [
    "ALGORITHMS",
    "RLDF",
    "Actor",
    "Algorithm",
    "AlgorithmSettings",
    "Experience",
    "ForkGRPO",
    "ForkGRPOSettings",
    "JustGRPO",
    "JustGRPOSettings",
    "Plan",
    "Prompts",
    "RLDFSettings",
]

"""One file an algorithm: its settings, its equations, and what it picks from credit, replay and objectives.

`algorithm.py` says what the trainer expects; `explore.py` (groups that are sampled together) and `thinning.py` (a
replay of reveal states, all of them or a few) are shared. To add an algorithm: write the file and add it to
`ALGORITHMS` and `AlgorithmSettings` below. Shared code never asks for an algorithm's name; when it wants to, a method
on the algorithm is missing.
"""

from collections.abc import Callable
from typing import Annotated, Any

from pydantic import Field

from unmask.algorithms.algorithm import Actor, Algorithm, Experience, Plan, Prompts
from unmask.algorithms.coupled_grpo import CoupledGRPO, CoupledGRPOSettings
from unmask.algorithms.diffu_grpo import DiffuGRPO, DiffuGRPOSettings
from unmask.algorithms.espo import ESPO, ESPOSettings
from unmask.algorithms.forkgrpo import ForkGRPO, ForkGRPOSettings
from unmask.algorithms.justgrpo import JustGRPO, JustGRPOSettings
from unmask.algorithms.rldf import RLDF, RLDFSettings
from unmask.algorithms.spg import SPG, SPGSettings
from unmask.algorithms.tracerl import TraceRL, TraceRLSettings
from unmask.algorithms.wd1 import WD1, WD1Settings
from unmask.algorithms.work import Outcome, Replayed
from unmask.objectives import ObjectiveSettings

ALGORITHMS: dict[str, Callable[[Any, ObjectiveSettings], Algorithm]] = {
    "coupled_grpo": CoupledGRPO,
    "diffu_grpo": DiffuGRPO,
    "espo": ESPO,
    "forkgrpo": ForkGRPO,
    "justgrpo": JustGRPO,
    "rldf": RLDF,
    "spg": SPG,
    "tracerl": TraceRL,
    "wd1": WD1,
}
"""Name in a recipe → algorithm, made from its settings and the objective's."""

AlgorithmSettings = Annotated[
    CoupledGRPOSettings
    | DiffuGRPOSettings
    | ESPOSettings
    | ForkGRPOSettings
    | JustGRPOSettings
    | RLDFSettings
    | SPGSettings
    | TraceRLSettings
    | WD1Settings,
    Field(discriminator="name"),
]
"""The `algorithm` section of a recipe."""

__all__ = [
    "ALGORITHMS",
    "ESPO",
    "RLDF",
    "SPG",
    "WD1",
    "Actor",
    "Algorithm",
    "AlgorithmSettings",
    "CoupledGRPO",
    "CoupledGRPOSettings",
    "DiffuGRPO",
    "DiffuGRPOSettings",
    "ESPOSettings",
    "Experience",
    "ForkGRPO",
    "ForkGRPOSettings",
    "JustGRPO",
    "JustGRPOSettings",
    "Outcome",
    "Plan",
    "Prompts",
    "RLDFSettings",
    "Replayed",
    "SPGSettings",
    "TraceRL",
    "TraceRLSettings",
    "WD1Settings",
]

"""Unmask: reinforcement learning for diffusion language models.

    model, tokenizer = unmask.load("tiny")
    rollout = unmask.decode(model, prompt_ids, prompt_mask, unmask.Decoding(length=16), generator=generator)
    result = unmask.train("tiny/forkgrpo", overrides=["trainer.steps=20"])
    comparison = unmask.compare(["tiny/forkgrpo", "tiny/justgrpo"], tokens=100_000)

Imports are lazy: nothing heavy loads before it is used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from unmask.comparison import compare
    from unmask.decoding import Decoding, Rollout, decode
    from unmask.errors import UnmaskError
    from unmask.models import load
    from unmask.runs import resume, train
    from unmask.tasks import Task

__version__ = "0.1.0"

_HOME = {
    "Decoding": "unmask.decoding",
    "Rollout": "unmask.decoding",
    "Task": "unmask.tasks",
    "UnmaskError": "unmask.errors",
    "compare": "unmask.comparison",
    "decode": "unmask.decoding",
    "load": "unmask.models",
    "resume": "unmask.runs",
    "train": "unmask.runs",
}

__all__ = ["Decoding", "Rollout", "Task", "UnmaskError", "compare", "decode", "load", "resume", "train"]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'unmask' has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOME])

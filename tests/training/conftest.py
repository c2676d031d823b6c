from collections.abc import Callable
from pathlib import Path

import pytest

SMALL = [
    "algorithm.group_size=4",
    "trainer.prompts_per_step=3",
    "trainer.checkpoint_every=3",
    "trainer.steps=6",
    "evaluation.every=3",
    "evaluation.examples=8",
    "model.dtype=float32",
]


@pytest.fixture
def small(tmp_path: Path) -> Callable[..., list[str]]:
    """Overrides that make a tiny recipe run in seconds, in a folder of its own."""

    def overrides(folder: str = "run", *more: str) -> list[str]:
        return [*SMALL, f"run.dir={tmp_path / folder}", *more]

    return overrides

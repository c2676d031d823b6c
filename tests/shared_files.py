"""Public data sets and reward cases that lie outside the repository; tests that need them are skipped without."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

SHARED = Path(__file__).parents[2] / "shared"


def shared_file(variable: str, folder: str, name: str) -> Path:
    """A file in the folder that an environment variable names, or else beside the repository."""
    path = Path(os.environ.get(variable, SHARED / folder)) / name
    if not path.exists():
        pytest.skip(f"{path} is absent; set {variable}")
    return path


def data_file(name: str) -> Path:
    return shared_file("UNMASK_DATA", "data", name)


def reward_cases(kind: str) -> list[dict[str, Any]]:
    """The cases of one kind: a task's fields, a response and the right verdict."""
    lines = shared_file("UNMASK_CASES", "cases", "rewards.jsonl").read_text().splitlines()
    return [case for case in map(json.loads, lines) if case["kind"] == kind]

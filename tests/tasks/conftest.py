"""What the tests of tasks share: a sandbox, and the public files that are not part of the project."""

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from unmask.errors import UnmaskError
from unmask.tasks.sandbox import Sandbox, shared_sandbox

SHARED = Path(__file__).parents[3] / "shared"


@pytest.fixture(scope="session")
def sandbox() -> Iterator[Sandbox]:
    """The shared bubblewrap sandbox, ended after the last test."""
    sandbox = shared_sandbox("bubblewrap")
    try:
        sandbox.start()
    except UnmaskError as error:
        pytest.skip(str(error))
    yield sandbox
    sandbox.close()


def _reader(variable: str, default: Path) -> Callable[[str], list[dict[str, Any]]]:
    def read(name: str) -> list[dict[str, Any]]:
        file = Path(os.environ.get(variable, default)) / name
        if not file.exists():
            pytest.skip(f"{file} is absent; set {variable} to the folder that holds {name}")
        return [json.loads(line) for line in file.read_text().splitlines()]

    return read


@pytest.fixture(scope="session")
def public_rows() -> Callable[[str], list[dict[str, Any]]]:
    """Reads a public benchmark file."""
    return _reader("UNMASK_DATA", SHARED / "data")


@pytest.fixture(scope="session")
def reward_cases() -> Callable[[str], list[dict[str, Any]]]:
    """Reads a file of responses with their right rewards."""
    return _reader("UNMASK_CASES", SHARED / "cases")

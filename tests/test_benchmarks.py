"""The benchmarks compare equals: what they time gives the same result. The times themselves are not tested."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"


@pytest.mark.slow
@pytest.mark.parametrize("name", ["replay", "decoding"])
def test_contestants_agree(name: str, tmp_path: Path) -> None:
    file = tmp_path / "result.json"
    command = [sys.executable, str(BENCHMARKS / f"{name}.py"), "--repeats", "1", "--json", str(file)]
    subprocess.run(command, check=True, capture_output=True)
    result = json.loads(file.read_text())
    assert all(value <= 1e-5 for key, value in result.items() if key.startswith("gradient"))
    assert result.get("row_forwards", 1) <= 1.02
    assert len(result) >= 3


@pytest.mark.slow
def test_a_tenth_of_the_states_by_confidence_is_no_noisier_than_a_quarter_of_them_at_random(tmp_path: Path) -> None:
    """30 draws of each; seen: a third of the error, with a standard error of a tenth."""
    file = tmp_path / "result.json"
    subprocess.run([sys.executable, str(BENCHMARKS / "subsampling.py"), "--json", str(file)], check=True)
    result = json.loads(file.read_text())
    assert result["confidence"] <= 1
    assert result["confidence_0.25"] < result["confidence_0.1"]


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("bwrap") is None, reason="bubblewrap is missing")
def test_sandboxes_print_the_same(tmp_path: Path) -> None:
    file = tmp_path / "result.json"
    command = [sys.executable, str(BENCHMARKS / "sandbox.py"), "--repeats", "1", "--programs", "8", "--json", str(file)]
    subprocess.run(command, check=True, capture_output=True)
    assert json.loads(file.read_text()).keys() >= {"sandbox", "programs_per_second"}

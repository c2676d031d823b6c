"""The benchmarks compare equals: what they time gives the same result. The times themselves are not tested."""

import importlib
import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from torch import Tensor

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Any]:
    """A benchmark, imported."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return importlib.import_module


def largest_difference(found: Tensor, expected: Tensor) -> float:
    return float((found - expected).abs().max() / expected.abs().max())


def test_the_published_structure_of_justgrpo_has_the_engines_gradients(module: Callable[[str], Any]) -> None:
    replay, common = module("replay"), module("common")
    rollout, advantage = replay.rollouts()
    model = common.tiny_model()
    found, expected = (
        replay.gradient_of(model, partial(run, model, rollout, advantage)) for run in (replay.ours, replay.published)
    )
    assert largest_difference(found, expected) <= 1e-5


def test_the_published_structure_of_rldf_has_the_engines_gradients(
    module: Callable[[str], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    rldf = module("rldf_replay")
    monkeypatch.setattr(rldf, "VOCABULARY", 256)
    monkeypatch.setattr("unmask.replay.engine.HEAD_CHUNK", {"cpu": 2**12})  # many chunks, as with a large vocabulary
    model, experience, plan = rldf.prepare()
    found, expected = (
        rldf.gradient_of(model, partial(run, model, experience, plan)) for run in (rldf.ours, rldf.published)
    )
    assert largest_difference(found, expected) <= 1e-5


def test_sharing_states_changes_nothing_but_what_is_run(module: Callable[[str], Any], tmp_path: Path) -> None:
    fast = module("fast")
    overrides = ["trainer.prompts_per_step=6"]
    plain, shared = (fast.Contestant(fast.FULL, overrides, tmp_path / name) for name in ("plain", "shared"))
    with fast.nothing_shared():
        plain.trainer.update()
    shared.trainer.update()
    (alone,), (together,) = plain.seen, shared.seen
    for key in ("reward/mean", "tokens/generated", "states/replayed", "tokens/replayed", "fork/step"):
        assert alone[key] == together[key]
    assert alone["loss"] == pytest.approx(together["loss"], rel=1e-4, abs=1e-6)
    assert alone["grad_norm"] == pytest.approx(together["grad_norm"], rel=1e-4)
    # every generated token costs a forward, and every state is replayed for itself
    assert alone["rows/forwarded"] == alone["tokens/generated"] > together["rows/forwarded"]
    assert alone["states/distinct"] == alone["states/replayed"] > together["states/distinct"]


@pytest.mark.slow
def test_both_ways_of_decoding_write_the_same_tokens(tmp_path: Path) -> None:
    file = tmp_path / "result.json"
    command = [sys.executable, str(BENCHMARKS / "decoding.py"), "--repeats", "1", "--json", str(file)]
    subprocess.run(command, check=True, capture_output=True)  # it compares them
    assert json.loads(file.read_text())["row_forwards"] <= 1.02


@pytest.mark.slow
def test_a_tenth_of_the_states_by_confidence_is_no_noisier_than_a_quarter_of_them_at_random(tmp_path: Path) -> None:
    """30 draws of each; seen: a third of the error, with a standard error of a tenth."""
    file = tmp_path / "result.json"
    subprocess.run([sys.executable, str(BENCHMARKS / "subsampling.py"), "--json", str(file)], check=True)
    result = json.loads(file.read_text())
    assert result["confidence"] <= 1
    assert result["confidence_0.25"] < result["confidence_0.1"]
    # all tokens of the states that sparse replay runs, against those of the drawn responses
    assert result["sparse_1"] < 0.75 * result["sparse_alone"]


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("bwrap") is None, reason="bubblewrap is missing")
def test_sandboxes_print_the_same(tmp_path: Path) -> None:
    file = tmp_path / "result.json"
    command = [sys.executable, str(BENCHMARKS / "sandbox.py"), "--repeats", "1", "--programs", "8", "--json", str(file)]
    subprocess.run(command, check=True, capture_output=True)
    assert json.loads(file.read_text()).keys() >= {"sandbox", "programs_per_second"}

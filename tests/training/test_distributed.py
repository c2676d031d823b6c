"""Two workers under torchrun compute what one does."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from unmask.runs import resume


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE"}


def command(workers: int, *arguments: str) -> list[str]:
    """`unmask` in one process, or under torchrun."""
    if workers == 1:
        return [sys.executable, "-m", "unmask", *arguments]
    launcher = [sys.executable, "-m", "torch.distributed.run", f"--nproc-per-node={workers}"]
    return [*launcher, f"--master-port={free_port()}", "-m", "unmask", *arguments]


@pytest.mark.slow
@pytest.mark.parametrize(
    "recipe", ["tiny/diffu_grpo", "tiny/forkgrpo", "tiny/forkgrpo_fast", "tiny/justgrpo", "tiny/spg", "tiny/wd1"]
)
def test_two_workers_give_the_same_run_as_one(recipe: str, tmp_path: Path) -> None:
    options = [
        "trainer.steps=2",
        "trainer.prompts_per_step=5",
        "trainer.checkpoint_every=0",
        "evaluation.every=0",
    ]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE"}
    for workers in (1, 2):
        run = [f"run.dir={tmp_path / str(workers)}"]
        launcher = [sys.executable, "-m", "torch.distributed.run", f"--nproc-per-node={workers}"]
        launcher += [f"--master-port={free_port()}", "-m", "unmask"]
        command = [
            *(launcher if workers > 1 else [sys.executable, "-m", "unmask"]),
            "train",
            recipe,
            *options,
            *run,
        ]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
    one, two = (
        [json.loads(line) for line in (tmp_path / workers / "metrics.jsonl").read_text().splitlines()]
        for workers in ("1", "2")
    )
    for alone, shared in zip(one, two, strict=True):
        assert alone["tokens/generated"] == shared["tokens/generated"]
        for key in (
            "reward/mean",
            "reward/std",
            "reward/solved",
            "groups/mixed",
            "loss",
            "grad_norm",
            "entropy",
        ):
            assert shared[key] == pytest.approx(alone[key], rel=1e-4, abs=1e-6), key
    weights = [load_file(tmp_path / w / "checkpoints" / "step-000002" / "model.safetensors") for w in ("1", "2")]
    for name in weights[0]:
        torch.testing.assert_close(weights[0][name], weights[1][name], rtol=0, atol=1e-5)


@pytest.mark.slow
def test_workers_that_are_terminated_stop_together_and_leave_a_resumable_run(tmp_path: Path) -> None:
    run = tmp_path / "run"
    options = ["trainer.steps=500", "trainer.prompts_per_step=2", "trainer.checkpoint_every=0", "evaluation.every=0"]
    arguments = command(2, "train", "tiny/justgrpo", *options, f"run.dir={run}")
    process = subprocess.Popen(arguments, env=ENVIRONMENT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + 120
        while not ((run / "metrics.jsonl").exists() and (run / "metrics.jsonl").read_text().count("\n") >= 2):
            assert time.monotonic() < deadline and process.poll() is None
            time.sleep(0.2)
        process.send_signal(signal.SIGTERM)
        process.wait(timeout=60)
    finally:
        process.kill()
    steps = len((run / "metrics.jsonl").read_text().splitlines())
    assert [path.name for path in (run / "checkpoints").iterdir()] == [f"step-{steps:06d}"]
    assert len(resume(run, [f"trainer.steps={steps + 1}"]).metrics) == steps + 1

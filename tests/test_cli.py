"""The command line as a person meets it: output, exit codes, one-line errors."""

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from pytest import CaptureFixture, MonkeyPatch

from unmask import cli


def run(monkeypatch: MonkeyPatch, *arguments: str) -> int:
    """Exit code of a command, run in this process."""
    monkeypatch.setattr(sys, "argv", ["unmask", *arguments])
    with pytest.raises(SystemExit) as stop:
        cli.main()
    return int(stop.value.code or 0)


def test_help_and_errors_start_without_torch() -> None:
    code = "import sys, unmask.cli; sys.exit('torch' in sys.modules or 'transformers' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_the_module_is_the_same_command() -> None:
    done = subprocess.run([sys.executable, "-m", "unmask", "--help"], capture_output=True, text=True, check=True)
    commands = ("train", "compare", "sft", "eval", "sample", "score", "filter", "diagnose", "doctor", "recipes")
    assert all(command in done.stdout for command in commands)


def test_recipes_are_listed_one_a_line(monkeypatch: MonkeyPatch, capsys: CaptureFixture[str]) -> None:
    assert run(monkeypatch, "recipes") == 0
    lines = capsys.readouterr().out.splitlines()
    assert any(line.startswith("tiny/forkgrpo ") for line in lines)
    assert all(len(line.split(maxsplit=1)) == 2 for line in lines)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["train", "tiny/forkgrop"], "did you mean tiny/forkgrpo?"),
        (["train", "tiny/forkgrpo", "algorithm.segment_wieght=2"], "did you mean segment_weight?"),
        (["train", "tiny/forkgrpo", "model.name=./nowhere"], "./nowhere: no such folder"),
        (["train"], "name a recipe"),
        (["train", "--resume", "nowhere"], "nowhere: not a run"),
        (["eval", "tiny", "--task", "sudok"], "task sudok: unknown; did you mean sudoku?"),
        (
            ["eval", "tiny", "--task", "sudoku", "--order", "statik"],
            "order=statik is unknown; did you mean static?",
        ),
        (["eval", "tiny", "--task", "sudoku", "--block", "5"], "block=5 does not divide length=16"),
        (["eval", "./nowhere", "--task", "sudoku"], "./nowhere: no such folder"),
        (["sample", "tini"], "did you mean tiny?"),
        (["sample", "tiny", ""], "none may be empty"),
        (["trane"], "Did you mean 'train'?"),
        (["eval", "tiny"], "Missing option '--task'"),
        (["eval", "tiny", "--task", "sudoku", "--examples", "0"], "--examples"),
        (["eval", "tiny", "--task", "sudoku", "--threshold", "0.3"], "only the dynamic order has one"),
        (["eval", "tiny", "--task", "sudoku", "--output", "nowhere/x"], "name a file in a folder that exists"),
        (["eval", "tiny", "--task", "sudoku:"], "write module:Class"),
        (["eval", "tiny", "--task", "unmask.nothing:X"], "there is no module unmask.nothing"),
        (["diagnose", "tiny", "--task", "sudok"], "task sudok: unknown; did you mean sudoku?"),
        (["diagnose", "tiny", "--task", "sudoku", "--temperature", "0"], "use a temperature above 0"),
        (
            ["diagnose", "tiny", "--task", "sudoku", "--windows", "1-4,5-16"],
            "windows end at step 16, but a response of 16 tokens has steps 0..15",
        ),
        (["diagnose", "tiny", "--task", "sudoku", "--windows", "5-8,1-4"], "after the one before"),
        (["diagnose", "tiny", "--task", "sudoku", "--windows", "4"], "write first-last steps"),
        (["diagnose", "tiny", "--task", "sudoku", "--gen-length", "4"], "too short for the paper's windows"),
        (["diagnose", "tiny", "--task", "sudoku", "--prompts", "2000"], "the task has 1024; use fewer"),
        (["diagnose", "tiny", "--task", "sudoku", "--prompts", "0"], "--prompts"),
        (["diagnose", "tiny", "--task", "sudoku", "--group", "1"], "--group"),
        (["diagnose", "tiny", "--task", "sudoku", "--output", "/proc/x"], "--output /proc/x: cannot be written"),
        (["train", "tiny/forkgrpo", "task={name: 'unmask.tasks:Task'}"], "Task does not define"),
        (["score", "nowhere.jsonl", "--task", "math"], "nowhere.jsonl: cannot be read"),
        (["score"], "Missing argument 'FILE.jsonl'"),
        (["eval", "tiny", "--task", "mth"], "task mth: unknown; did you mean math?"),
        (["train", "tiny/forkgrpo", "task={name: math, train: nowhere.jsonl}"], "nowhere.jsonl: no such file"),
        (["train", "tiny/forkgrpo", "run.dir=/proc/x"], "cannot be written"),
        (["train", "tiny/forkgrpo", "task.train_size=0"], "task.train_size=0"),
        (["sft", "tiny/sft", "sft.length=8"], "has 16 tokens; use a longer length"),
        (["sft", "tiny/sft", "model.lora={rank: 4}"], "leave lora and dtype out"),
    ],
)
def test_mistakes_are_one_line_and_exit_code_2(
    arguments: list[str], says: str, monkeypatch: MonkeyPatch, capsys: CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(monkeypatch, *arguments) == 2
    output = capsys.readouterr()
    assert output.err.startswith("unmask: ") and output.err.count("\n") == 1
    assert says in output.err
    assert list(tmp_path.iterdir()) == [], "nothing is written"


def test_ctrl_c_says_how_to_go_on(monkeypatch: MonkeyPatch, capsys: CaptureFixture[str], tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)

    def collect(*_: object) -> None:
        signal.raise_signal(signal.SIGTERM)

    monkeypatch.setattr("unmask.algorithms.ForkGRPO.collect", collect)
    assert run(monkeypatch, "train", "tiny/forkgrpo", "evaluation.every=0") == 130
    output = capsys.readouterr()
    assert "interrupted after step 0; continue with `unmask train --resume runs/tiny-forkgrpo`" in output.err
    assert (tmp_path / "runs" / "tiny-forkgrpo" / "checkpoints" / "step-000000").is_dir()


def test_an_answer_is_shown_as_it_is_and_judged_as_in_evaluation(
    monkeypatch: MonkeyPatch, capsys: CaptureFixture[str]
) -> None:
    monkeypatch.setattr("unmask.console.response_text", lambda *_: ["[/b] 3"])
    assert run(monkeypatch, "sample", "tiny", "1=") == 0
    assert "[/b] 3" in capsys.readouterr().out


def test_training_then_evaluating_its_checkpoint(
    monkeypatch: MonkeyPatch, capsys: CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    options = ["trainer.steps=1", "trainer.prompts_per_step=2", "evaluation.every=0"]
    assert run(monkeypatch, "train", "tiny/forkgrpo", *options) == 0
    assert "runs/tiny-forkgrpo" in capsys.readouterr().out.replace("\n", "")
    assert run(monkeypatch, "train", "tiny/forkgrpo", *options) == 0
    assert (tmp_path / "runs" / "tiny-forkgrpo-2" / "metrics.jsonl").exists()

    checkpoint = "runs/tiny-forkgrpo/checkpoints/step-000001"
    assert run(monkeypatch, "eval", checkpoint, "--task", "sudoku", "--examples", "8", "--output", "out.jsonl") == 0
    rows = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert len(rows) == 8 and rows[0].keys() >= {"puzzle", "response", "reward"}
    accuracy = sum(row["reward"] for row in rows) / 8
    assert f"{accuracy:.4f}" in capsys.readouterr().out


DIAGNOSE = ["diagnose", "tiny", "--task", "sudoku", "--prompts", "5", "--held-out", "2", "--output", "found"]


def test_a_diagnosis_is_shown_and_written_and_repeats(
    monkeypatch: MonkeyPatch, capsys: CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(monkeypatch, *DIAGNOSE) == 0
    out = capsys.readouterr().out
    assert "ΔV > 0 in failed references" in out and "forks in [2,3] [4,5] [6,7]" in out.replace("\n", " ")
    assert [path.name for path in tmp_path.iterdir()] == ["found"]
    files = sorted(path.name for path in (tmp_path / "found").iterdir())
    assert files == ["credit.svg", "diagnosis.json", "diagnosis.md", "tokens.svg"]
    picture = (tmp_path / "found" / "credit.svg").read_bytes()
    found = json.loads((tmp_path / "found" / "diagnosis.json").read_text())
    # 5 prompts with groups of 8 and 2 with groups of 32, at the roots and at forks within [2,3], [4,5] and [6,7]
    assert (16 + 13 + 11 + 9) * 104 <= found["tokens_generated"] <= (16 + 14 + 12 + 10) * 104
    assert found["tokens"]["count"] == 5 * 8 * 16 and found["states"] == 2 * 4
    assert [row["size"] for row in found["stability"]] == [2, 4, 8, 16]

    monkeypatch.setattr("unmask.diagnostics.diagnosis.ROWS", 16)  # sampled in other batches
    assert run(monkeypatch, *DIAGNOSE) == 0
    again = json.loads((tmp_path / "found" / "diagnosis.json").read_text())
    assert found.pop("tokens")["histogram"] == again.pop("tokens")["histogram"]  # probabilities differ by rounding
    assert found == again and picture == (tmp_path / "found" / "credit.svg").read_bytes()


def test_an_interrupted_diagnosis_leaves_nothing(
    monkeypatch: MonkeyPatch, capsys: CaptureFixture[str], tmp_path: Path
) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt  # what Ctrl-C becomes; the signal itself is ignored where tests run in the background

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("unmask.diagnostics.report.draw_tokens", interrupt)
    assert run(monkeypatch, *DIAGNOSE) == 130
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("order", ["left_to_right", "static", "dynamic"])
def test_trace_shows_the_grid_being_filled(order: str, monkeypatch: MonkeyPatch, capsys: CaptureFixture[str]) -> None:
    assert run(monkeypatch, "sample", "tiny", "--trace", "--order", order) == 0
    out = capsys.readouterr().out
    frames = out.split("step ")
    assert frames[0].count("░") == 16  # all hidden at first
    hidden = [frame.count("░") for frame in frames[:-1]]
    assert hidden == sorted(hidden, reverse=True) and hidden[-1] == 0
    assert "reward" in out


def test_a_prompt_of_the_users_own(monkeypatch: MonkeyPatch, capsys: CaptureFixture[str]) -> None:
    assert run(monkeypatch, "sample", "tiny", "3102200002100320=", "--temperature", "0") == 0
    assert len(capsys.readouterr().out.strip()) == 16


def test_doctor_tells_what_is_here(monkeypatch: MonkeyPatch, capsys: CaptureFixture[str]) -> None:
    assert run(monkeypatch, "doctor") == 0
    found = dict(line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines())
    assert found.keys() >= {"python", "torch", "transformers", "peft", "GPU", "bubblewrap", "sandbox"}
    assert found["sandbox"].startswith("bubblewrap works") or "set sandbox: unsafe" in found["sandbox"]

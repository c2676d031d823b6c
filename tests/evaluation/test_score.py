import json
import shutil
import sys
from pathlib import Path

import pytest

from tests.shared_files import reward_cases, shared_file
from unmask import cli
from unmask.errors import UnmaskError
from unmask.evaluation import score_file

GOOD = {"answer": "#### 5", "response": r"\boxed{5}"}
WRONG = {"answer": "#### 5", "response": r"\boxed{6}"}


def write(file: Path, *rows: object) -> Path:
    file.write_text("".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows))
    return file


def run(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr(sys, "argv", ["unmask", "score", *arguments])
    with pytest.raises(SystemExit) as stop:
        cli.main()
    return int(stop.value.code or 0)


def test_rewards_are_written_beside_the_file_row_by_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = write(tmp_path / "outputs.jsonl", GOOD, WRONG)
    assert run(monkeypatch, str(file), "--task", "gsm8k") == 0
    rows = [json.loads(line) for line in (tmp_path / "outputs.rewards.jsonl").read_text().splitlines()]
    assert rows == [{**GOOD, "reward": 1.0, "verdict": "right"}, {**WRONG, "reward": 0.0, "verdict": "wrong"}]
    assert "0.5000" in capsys.readouterr().out
    assert sorted(path.name for path in tmp_path.iterdir()) == ["outputs.jsonl", "outputs.rewards.jsonl"]


def test_a_half_broken_file_is_judged_where_it_can_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("unmask.console.console.width", 200)
    file = write(
        tmp_path / "outputs.jsonl", GOOD, "{", {"answer": "#### 5"}, {**GOOD, "answer": "five"}, {**GOOD, "response": 5}
    )
    assert run(monkeypatch, str(file), "--task", "gsm8k") == 1
    out = capsys.readouterr().out
    for line in (
        "row 2: not valid JSON",
        "row 3: response is missing",
        "row 4: answer='five': must end in #### and a number",
        "row 5: response=5: must be text",
    ):
        assert f"{file}: {line}" in out
    rows = [json.loads(line) for line in (tmp_path / "outputs.rewards.jsonl").read_text().splitlines()]
    assert [row.get("reward") for row in rows] == [1.0, None, None, None, None]
    assert [row.get("row") for row in rows] == [None, 2, 3, 4, 5]


def test_each_row_may_name_its_task(tmp_path: Path) -> None:
    file = write(
        tmp_path / "outputs.jsonl",
        {**GOOD, "kind": "gsm8k"},
        {"kind": "countdown", "numbers": [2, 3], "target": 6, "response": r"\boxed{2*3}"},
        {"kind": "mth", "response": "x"},
        GOOD,
    )
    scores = score_file(file, None)
    assert [judgement.reward for judgement in scores.judgements.values()] == [1, 1]
    assert scores.broken == {
        3: "task mth: unknown; did you mean math?",
        4: "kind is missing; name the task there or with --task",
    }


def test_unsure_rows_are_counted_and_listed(tmp_path: Path) -> None:
    file = write(tmp_path / "outputs.jsonl", {"answer": "1", "response": r"\boxed{9^{9^{9^9}}}"})
    scores = score_file(file, "math")
    assert scores.unsure == [1] and scores.accuracy == 0


def test_a_file_that_cannot_be_scored_leaves_nothing_behind(tmp_path: Path) -> None:
    for file, task, says in [
        (tmp_path / "absent.jsonl", "math", "cannot be read"),
        (write(tmp_path / "empty.jsonl"), "math", "no rows"),
        (tmp_path / "empty.jsonl", "mth", "did you mean math?"),
    ]:
        with pytest.raises(UnmaskError, match=says):
            score_file(file, task)
    assert [path.name for path in tmp_path.iterdir()] == ["empty.jsonl"]


def test_the_shared_cases_are_read_as_they_are(tmp_path: Path) -> None:
    file = tmp_path / "rewards.jsonl"
    shutil.copy(shared_file("UNMASK_CASES", "cases", "rewards.jsonl"), file)
    cases = [json.loads(line) for line in file.read_text().splitlines()]
    judgements = score_file(file, None).judgements
    for row, case in enumerate(cases, start=1):
        if case["kind"] in ("math", "gsm8k", "countdown", "sudoku"):
            assert judgements[row].reward == float(case["correct"]), case["why"]
    assert reward_cases("math")


def test_lines_that_are_no_text_and_kinds_that_fail_are_listed_and_the_others_judged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "half_written.py").write_text("def")
    monkeypatch.syspath_prepend(str(tmp_path))
    file = write(tmp_path / "rows.jsonl", {**GOOD, "kind": "gsm8k"}, {**GOOD, "kind": "half_written:Task"})
    file.write_bytes(file.read_bytes() + b'{"answer": "1", "response": "\xe9", "kind": "gsm8k"}\n')
    scores = score_file(file, None)
    assert list(scores.judgements) == [1]
    assert scores.broken[2].startswith("task.name=half_written:Task: importing half_written failed: invalid syntax")
    assert "not valid JSON: 'utf-8' codec can't decode byte 0xe9" in scores.broken[3]


def test_benchmarks_are_named_as_in_evaluation(tmp_path: Path) -> None:
    file = write(tmp_path / "rows.jsonl", {"answer": "5", "response": r"\boxed{5}"})
    assert score_file(file, "math500").accuracy == 1

import shutil
import sys
from pathlib import Path

import pytest

from unmask import cli
from unmask.decoding import Decoding
from unmask.evaluation import SETTINGS, Cell, Evaluation, Result, markdown, paper_tables, sampling
from unmask.evaluation.grid import fingerprint
from unmask.models.loading import SHIPPED
from unmask.tasks import Sudoku

GRID = ["tiny", "--task", "sudoku", "--setting", "rldf-dynamic", "--examples", "4", "--output", "found"]


def run(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr(sys, "argv", ["unmask", "eval", *arguments])
    with pytest.raises(SystemExit) as stop:
        cli.main()
    return int(stop.value.code or 0)


@pytest.fixture
def short_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    """RLDF's columns at lengths that the tiny model decodes in no time."""
    columns = [Decoding(order="dynamic", length=length, block=8, temperature=0) for length in (8, 16)]
    monkeypatch.setitem(SETTINGS, "rldf-dynamic", columns)


def result(model: str, task: str, setting: str, length: int, right: int) -> Result:
    """`right` of 4 responses are right."""
    is_right = (True,) * right + (False,) * (4 - right)
    evaluation = Evaluation(({},) * 4, ("",) * 4, tuple(map(float, is_right)), right, 0, is_right=is_right)
    return Result(Cell(model, task, Sudoku(), setting, Decoding(length=length), None), evaluation)


def test_tables_have_the_papers_layout() -> None:
    results = [
        result("base", "math", "dynamic", 256, 1),
        result("base", "math", "dynamic", 128, 2),
        result("base", "code", "dynamic", 128, 0),
        result("ours", "math", "dynamic", 128, 3),
        result("ours", "code", "dynamic", 128, 0),
        result("ours", "math", "static", 128, 4),
    ]
    dynamic, static = paper_tables(results)
    assert (dynamic.setting, static.setting) == ("dynamic", "static")
    assert dynamic.columns == (("math", 128), ("math", 256), ("code", 128))
    assert dynamic.rows == {"base": (0.5, 0.25, 0.0), "ours": (0.75, None, 0.0)}
    assert static.rows == {"ours": (1.0,)}

    page = markdown(results)
    assert "| model | math 128 | math 256 | code 128 |" in page
    assert "| base | 50.0 | 25.0 | **0.0** |" in page
    assert "| ours | **75.0** |  | **0.0** |" in page
    assert "| ours | 100.0 |" in page, "one model alone is not the best of anything"


@pytest.mark.usefixtures("short_settings")
def test_a_grid_is_kept_shown_and_not_done_twice(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copytree(SHIPPED["tiny"], tmp_path / "copy")
    assert run(monkeypatch, "./copy", *GRID) == 0
    out = capsys.readouterr().out
    assert "rldf-dynamic: accuracy in percent" in out and "responses in found" in out
    names = sorted(path.name for path in (tmp_path / "found").iterdir())
    assert names == sorted(
        ["evaluation.md"]
        + [
            f"{model}_sudoku_rldf-dynamic_{length}.{end}"
            for model in ("._copy", "tiny")
            for length in (8, 16)
            for end in ("jsonl", "settings.json")
        ]
    )
    page = (tmp_path / "found" / "evaluation.md").read_text()
    rows = [line.split("|")[2:] for line in page.splitlines() if line.startswith(("| ./copy |", "| tiny |"))]
    assert rows[0] == rows[1], "the same weights"
    monkeypatch.setattr(sampling, "sample", None)
    assert run(monkeypatch, "./copy", *GRID) == 0
    assert (tmp_path / "found" / "evaluation.md").read_text() == page


def test_samples_give_pass_at_k_on_the_page(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    page = tmp_path / "page.md"
    options = ["--temperature", "1", "--samples", "4", "--examples", "3", "--markdown", str(page)]
    assert run(monkeypatch, "tiny", "--task", "sudoku", *options) == 0
    assert "pass@4" in capsys.readouterr().out
    assert "| accuracy | 95 % | pass@2 | pass@4 |" in page.read_text()


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--setting", "rldf"], "--setting rldf: unknown; known: forkgrpo, rldf-dynamic, rldf-static"),
        (["--setting", "forkgrpo", "--steps", "128"], "steps=128: --setting forkgrpo has 256"),
        (["--setting", "forkgrpo", "--temperature", "1"], "temperature=1.0: --setting forkgrpo has 0.0"),
        (["--setting", "forkgrpo", "--setting", "forkgrpo"], "forkgrpo: named twice"),
        (["--samples", "4"], "temperature 0 gives the same response every time"),
        (["--setting", "forkgrpo", "--samples", "4"], "temperature 0 gives the same response every time"),
        (["--samples", "0"], "--samples"),
        (["--task", "sudoku"], "sudoku: named twice"),
        (["--setting", "rldf-dynamic", "--output", "out.jsonl"], "is one file for 3 evaluations; name a folder"),
        (["--output", "nowhere/out.jsonl"], "name a file in a folder that exists"),
        (["--output", "out.json"], "FILE.jsonl, or else a folder there"),
        (["--markdown", "nowhere/page.md"], "--markdown nowhere/page.md: name a file in a folder that exists"),
    ],
)
def test_mistakes_are_one_line(
    arguments: list[str],
    says: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(monkeypatch, "tiny", "--task", "sudoku", *arguments) == 2
    err = capsys.readouterr().err
    assert says in err and err.count("\n") == 1
    assert not any(tmp_path.iterdir())


def test_responses_of_another_seed_are_not_mixed_in(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    options = ["tiny", "--task", "sudoku", "--examples", "2", "--output", str(tmp_path / "out.jsonl")]
    assert run(monkeypatch, *options) == 0
    before = (tmp_path / "out.jsonl").read_text()
    assert run(monkeypatch, *options, "--seed", "1") == 2
    assert "out.jsonl: made with seed=0, not 1; name another file" in capsys.readouterr().err
    assert (tmp_path / "out.jsonl").read_text() == before


def test_a_fingerprint_is_of_the_weights_not_of_the_place(tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(SHIPPED["tiny"], copy)
    assert fingerprint(copy) == fingerprint(SHIPPED["tiny"])
    (weights,) = copy.glob("*.safetensors")
    content = bytearray(weights.read_bytes())
    content[-1] ^= 1
    weights.write_bytes(content)
    assert fingerprint(copy) != fingerprint(SHIPPED["tiny"])

"""`unmask filter`: which training examples are kept, how the file is read again, what interrupts and mistakes do."""

import json
import sys
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from torch import Tensor

import unmask
from unmask import cli
from unmask.errors import UnmaskError
from unmask.evaluation import Filtered, sampling
from unmask.tasks import TASKS, Example, Sudoku, SudokuSettings
from unmask.tasks.rendering import prompt_tokens
from unmask.tasks.sandbox import shared_sandbox
from unmask.training.order import ExampleOrder

SUDOKU = ["tiny", "--task", "sudoku", "--examples", "12", "--samples", "4", "--output", "kept.jsonl"]

FUNCTION = {"text": "Double it.", "test_list": ["assert double(2) == 4"], "code": "def double(x):\r\n    return 2 * x"}
ROWS: dict[str, list[dict[str, Any]]] = {
    "math": [
        {"problem": "$\\frac12 + 1$?\u2028", "answer": "\\frac{3}{2}", "level": 1},
        {"question": "What is $2^{10}$?", "answer": 1024},
        {"problem": "Nothing", "solution": "It is \\boxed{0}."},
    ],
    "gsm8k": [
        {"question": "One and one?", "answer": "1 + 1 = 2\nthat is all\n#### 2"},
        {"question": "Janet’s money?", "answer": "#### $1,200"},
        {"question": "None?", "answer": "0"},
    ],
    "code": [
        FUNCTION,
        {
            "prompt": "def one():\n",
            "entry_point": "one",
            "test": "assert one() == 1",
            "canonical_solution": "    return 1",
        },
        {"prompt": "Echo.", "tests": [{"input": "a\n", "output": "a\n"}]},
    ],
    "countdown": [
        {"numbers": [1, 2], "target": 3, "solution": "1+2"},
        {"nums": "4, 5", "target": "20", "solution": "4+5"},
        {"input": "7,8", "output": "1"},
    ],
    "sudoku": [
        {"Puzzle": "0043300002011300", "Solution": "2143341242311324"},
        {"puzzle": "0" * 16, "solution": "1234341221434321"},
        {"puzzle": "1" * 16},
    ],
}
RIGHT = {
    "math": ["\\boxed{1.5}", "\\boxed{1024}", "\\boxed{0}"],
    "gsm8k": ["\\boxed{2}", "#### 1200", "#### 0"],
    "code": ["```python\ndef double(x): return x + x\n```", "    return 1", "```python\nprint(input())\n```"],
    "countdown": ["\\boxed{2+1}", "\\boxed{5*4}", "\\boxed{8-7}"],
    "sudoku": ["2143341242311324", "1234341221434321", ""],
}
"""A right response to each of the rows."""


def run(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr(sys, "argv", ["unmask", "filter", *arguments])
    with pytest.raises(SystemExit) as stop:
        cli.main()
    return int(stop.value.code or 0)


def rows(path: str | Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in Path(path).read_text().splitlines()]


def read(task: str, file: str | Path) -> list[Example]:
    """A file as the task's training set."""
    settings: Any = TASKS[task]
    return [*settings(train=str(file)).build().train()]


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[list[str]], None]:
    """Makes the tiny model say these texts, one after the other."""
    monkeypatch.chdir(tmp_path)

    def say(texts: list[str]) -> None:
        waiting: Iterator[str] = iter(texts)

        def response_text(_: Any, response_ids: Tensor) -> list[str]:
            return [*islice(waiting, len(response_ids))]

        monkeypatch.setattr(sampling, "response_text", response_text)

    return say


def test_examples_that_were_right_at_least_once_are_kept_and_train_again(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(monkeypatch, *SUDOKU) == 0
    out = capsys.readouterr().out
    responses = rows("kept.responses.jsonl")
    assert [(row["example"], row["sample"]) for row in responses] == [(i, j) for i in range(12) for j in range(4)]
    made = Sudoku().train()
    right = [sum(Sudoku().reward(made[i], row["response"]) for row in responses[4 * i : 4 * i + 4]) for i in range(12)]
    kept = [made[index] for index in range(12) if right[index]]
    assert 0 < len(kept) < 12
    assert read("sudoku", "kept.jsonl") == rows("kept.jsonl") == kept
    assert f"│ 12        │ 0        │ {12 - len(kept):<11} │ 0               │ {len(kept):<4} │" in out
    assert f"{sum(right) / 48:.4f} of 48 responses are right" in out
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "kept.jsonl",
        "kept.responses.jsonl",
        "kept.responses.settings.json",
    ]
    (step,) = unmask.train(
        "tiny/justgrpo",
        overrides=["task.train=kept.jsonl", "trainer.steps=1", "trainer.prompts_per_step=2", "evaluation.every=0"],
    ).metrics
    assert step["tokens/generated"] > 0


@pytest.mark.parametrize("task", ROWS)
def test_what_is_kept_reads_as_the_same_examples(
    task: str, answers: Callable, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    if task == "code":
        try:
            shared_sandbox("bubblewrap").start()
        except UnmaskError as error:
            pytest.skip(str(error))
    Path("rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS[task]))
    first, second, _ = RIGHT[task]
    # one of two, both, none
    answers(["?", first, second, second, "?", "?"])
    options = ["tiny", "--task", task, "--data", "rows.jsonl", "--samples", "2", "--gen-length", "4"]
    assert run(monkeypatch, *options, "--output", "kept.jsonl") == 0
    examples = read(task, "rows.jsonl")
    assert len(examples) == 3 and read(task, "kept.jsonl") == examples[:2]
    assert "│ 1     │ 0      │ 1      │ 0      │ 0       │ 1      │" in capsys.readouterr().out
    monkeypatch.setattr(sampling, "sample", None)  # the responses are there
    assert run(monkeypatch, *options, "--at-most", "0.5", "--output", "kept.jsonl") == 0
    assert read(task, "kept.jsonl") == examples[:1]


def test_the_longest_are_those_that_training_leaves_out(
    answers: Callable, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    problems = [{"problem": "1" * length, "answer": "1"} for length in (5, 80, 20, 39, 40, 60)]
    Path("rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in problems))
    answers(["\\boxed{1}"] * 4)
    options = ["tiny", "--task", "math", "--data", "rows.jsonl", "--samples", "1", "--gen-length", "8"]
    assert run(monkeypatch, *options, "--max-tokens", "49", "--output", "kept.jsonl") == 0
    _, tokenizer = unmask.load("tiny")
    settings: Any = TASKS["math"]
    task = settings(train="rows.jsonl").build()
    order = ExampleOrder(task.train(), 0, lambda example: len(prompt_tokens(task, example, tokenizer)) + 8, 49)
    kept = rows("kept.jsonl")
    assert [len(row["problem"]) for row in kept] == [5, 20, 39, 40]
    assert order.left_out == 2
    assert sorted(len(order[prompt]["problem"]) for prompt in range(4)) == [5, 20, 39, 40]
    assert "│ 6         │ 2        │ 0           │ 0               │ 4    │" in capsys.readouterr().out
    assert len(rows("kept.responses.jsonl")) == 4, "nobody answers what is too long"


def test_an_interrupted_filter_goes_on_where_it_stopped(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(monkeypatch, *SUDOKU[:-1], "straight.jsonl") == 0
    monkeypatch.setattr(sampling, "CHUNK_TOKENS", 20 * 33)
    advance, sample = sampling.ResponseFile.append, sampling.sample
    rows_sampled: list[int] = []

    def interrupt(*arguments: Any) -> None:
        advance(*arguments)
        raise KeyboardInterrupt

    def counted(*arguments: Any, **options: Any) -> Any:
        rows_sampled.append(len(arguments[1]))
        return sample(*arguments, **options)

    with monkeypatch.context() as patch:
        patch.setattr(sampling.ResponseFile, "append", interrupt)
        assert run(monkeypatch, *SUDOKU) == 130
    assert "the same command goes on from here" in capsys.readouterr().err
    assert not Path("kept.jsonl").exists() and len(rows("kept.responses.jsonl")) == 20
    monkeypatch.setattr(sampling, "sample", counted)
    assert run(monkeypatch, *SUDOKU) == 0
    assert rows_sampled == [20, 8]
    for name in ("", ".responses"):
        assert Path(f"kept{name}.jsonl").read_bytes() == Path(f"straight{name}.jsonl").read_bytes()
    assert run(monkeypatch, *SUDOKU, "--samples", "6") == 0
    assert sum(rows_sampled[2:]) == 12 * 2, "more samples add to those that are there"


def test_a_filtered_set_depends_on_the_training_examples_not_on_those_of_evaluation(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(Sudoku, "evaluation", None)
    assert run(monkeypatch, *SUDOKU) == 0


def test_other_data_are_not_taken_for_those_before(
    answers: Callable, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("rows.jsonl").write_text('{"problem": "a", "answer": "1"}\n')
    Path("more.jsonl").write_text('{"problem": "a", "answer": "1"}\n{"problem": "b", "answer": "1"}\n')
    Path("other.jsonl").write_text('{"problem": "a", "answer": "2"}\n')
    answers(["\\boxed{1}"] * 2)
    options = ["tiny", "--task", "math", "--samples", "1", "--gen-length", "4", "--output", "kept.jsonl", "--data"]
    assert run(monkeypatch, *options, "rows.jsonl") == 0
    assert run(monkeypatch, *options, "more.jsonl") == 0
    assert len(rows("kept.jsonl")) == 2
    assert run(monkeypatch, *options, "other.jsonl") == 2
    assert "example 0 has another answer by now; name another file" in capsys.readouterr().err
    assert run(monkeypatch, *options, "rows.jsonl", "--seed", "1") == 2
    assert "made with seed=0, not 1; name another file" in capsys.readouterr().err


def test_when_no_example_is_left_no_file_is_written(
    answers: Callable, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    Path("rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS["math"]))
    answers(["?"] * 6)
    options = ["tiny", "--task", "math", "--data", "rows.jsonl", "--samples", "2", "--gen-length", "4"]
    assert run(monkeypatch, *options, "--output", "kept.jsonl") == 2
    err = capsys.readouterr().err
    assert "no example is left: of 3, 0 are too long, 3 never right, 0 right too often" in err and err.count("\n") == 1
    assert not (tmp_path / "kept.jsonl").exists()


def test_the_spread_of_solve_rates() -> None:
    filtered = Filtered(Path(), Path(), 12, 2, 8, (0, 1, 2, 3, 4, 5, 6, 7, 8, 8), 7)
    assert [*filtered.spread.values()] == [1, 2, 2, 2, 1, 2]
    assert filtered.never_right == 1 and filtered.too_easy == 2
    assert filtered.solve_rate == 44 / 80


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--task", "sudok"], "task sudok: unknown; did you mean sudoku?"),
        (["--task", "gym"], "task gym: reads no training examples from a file; those that do: code, countdown, gsm8k"),
        (["--task", "sudoku"], "task sudoku makes 1,000,000 examples; say with --examples how many"),
        (["--task", "math", "--data", "nowhere.jsonl"], "nowhere.jsonl: no such file"),
        (["--task", "math", "--data", "rows.jsonl"], "rows.jsonl: row 2: answer is missing"),
        (
            ["--task", "sudoku", "--examples", "9", "--output", "rows.jsonl"],
            "but no rows.responses.jsonl of",
        ),
        (["--task", "sudoku", "--data", "grids.jsonl", "--output", "./grids.jsonl"], "would be overwritten"),
        (["--task", "sudoku", "--data", "a.responses.jsonl", "--output", "a.jsonl"], "would be overwritten"),
        (["--task", "sudoku", "--examples", "9", "--output", "kept.csv"], "name a file in a folder that exists"),
        (["--task", "sudoku", "--examples", "9", "--output", "nowhere/kept.jsonl"], "name a file in a folder"),
        (["--task", "sudoku", "--examples", "9", "--temperature", "0"], "temperature 0 gives the same response"),
        (["--task", "sudoku", "--examples", "9", "--block", "5", "--order", "static"], "block=5 does not divide"),
        (["--task", "sudoku", "--examples", "9", "--at-most", "0.05"], "one right response of 16 is 0.0625"),
        (
            ["--task", "sudoku", "--examples", "9", "--max-tokens", "20"],
            "--max-tokens 20: no example is that short; the shortest of 9 has 33 tokens, 16 of them for the response",
        ),
        (["--task", "sudoku", "--samples", "0"], "--samples"),
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
    files = {
        "rows.jsonl": '{"problem": "a", "answer": "1"}\n{"problem": "b"}\n',
        "grids.jsonl": json.dumps(dict(Sudoku(SudokuSettings()).train()[0])) + "\n",
    }
    for name, text in files.items():
        Path(name).write_text(text)
    output = [] if "--output" in arguments else ["--output", "kept.jsonl"]
    assert run(monkeypatch, "tiny", *arguments, *output) == 2
    err = capsys.readouterr().err
    assert says in err and err.count("\n") == 1
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == files

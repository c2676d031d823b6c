import csv
import json
import sys
from pathlib import Path

import pyarrow
import pyarrow.parquet
import pytest

from unmask.errors import UnmaskError
from unmask.tasks import Code, CodeSettings, Gsm8k, Gsm8kSettings, Math, MathSettings, Sudoku, SudokuSettings
from unmask.tasks.data import Row, load_examples, text_field
from unmask.tasks.task import Example

ROWS = [{"question": "one?", "answer": "1"}, {"question": "two, or\u2028more?", "answer": "2"}]


def example(row: Row) -> Example:
    return {"question": text_field(row, "question"), "answer": text_field(row, "answer")}


@pytest.mark.parametrize("suffix", ["json", "jsonl", "csv", "parquet"])
def test_every_file_format_gives_the_same_rows(suffix: str, tmp_path: Path) -> None:
    file = tmp_path / f"rows.{suffix}"
    if suffix == "json":
        file.write_text(json.dumps(ROWS))
    elif suffix == "jsonl":
        file.write_text("\n".join(json.dumps(row, ensure_ascii=False) for row in ROWS) + "\n\n")
    elif suffix == "csv":
        with file.open("w", newline="") as stream:
            writer = csv.DictWriter(stream, ["question", "answer"])
            writer.writeheader()
            writer.writerows(ROWS)
    else:
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(ROWS), file)
    assert load_examples(str(file), "train", example) == ROWS


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("rows.jsonl", "", "no rows"),
        ("rows.jsonl", '{"question": "q", "answer": "1"}\n{"question": "q"}', "row 2: answer is missing"),
        ("rows.jsonl", '{"question": "q", "answer": "1"}\n{"question', "row 2: not valid JSON"),
        ("rows.jsonl", '{"question": "q", "answer": null}', "row 1: answer=None: must be text"),
        ("rows.jsonl", '{"question": "", "answer": "1"}', "row 1: question is empty"),
        ("rows.jsonl", "[1, 2]", "row 1: must be an object with named fields"),
        ("rows.json", '{"a": 1}', "must be a JSON list of rows"),
        ("rows.json", "[", "cannot be read"),
        ("rows.csv", "question,answer\n", "no rows"),
        ("rows.csv", "question,answer\nq\n", "row 1: answer=None: must be text"),
        ("rows.parquet", "nothing of the kind", "cannot be read"),
        ("rows.txt", "text", ".txt is unknown; use .json, .jsonl, .csv, .parquet"),
    ],
)
def test_mistakes_in_a_file_are_one_line(name: str, text: str, says: str, tmp_path: Path) -> None:
    file = tmp_path / name
    file.write_text(text)
    with pytest.raises(UnmaskError) as error:
        load_examples(str(file), "train", example)
    assert str(error.value).startswith(f"{file}: ") and says in str(error.value)
    assert "\n" not in str(error.value)


def test_a_file_that_is_not_there() -> None:
    with pytest.raises(UnmaskError, match=r"nowhere/rows.csv: no such file"):
        load_examples("nowhere/rows.csv", "train", example)


class Hub:
    """Stands for the `datasets` library."""

    @staticmethod
    def load_dataset(name: str, configuration: str | None, split: str) -> list[Row]:
        if name == "absent/set":
            raise ConnectionError("Couldn't reach\nthe hub")
        assert (name, configuration, split) == ("openai/gsm8k", "main", "test")
        return list(ROWS)


def test_a_hub_name_is_loaded_through_datasets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "datasets", Hub)
    assert load_examples("openai/gsm8k:main", "test", example) == ROWS
    with pytest.raises(UnmaskError, match=r"absent/set: split test could not be loaded .* Couldn't reach the hub"):
        load_examples("absent/set", "test", example)
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(UnmaskError, match="needs `pip install datasets`"):
        load_examples("openai/gsm8k:main", "test", example)


def test_rows_of_json_lines_are_numbered_as_lines(tmp_path: Path) -> None:
    file = tmp_path / "rows.jsonl"
    file.write_text('\n{"question": "1+1?", "answer": "#### 2"}\n\n{"question": "1+2?"}\n')
    with pytest.raises(UnmaskError, match=r"rows\.jsonl: row 4: answer is missing"):
        Gsm8k(Gsm8kSettings(train=str(file))).train()


@pytest.mark.parametrize(
    ("row", "says"),
    [
        ({"test_list": ["assert f(1) == 1"]}, "text or prompt is missing"),
        ({"text": "Write f.", "test_list": ["assert f("]}, "test_list"),
        ({"text": "Write f.", "test_list": [1, 2]}, "test_list"),
        ({"text": "Write f.", "test_list": []}, "test_list, tests or test is missing or empty"),
        ({"entry_point": "f", "test": "def check(candidate):\n    assert candidate(1) == 1"}, "prompt is missing"),
        ({"prompt": "Print.", "tests": [{"input": "1"}]}, "tests: all must be texts, or all pairs of input and output"),
    ],
)
def test_programs_rows_are_checked_when_they_are_read(row: dict, says: str, tmp_path: Path) -> None:
    file = tmp_path / "rows.jsonl"
    file.write_text(json.dumps(row) + "\n")
    with pytest.raises(UnmaskError, match=r"rows\.jsonl: row 1: ") as refused:
        Code(CodeSettings(train=str(file))).train()
    assert says in str(refused.value) and "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("row", "says"),
    [
        ({"puzzle": "0" * 16, "solution": "hello"}, "solution='hello': does not solve the puzzle"),
        ({"puzzle": "0" * 81}, "puzzle has 81 cells; set task.size to 9"),
    ],
)
def test_sudoku_files_are_checked(row: dict, says: str, tmp_path: Path) -> None:
    file = tmp_path / "rows.jsonl"
    file.write_text(json.dumps(row) + "\n")
    with pytest.raises(UnmaskError, match=f"row 1: {says}"):
        Sudoku(SudokuSettings(train=str(file))).train()


def test_an_instruction_says_where_the_problem_stands() -> None:
    with pytest.raises(ValueError, match=r"instruction='Solve \{question\}': must say with \{prompt\}"):
        Gsm8kSettings(instruction="Solve {question}")


@pytest.mark.parametrize("gold", ["(((((", r"\frac{1", "x^", r"\sqrt", "1+", "[1,2", r"\left(1,2", "$"])
def test_a_gold_answer_that_was_cut_off_is_refused(gold: str, tmp_path: Path) -> None:
    file = tmp_path / "rows.jsonl"
    file.write_text(json.dumps({"problem": "p", "answer": "1"}) + "\n" + json.dumps({"problem": "q", "answer": gold}))
    with pytest.raises(UnmaskError, match=r"rows\.jsonl: row 2: answer="):
        Math(MathSettings(train=str(file))).train()

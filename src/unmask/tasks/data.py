"""Examples from a data set: a name on the Hugging Face hub, or a local JSON, JSON Lines, CSV or Parquet file.

Everything is read and checked before training starts; a mistake names the file, the row (from 1) and the field.
"""

import csv
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Protocol

from pydantic import AfterValidator

from unmask.errors import UnmaskError
from unmask.tasks.task import Example, Task

Row = Mapping[str, Any]


def _holds_prompt(instruction: str) -> str:
    if "{prompt}" not in instruction:
        raise ValueError(f"instruction={instruction!r:.60}: must say with {{prompt}} where the problem stands")
    return instruction


Instruction = Annotated[str, AfterValidator(_holds_prompt)]
"""What is said to a model that was tuned for chat, with `{prompt}` for the problem."""

SUFFIXES = (".json", ".jsonl", ".csv", ".parquet")


class DataSets(Protocol):
    """Where a task's examples come from; the fields of its settings."""

    @property
    def train(self) -> str: ...
    @property
    def train_split(self) -> str: ...
    @property
    def evaluation(self) -> str: ...
    @property
    def evaluation_split(self) -> str: ...
    @property
    def instruction(self) -> str | None: ...


class DataSetTask(Task):
    """A task whose examples are the rows of two data sets, each read when it is first asked for."""

    settings: DataSets

    def __init__(self, settings: DataSets) -> None:
        self.settings = settings
        if settings.instruction is not None:
            self.instruction = settings.instruction

    def problem(self, row: Row) -> Example:
        """A row as an example: what the prompt needs besides what judging does.

        Raises:
            UnmaskError: names the field at fault.
        """
        return self.example(row)

    @cached_property
    def _train(self) -> Sequence[Example]:
        return load_examples(self.settings.train, self.settings.train_split, self.problem)

    @cached_property
    def _evaluation(self) -> Sequence[Example]:
        return load_examples(self.settings.evaluation, self.settings.evaluation_split, self.problem)

    def train(self) -> Sequence[Example]:
        return self._train

    def evaluation(self) -> Sequence[Example]:
        return self._evaluation


def load_examples(source: str, split: str, example: Callable[[Row], Example]) -> list[Example]:
    """All rows of a data set as a task's examples.

    Args:
        source: a file, or a hub data set, with its configuration after a colon where it has several
            (`openai/gsm8k:main`).
        split: of a hub data set; a file has none.
        example: makes an example of a row, or raises an UnmaskError that names the field.

    Raises:
        UnmaskError: no such file or data set, no rows, or a row that is no example.
    """
    examples = []
    for number, row in _rows(source, split):
        if not isinstance(row, Mapping):
            raise UnmaskError(f"{source}: row {number}: must be an object with named fields, not {row!r:.60}")
        try:
            examples.append(example(row))
        except UnmaskError as error:
            raise UnmaskError(f"{source}: row {number}: {error}") from error
    if not examples:
        raise UnmaskError(f"{source}: no rows")
    return examples


def text_field(row: Row, *names: str) -> str:
    """The text under the first of these names that the row has; a number becomes text.

    Raises:
        UnmaskError: there is none, or it is no text, or empty.
    """
    name = next((name for name in names if name in row), None)
    if name is None:
        raise UnmaskError(f"{' or '.join(names)} is missing; the row has {', '.join(map(str, row)) or 'no fields'}")
    value = row[name]
    if isinstance(value, int | float) and not isinstance(value, bool):
        return str(value)
    if not isinstance(value, str):
        raise UnmaskError(f"{name}={value!r:.60}: must be text")
    if not value.strip():
        raise UnmaskError(f"{name} is empty")
    return value


def _rows(source: str, split: str) -> Iterable[tuple[int, Any]]:
    """Rows with their numbers: from 1, or of the line in JSON Lines, where empty ones are none."""
    path = Path(source)
    if path.suffix.lower() == ".jsonl":
        return _read_lines(path, source)
    if path.suffix.lower() in SUFFIXES or path.exists():
        return enumerate(_read_file(path, source), start=1)
    return enumerate(_read_hub(source, split), start=1)


def _read_file(path: Path, source: str) -> list[Any]:
    try:
        match path.suffix.lower():
            case ".json":
                rows = json.loads(path.read_text(encoding="utf-8"))
                if not isinstance(rows, list):
                    raise UnmaskError(f"{source}: must be a JSON list of rows")
                return rows
            case ".csv":
                with path.open(encoding="utf-8-sig", newline="") as file:
                    return list(csv.DictReader(file))
            case ".parquet":
                import pyarrow.parquet

                rows = pyarrow.parquet.read_table(path).to_pylist()
                assert isinstance(rows, list)
                return rows
            case suffix:
                raise UnmaskError(
                    f"{source}: {suffix or 'a name without a suffix'} is unknown; use {', '.join(SUFFIXES)}"
                )
    except UnmaskError:
        raise
    except FileNotFoundError as error:
        raise UnmaskError(f"{source}: no such file") from error
    except Exception as error:  # a border: each reader has exceptions of its own for a broken file
        raise UnmaskError(f"{source}: cannot be read: {' '.join(str(error).split())}") from error


def _read_lines(path: Path, source: str) -> list[tuple[int, Any]]:
    try:
        # split at line feeds alone: JSON text may hold U+2028 and its kin
        lines = path.read_text(encoding="utf-8").split("\n")
    except FileNotFoundError as error:
        raise UnmaskError(f"{source}: no such file") from error
    except (OSError, UnicodeDecodeError) as error:
        raise UnmaskError(f"{source}: cannot be read: {' '.join(str(error).split())}") from error
    return [(number, _json_line(line, number, source)) for number, line in enumerate(lines, start=1) if line.strip()]


def _json_line(line: str, number: int, source: str) -> Any:
    try:
        return json.loads(line)
    except ValueError as error:
        raise UnmaskError(f"{source}: row {number}: not valid JSON: {error}") from error


def _read_hub(source: str, split: str) -> Iterable[Any]:
    try:
        import datasets
    except ModuleNotFoundError as error:
        raise UnmaskError(
            f"{source}: reading from the hub needs `pip install datasets`; or name a local file"
        ) from error
    name, _, configuration = source.partition(":")
    try:
        rows: Iterable[Any] = datasets.load_dataset(name, configuration or None, split=split)
    except Exception as error:  # a border: the network, the hub and the files each raise their own
        reason = " ".join(str(error).split())
        raise UnmaskError(
            f"{source}: split {split} could not be loaded as a file or from the hub: {reason:.300}"
        ) from error
    return rows

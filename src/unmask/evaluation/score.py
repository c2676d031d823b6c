"""Judging responses that exist already: `unmask score`.

A file holds one JSON object a line: a task's own fields and `response`. Its task is named on the command line, or in
each row's `kind`. Broken rows are listed and left out of the count; the others are judged all the same.
"""

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from unmask.errors import UnmaskError
from unmask.evaluation.benchmarks import evaluation_task
from unmask.tasks import Judgement, Task, Verdict, judge_safely


@dataclass(frozen=True)
class Scores:
    """What became of a file's rows."""

    judgements: Mapping[int, Judgement]
    """Row, from 1, → its judgement."""
    broken: Mapping[int, str]
    """Row → why it could not be judged, with the field."""
    output: Path
    """Where the rewards are."""

    def count(self, verdict: Verdict) -> int:
        """Rows with this verdict."""
        return sum(judgement.verdict is verdict for judgement in self.judgements.values())

    @property
    def unsure(self) -> list[int]:
        """Rows whose verdict is unsure."""
        return [row for row, judgement in self.judgements.items() if judgement.verdict is Verdict.UNSURE]

    @property
    def accuracy(self) -> float:
        """Share of judged rows that are right; 0 when there are none."""
        return self.count(Verdict.RIGHT) / max(1, len(self.judgements))


def score_file(file: Path, task: str | None) -> Scores:
    """Judge every row of a file, and write its rewards beside it.

    `outputs.jsonl` gives `outputs.rewards.jsonl`, with one line for each: the row with `reward` and `verdict`, or its
    number and an `error`.

    Args:
        task: name of the task of all rows; none takes it from each row's `kind`.

    Raises:
        UnmaskError: the file cannot be read or is empty, its folder cannot be written, or there is no such task.
    """
    find = cache(evaluation_task)
    if task is not None:
        find(task)
    try:
        # split at line feeds alone: JSON text may hold U+2028 and its kin
        lines = file.read_bytes().split(b"\n")
    except OSError as error:
        raise UnmaskError(f"{file}: cannot be read: {error}") from error
    judgements: dict[int, Judgement] = {}
    broken: dict[int, str] = {}
    output = file.with_name(f"{file.stem}.rewards.jsonl")
    partial = output.with_name(f".{output.name}.partial")
    try:
        with partial.open("w", encoding="utf-8") as results:
            for number, line in enumerate(lines, start=1):
                if not line.strip():
                    continue
                try:
                    row = _parse(line)
                    judgements[number] = judgement = _judge(row, task, find)
                    result = {**row, "reward": judgement.reward, "verdict": judgement.verdict.value}
                except UnmaskError as error:
                    broken[number] = str(error)
                    result = {"row": number, "error": str(error)}
                results.write(json.dumps(result) + "\n")
        if not judgements and not broken:
            raise UnmaskError(f"{file}: no rows")
        os.replace(partial, output)
    except OSError as error:
        raise UnmaskError(f"{output}: cannot be written: {error}") from error
    finally:
        partial.unlink(missing_ok=True)
    return Scores(judgements, broken, output)


def _parse(line: bytes) -> dict[str, Any]:
    try:
        row = json.loads(line.decode("utf-8-sig"))
    except (ValueError, RecursionError) as error:  # text that is not UTF-8, too
        raise UnmaskError(f"not valid JSON: {error}") from error
    if not isinstance(row, dict):
        raise UnmaskError("must be a JSON object with named fields")
    return row


def _judge(row: dict[str, Any], task: str | None, find: Callable[[str], Task]) -> Judgement:
    if "response" not in row:
        raise UnmaskError("response is missing")
    if not isinstance(row["response"], str):
        raise UnmaskError(f"response={row['response']!r:.60}: must be text")
    name = task if task is not None else row.get("kind")
    if not isinstance(name, str):
        raise UnmaskError("kind is missing; name the task there or with --task")
    chosen = find(name)
    try:
        example = chosen.example(row)
    except UnmaskError:
        raise
    except Exception as error:  # a border: whatever a user's task raises
        raise UnmaskError(f"task {name} cannot read it: {type(error).__name__}: {error}") from error
    (judgement,), errors = judge_safely(chosen, [example], [row["response"]])
    if errors:
        raise UnmaskError(f"task {name} failed on it: {type(errors[0]).__name__}: {errors[0]}") from errors[0]
    return judgement

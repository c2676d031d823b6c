"""Judged responses as a file: appended as they are judged, whole lines at a time, and read again to go on from there.

Each row holds the example's own fields, so that `unmask score` can judge the file anew. What the responses depend on
stands beside them: `responses.jsonl` has a `responses.settings.json`.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from unmask.errors import UnmaskError
from unmask.tasks import Example, Verdict
from unmask.writing import replace_text

OWN = ("example", "sample", "response", "reward", "verdict")
"""Fields of a row besides the example's."""

UNCOMPARED = ("model.name", "task.train", "task.train_split")
"""Settings that may differ: the same weights and the same examples may be found elsewhere. Each example is compared."""


@dataclass(frozen=True)
class Judged:
    """One response and what became of it."""

    index: int
    """Of the example."""
    sample: int
    """Which of the example's responses, from 0."""
    response: str
    reward: float
    verdict: Verdict


class ResponseFile:
    """One evaluation's responses on disk. Nothing is written before the first response."""

    def __init__(self, path: Path, settings: Mapping[str, Any]) -> None:
        """Read what is there.

        Args:
            settings: everything that responses and verdicts depend on; JSON.

        Raises:
            UnmaskError: the file cannot be read, was made with other settings, or holds something else.
        """
        self.path = path
        self.settings: dict[str, Any] = json.loads(json.dumps(settings))
        self.settings_path = path.with_name(f"{path.stem}.settings.json")
        self.rows: dict[tuple[int, int], dict[str, Any]] = {}
        """(example, sample) → row."""
        self._has_settings = False
        try:
            text = path.read_bytes() if path.exists() else b""
            if text:
                self._compare()
                self._has_settings = True
        except (OSError, ValueError) as error:
            if isinstance(error, UnmaskError):
                raise
            raise UnmaskError(f"{path}: cannot be read: {error}") from error
        *lines, rest = text.split(b"\n")
        self._rest = len(rest)  # bytes of a last line that a crash cut short
        for number, line in enumerate(lines, start=1):
            row = self._row(number, line)
            self.rows[row["example"], row["sample"]] = row

    def find(self, index: int, sample: int, example: Example) -> Judged | None:
        """The response that is there already, if it is.

        Raises:
            UnmaskError: it answers another example: the task's data changed.
        """
        row = self.rows.get((index, sample))
        if row is None:
            return None
        for key, value in json.loads(json.dumps(dict(example))).items():
            if key not in OWN and row.get(key) != value:
                raise UnmaskError(f"{self.path}: example {index} has another {key} by now; name another file")
        return Judged(index, sample, row["response"], row["reward"], Verdict(row["verdict"]))

    def append(self, examples: Sequence[Example], judged: Sequence[Judged], conditions: Mapping[str, str]) -> None:
        """Write responses, each with the example that it answers.

        Raises:
            UnmaskError: the file cannot be written.
        """
        lines = [
            json.dumps(
                {
                    **example,
                    "example": one.index,
                    "sample": one.sample,
                    "response": one.response,
                    "reward": one.reward,
                    "verdict": one.verdict.value,
                    **conditions,
                }
            )
            for example, one in zip(examples, judged, strict=True)
        ]
        text = "".join(line + "\n" for line in lines).encode()
        try:
            self.path.parent.mkdir(exist_ok=True)
            if not self._has_settings:
                replace_text(self.settings_path, json.dumps(self.settings, indent=1) + "\n")
            with self.path.open("ab") as file:
                file.truncate(file.tell() - self._rest)
                file.write(text)
        except OSError as error:
            raise UnmaskError(f"{self.path}: cannot be written: {error}") from error
        self._rest, self._has_settings = 0, True

    def _compare(self) -> None:
        if not self.settings_path.exists():
            raise UnmaskError(f"{self.path}: not kept by unmask, or without its settings; name another file")
        there, here = _flat(json.loads(self.settings_path.read_text())), _flat(self.settings)
        for key in {**here, **there}:
            if key not in UNCOMPARED and there.get(key) != here.get(key):
                raise UnmaskError(
                    f"{self.path}: made with {key}={there.get(key)}, not {here.get(key)}; name another file"
                )

    def _row(self, number: int, line: bytes) -> dict[str, Any]:
        try:
            row = json.loads(line)
            Verdict(row["verdict"])
            sound = (
                type(row["example"]) is type(row["sample"]) is int
                and isinstance(row["response"], str)
                and isinstance(row["reward"], int | float)
            )
        except (ValueError, KeyError, TypeError):
            sound = False
        if not sound:
            raise UnmaskError(f"{self.path}: line {number} is not a judged response; name another file")
        return row


def _flat(settings: Any, prefix: str = "") -> dict[str, Any]:
    """`{"model": {"name": "tiny"}}` as `{"model.name": "tiny"}`."""
    if not isinstance(settings, dict):
        return {prefix: settings}
    flat: dict[str, Any] = {}
    for key, value in settings.items():
        flat |= _flat(value, f"{prefix}.{key}" if prefix else key)
    return flat

"""Several models on several tasks in several settings: a plan, its evaluation, and the papers' tables of it."""

import hashlib
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from unmask.decoding import Decoding
from unmask.errors import UnmaskError
from unmask.evaluation.benchmarks import evaluation_task
from unmask.evaluation.evaluate import Evaluation, evaluate
from unmask.evaluation.responses import ResponseFile
from unmask.evaluation.sampling import Watcher, check_samples
from unmask.evaluation.settings import worded
from unmask.models import load, load_tokenizer
from unmask.models.loading import find
from unmask.tasks import Task


@dataclass(frozen=True)
class Cell:
    """One model on one task with one decoding."""

    model: str
    task_name: str
    task: Task
    setting: str
    """Name of a setting, or of what the options make; all decodings in it differ in length alone."""
    decoding: Decoding
    file: ResponseFile | None
    """Where its responses are kept."""


class Result(NamedTuple):
    """What came of a cell."""

    cell: Cell
    evaluation: Evaluation


Decodings = Callable[[Task, bool], Sequence[tuple[str, Decoding]]]
"""From a task, and whether the model has a chat template, to names of settings and decodings."""


def plan(
    models: Sequence[str], tasks: Sequence[str], decodings: Decodings, *, samples: int, seed: int, output: Path | None
) -> list[Cell]:
    """Every model on every task with every decoding, models in the outermost loop. Loads no weights, writes nothing.

    Args:
        decodings: raises an UnmaskError for options that do not fit a task.
        output: a `.jsonl` file for a single cell, or a folder; kept responses are read from there.

    Raises:
        UnmaskError: something is named twice, a model, task or the output's folder does not exist, samples would all
            be the same, or a file there holds something else.
    """
    for name in (*models, *tasks):
        if [*models, *tasks].count(name) > 1:
            raise UnmaskError(f"{name}: named twice")
    built = {name: evaluation_task(name) for name in tasks}
    for task in built.values():
        chosen = decodings(task, False)
        for name, decoding in chosen:
            if sum((name, decoding.length) == (other, its.length) for other, its in chosen) > 1:
                raise UnmaskError(f"{name}: named twice")
            check_samples(samples, decoding, name)
    if output is not None:
        _check_output(output)
    for task in built.values():
        len(task.evaluation())  # data that are missing, before anything takes long
    cells = []
    for model in models:
        folder = find(model)
        has_template = bool(load_tokenizer(folder, model).chat_template)
        identity = {"name": model, "weights": fingerprint(folder)}
        for task_name, task in built.items():
            for setting, decoding in decodings(task, has_template):
                asked, file = worded(task, task_name, setting), None
                if output is not None:
                    name = re.sub(r"[^\w.-]+", "_", f"{model} {task_name} {setting} {decoding.length}") + ".jsonl"
                    settings = {
                        "model": identity,
                        "task": task_name,
                        "instruction": asked.instruction if has_template else None,
                        "conditions": task.conditions,
                        "seed": seed,
                        "decoding": decoding.model_dump(exclude={"batch_tokens"}),  # of no influence on results
                    }
                    file = ResponseFile(output if output.suffix == ".jsonl" else output / name, settings)
                cells.append(Cell(model, task_name, asked, setting, decoding, file))
    if output is not None and output.suffix == ".jsonl" and len(cells) > 1:
        raise UnmaskError(f"--output {output}: is one file for {len(cells)} evaluations; name a folder")
    return cells


def evaluate_grid(
    cells: Sequence[Cell], *, examples: int | None, samples: int, seed: int, watcher: Watcher
) -> list[Result]:
    """Evaluate every cell, one model in memory at a time. Arguments as of `evaluate`."""
    results = []
    for model in dict.fromkeys(cell.model for cell in cells):
        results += _evaluate_model(
            model,
            [cell for cell in cells if cell.model == model],
            examples=examples,
            samples=samples,
            seed=seed,
            watcher=watcher,
        )
    return results


def _evaluate_model(
    model: str, cells: Sequence[Cell], *, examples: int | None, samples: int, seed: int, watcher: Watcher
) -> list[Result]:
    # a function of its own, so that a model's memory is free before the next one is loaded
    denoiser, tokenizer = load(model)
    results = []
    for cell in cells:
        available = len(cell.task.evaluation())
        title = f"{cell.model} on {cell.task_name}, {cell.decoding.length} tokens"
        watcher.begin(title, min(examples or available, available) * samples)
        evaluation = evaluate(
            denoiser,
            tokenizer,
            cell.task,
            cell.decoding,
            examples=examples,
            seed=seed,
            samples=samples,
            file=cell.file,
            listener=watcher.advance,
        )
        results.append(Result(cell, evaluation))
    return results


def fingerprint(folder: Path) -> str:
    """16 hexadecimal digits that tell a model folder's weights from others: its configuration, and pieces of weights.

    Up to 256 evenly spaced pieces of 4 KiB of each file are read, not all of it: another step of training, also of an
    adapter, changes them; a change by hand of a few numbers may go unseen.
    """
    digest = hashlib.sha256()
    for name in ("config.json", "adapter_config.json"):
        if (folder / name).is_file():
            digest.update((folder / name).read_bytes())
    for path in sorted(folder.glob("*.safetensors")):
        size = path.stat().st_size
        digest.update(f"{path.name} {size}".encode())
        with path.open("rb") as file:
            for start in range(0, size, max(4096, size // 256)):
                file.seek(start)
                digest.update(file.read(4096))
    return digest.hexdigest()[:16]


def _check_output(output: Path) -> None:
    parent, is_file = output.absolute().parent, output.suffix == ".jsonl"
    taken = output.is_dir() if is_file else output.is_file()
    if taken or not parent.is_dir() or output.suffix == ".json":
        raise UnmaskError(f"--output {output}: name a file in a folder that exists, FILE.jsonl, or else a folder there")
    if not os.access(output if output.exists() else parent, os.W_OK):
        raise UnmaskError(f"--output {output}: cannot be written")


@dataclass(frozen=True)
class PaperTable:
    """The papers' layout of one setting: rows are models, column groups tasks, columns response lengths."""

    setting: str
    columns: tuple[tuple[str, int], ...]
    """Task and length."""
    rows: Mapping[str, tuple[float | None, ...]]
    """Model → accuracy of each column; none where it was not evaluated."""

    def best(self, column: int) -> float | None:
        """The highest accuracy of a column, where models are compared."""
        values = [row[column] for row in self.rows.values()]
        present = [value for value in values if value is not None]
        return max(present) if len(present) > 1 else None


def paper_tables(results: Iterable[Result]) -> list[PaperTable]:
    """A table for each setting, in the order of first appearance; its lengths ascend within a task."""
    accuracy = {
        (cell.setting, cell.model, cell.task_name, cell.decoding.length): evaluation.accuracy
        for cell, evaluation in results
    }
    tables = []
    for setting in dict.fromkeys(key[0] for key in accuracy):
        keys = [key[1:] for key in accuracy if key[0] == setting]
        tasks = [*dict.fromkeys(task for _, task, _ in keys)]
        columns = sorted({(task, length) for _, task, length in keys}, key=lambda one: (tasks.index(one[0]), one[1]))
        rows = {
            model: tuple(accuracy.get((setting, model, task, length)) for task, length in columns)
            for model in dict.fromkeys(model for model, _, _ in keys)
        }
        tables.append(PaperTable(setting, tuple(columns), rows))
    return tables


def details(results: Sequence[Result]) -> tuple[list[str], list[list[str]]]:
    """Header and a row for each cell: accuracy as a share with its 95 % interval, and pass@k of several samples."""
    ks = [k for k in results[0].evaluation.pass_at if k > 1]
    header = ["model", "task", "setting", "tokens", "examples", "accuracy", "95 %", *(f"pass@{k}" for k in ks)]
    rows = []
    for cell, evaluation in results:
        judged = "".join(f", {name} {value}" for name, value in evaluation.conditions.items())
        low, high = evaluation.interval
        rows.append(
            [
                cell.model,
                f"{cell.task_name}{judged}",
                cell.setting,
                str(cell.decoding.length),
                str(len(evaluation.examples)),
                f"{evaluation.accuracy:.4f}",
                f"{low:.3f} to {high:.3f}",
                *(f"{evaluation.pass_at[k]:.4f}" for k in ks),
            ]
        )
    return header, rows


def markdown(results: Sequence[Result]) -> str:
    """The papers' tables, accuracy in percent and the best of a column bold, and below them every cell in detail."""
    lines = []
    for table in paper_tables(results):
        header = ["model", *(f"{task} {length}" for task, length in table.columns)]
        rows = [
            [model, *(_percent(value, value is not None and value == table.best(i)) for i, value in enumerate(row))]
            for model, row in table.rows.items()
        ]
        lines += [f"## {table.setting}", "", "Accuracy in percent.", "", *_markdown(header, rows), ""]
    lines += ["## In detail", "", *_markdown(*details(results)), ""]
    return "\n".join(lines)


def _percent(value: float | None, is_best: bool) -> str:
    if value is None:
        return ""
    return f"**{100 * value:.1f}**" if is_best else f"{100 * value:.1f}"


def _markdown(header: Sequence[Any], rows: Iterable[Sequence[Any]]) -> list[str]:
    lines = [header, ["---"] * len(header), *rows]
    return ["| " + " | ".join(str(entry).replace("|", "\\|") for entry in line) + " |" for line in lines]

"""What came of a comparison, and its files: a page for people, JSON and CSV for programs, the curves."""

import csv
import json
import shlex
import statistics
from dataclasses import dataclass, field
from io import StringIO
from pathlib import Path

from unmask.comparison.budget import Budget
from unmask.comparison.curves import Curve, Point, draw
from unmask.errors import UnmaskError
from unmask.writing import replace_text

HEADER = ("recipe", "final accuracy", "start accuracy", "tokens", "seconds", "steps", "s/step")


@dataclass(frozen=True)
class ComparedRun:
    """What came of one recipe with one seed."""

    recipe: str
    seed: int
    folder: Path
    steps: int
    tokens: int
    """Generated in training."""
    seconds: float
    """Of training, evaluations not counted."""
    curve: Curve
    """Every evaluation, the first before training and the last at its end."""
    error: str | None = None
    """Why the run failed, in a line."""

    @property
    def start_accuracy(self) -> float:
        return self.curve[0].accuracy

    @property
    def final_accuracy(self) -> float:
        return self.curve[-1].accuracy


@dataclass(frozen=True)
class Comparison:
    """All runs of a comparison, in the order of the recipes."""

    folder: Path
    recipes: tuple[str, ...]
    seeds: int
    budget: Budget
    overrides: tuple[str, ...]
    task: str
    model: str
    examples: int
    """Evaluation examples."""
    runs: list[ComparedRun] = field(default_factory=list)

    @property
    def failures(self) -> list[ComparedRun]:
        """The failed runs, at most one a recipe: its other seeds are then left out."""
        return [run for run in self.runs if run.error is not None]

    def finished(self, recipe: str) -> list[ComparedRun]:
        """A recipe's runs that came to their end."""
        return [run for run in self.runs if run.recipe == recipe and run.error is None]


def write(comparison: Comparison) -> None:
    """All files of a comparison whose runs are done."""
    _write_csv(comparison)
    curves = {name: [run.curve for run in comparison.finished(name)] for name in comparison.recipes}
    draw(
        {name: runs for name, runs in curves.items() if runs},
        comparison.folder / "curves.svg",
        title=f"{comparison.task}, {comparison.model}",
    )
    replace_text(comparison.folder / "comparison.md", _markdown(comparison))


def table(comparison: Comparison) -> list[tuple[str, ...]]:
    """One row a recipe, in the columns of `HEADER`; of one that failed, its name and the reason alone."""
    failed = {run.recipe: run for run in comparison.failures}
    rows: list[tuple[str, ...]] = []
    for name in comparison.recipes:
        if name in failed:
            rows.append((name, f"failed at seed {failed[name].seed}: {failed[name].error}"))
            continue
        done = comparison.finished(name)
        seconds, steps = sum(run.seconds for run in done), sum(run.steps for run in done)
        rows.append(
            (
                name,
                _mean_and_deviation([run.final_accuracy for run in done]),
                _mean_and_deviation([run.start_accuracy for run in done]),
                f"{statistics.mean(run.tokens for run in done):,.0f}",
                f"{seconds / len(done):,.1f}",
                f"{steps / len(done):,.1f}".removesuffix(".0"),
                f"{seconds / steps:.2f}",
            )
        )
    return rows


def _mean_and_deviation(values: list[float]) -> str:
    return f"{statistics.mean(values):.3f} ± {f'{statistics.stdev(values):.3f}' if len(values) > 1 else '—'}"


def _markdown(comparison: Comparison) -> str:
    budget = comparison.budget
    end = "after the recipe's own number of steps"
    if budget.tokens is not None:
        end = f"after the first step at which it has generated {budget.tokens:,} tokens"
    elif budget.minutes is not None:
        end = f"after the first step at which it has trained for {budget.minutes:g} minutes"
    command = ["unmask", "compare", *comparison.recipes, *comparison.overrides, "--seeds", str(comparison.seeds)]
    command += str(budget).split() if budget.is_limit else []
    seeds = "seed 0" if comparison.seeds == 1 else f"seeds 0 to {comparison.seeds - 1}"
    lines = [
        "# Comparison of " + ", ".join(comparison.recipes),
        "",
        f"Task {comparison.task}, model {comparison.model}, {seeds}. A run ends {end}. Accuracy on "
        f"{comparison.examples:,} evaluation examples, mean ± sample standard deviation over seeds; the other numbers "
        "are means over seeds: generated tokens, seconds of training without evaluations, steps.",
        "",
        *(
            "| " + " | ".join(cell.replace("|", r"\|") for cell in [*row, *[""] * (len(HEADER) - len(row))]) + " |"
            for row in [HEADER, ("---",) * len(HEADER), *table(comparison)]
        ),
        "",
        "![Accuracy over generated tokens](curves.svg)",
        "",
        f"Made by `{shlex.join(command)}`.",
        "",
    ]
    return "\n".join(lines)


def write_json(comparison: Comparison) -> None:
    """`comparison.json`: all numbers so far, and the budget that a continuation must keep."""
    content = {
        "recipes": comparison.recipes,
        "seeds": comparison.seeds,
        "tokens": comparison.budget.tokens,
        "minutes": comparison.budget.minutes,
        "overrides": comparison.overrides,
        "task": comparison.task,
        "model": comparison.model,
        "examples": comparison.examples,
        "runs": [
            {
                "recipe": run.recipe,
                "seed": run.seed,
                "folder": str(run.folder.relative_to(comparison.folder)),
                "start_accuracy": run.start_accuracy if run.error is None else None,
                "final_accuracy": run.final_accuracy if run.error is None else None,
                "tokens": run.tokens,
                "seconds": run.seconds,
                "steps": run.steps,
                "evaluations": [point._asdict() for point in run.curve],
                "error": run.error,
            }
            for run in comparison.runs
        ],
    }
    try:
        comparison.folder.mkdir(parents=True, exist_ok=True)
        replace_text(comparison.folder / "comparison.json", json.dumps(content, indent=1) + "\n")
    except OSError as error:
        raise UnmaskError(f"--output {comparison.folder}: cannot be written: {error.strerror}") from error


def _write_csv(comparison: Comparison) -> None:
    text = StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["recipe", "seed", *Point._fields])
    for run in comparison.runs:
        writer.writerows([run.recipe, run.seed, *point] for point in run.curve)
    replace_text(comparison.folder / "curves.csv", text.getvalue())

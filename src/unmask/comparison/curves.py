"""Accuracy over generated tokens: the curve of a run, the mean over runs, and the picture of several recipes."""

import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from unmask.drawing import save_svg
from unmask.training.metrics import MetricsFile


class Point(NamedTuple):
    """One evaluation of a run."""

    step: int
    tokens: int
    """Generated since training began."""
    accuracy: float


Curve = tuple[Point, ...]
"""A run's evaluations, the first one before training."""


class MeanPoint(NamedTuple):
    """The same evaluation of several runs."""

    tokens: float
    accuracy: float
    deviation: float
    """Sample standard deviation of the accuracy; 0 for one run."""


def read_curve(run: Path) -> Curve:
    """The curve of a run's folder."""
    rows = MetricsFile(run / "evaluations.jsonl").read()
    return tuple(Point(int(row["step"]), int(row["tokens/generated_total"]), row["accuracy"]) for row in rows)


def mean_curve(curves: Sequence[Curve]) -> list[MeanPoint]:
    """Mean over runs, evaluation by evaluation: those at steps that all share, and every run's last, whatever its step.

    A budget of tokens or minutes ends runs at different steps.
    """
    shared = sorted(set.intersection(*({point.step for point in curve[:-1]} for curve in curves)))
    by_step = [{point.step: point for point in curve} for curve in curves]
    columns = [[points[step] for points in by_step] for step in shared] + [[curve[-1] for curve in curves]]
    return [
        MeanPoint(
            statistics.mean(point.tokens for point in column),
            statistics.mean(point.accuracy for point in column),
            statistics.stdev(point.accuracy for point in column) if len(column) > 1 else 0.0,
        )
        for column in columns
    ]


def draw(curves: Mapping[str, Sequence[Curve]], file: Path, *, title: str) -> None:
    """Draw each recipe's mean accuracy over generated tokens as SVG, in a band of one standard deviation over its runs.

    Args:
        curves: label → the curves of its runs, at least one.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 4))
    axes = figure.subplots()
    for label, runs in curves.items():
        points = mean_curve(runs)
        tokens = [point.tokens / 1e3 for point in points]
        (line,) = axes.plot(tokens, [point.accuracy for point in points], linewidth=2, label=label.replace("$", r"\$"))
        low, high = ([point.accuracy + sign * point.deviation for point in points] for sign in (-1, 1))
        axes.fill_between(tokens, low, high, color=line.get_color(), alpha=0.2, linewidth=0)
    axes.set(xlabel="generated tokens (thousands)", ylabel="accuracy", title=title.replace("$", r"\$"))
    axes.grid(alpha=0.3)
    if curves:
        axes.legend()
    figure.tight_layout()
    save_svg(figure, file)

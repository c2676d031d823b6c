"""What a person sees in the terminal: progress of a run, evaluation tables, a response being revealed."""

import os
import time
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from rich.box import SIMPLE
from rich.console import Console
from rich.live import Live
from rich.markup import escape
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Table
from rich.text import Text

from unmask.comparison import ComparedRun, Comparison
from unmask.comparison.result import HEADER, table
from unmask.decoding import Decoding, Rollout, decode
from unmask.diagnostics import Diagnosis, describe, tables
from unmask.evaluation import Evaluation, Filtered, Judged, PaperTable, Scores, details, paper_tables
from unmask.evaluation import Result as EvaluationResult
from unmask.models import Denoiser, render_prompt
from unmask.randomness import stream
from unmask.runs import Result
from unmask.tasks import Task, Verdict
from unmask.tasks.rendering import left_pad, prompt_tokens, response_text
from unmask.training.trainer import Listener

# of several workers only the first talks
console = Console(quiet=os.environ.get("RANK", "0") != "0")


class View:
    """Something that shows progress until it is left."""

    def __init__(self) -> None:
        self.progress = _progress()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.progress.live.is_started:
            self.progress.stop()


class TrainingView(View):
    """A progress bar with the last step's reward; a listener of the trainer."""

    def __init__(self, title: str) -> None:
        super().__init__()
        self.bar = self.progress.add_task(title, total=None, status="")

    def __call__(self, metrics: dict[str, float], total: int) -> None:
        _advance(self.progress, self.bar, metrics, total)
        if "eval/accuracy" in metrics:
            console.print(f"step {int(metrics['step'])}: accuracy {metrics['eval/accuracy']:.3f}")

    def finish(self, result: Result) -> None:
        """Say where everything is."""
        kept = [
            name for name in ("metrics.jsonl", "samples/", "checkpoints/", "model/") if (result.run / name).exists()
        ]
        errors = sum(int(metrics.get("reward/errors", 0)) for metrics in result.metrics)
        if errors:
            console.print(Text(f"the task failed on {errors} responses, which got the smallest reward: see errors.txt"))
        if result.evaluations:
            path = " → ".join(f"{evaluation['accuracy']:.3f}" for evaluation in result.evaluations)
            console.print(f"accuracy {path}")
        console.print(Text(f"run in {result.run}: {', '.join(kept)}"))


class ComparisonView(View):
    """A progress bar for the run that trains, a line for each that is done, and the table at the end."""

    def __init__(self) -> None:
        super().__init__()
        self.bar: TaskID | None = None

    def begin(self, recipe: str, seed: int) -> Listener:
        """A bar for a run, and the listener that moves it."""
        self.bar = self.progress.add_task(escape(f"{recipe} seed {seed}"), total=None, status="")
        return partial(_advance, self.progress, self.bar)

    def end(self, run: ComparedRun) -> None:
        """The bar gives way to a line."""
        if self.bar is not None:
            self.progress.remove_task(self.bar)
            self.bar = None
        outcome = f"failed: {run.error}"
        if run.error is None:
            outcome = (
                f"accuracy {run.start_accuracy:.3f} → {run.final_accuracy:.3f}, {run.steps} steps, "
                f"{run.tokens:,} tokens, {run.seconds:,.1f} s"
            )
        console.print(Text(f"{run.recipe} seed {run.seed}: {outcome}"))

    def finish(self, comparison: Comparison) -> None:
        """The table, and where everything is."""
        shown = Table(box=SIMPLE, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0))
        for name in HEADER:  # the reason of a failure is long, and stands in the second
            shown.add_column(name, no_wrap=name != HEADER[1])
        for row in table(comparison):
            shown.add_row(*map(Text, row))
        console.print(shown)
        console.print(
            Text(f"comparison in {comparison.folder}: comparison.md, comparison.json, curves.csv, curves.svg")
        )


class DiagnosisView(View):
    """A progress bar over prompts, and the tables at the end."""

    def __init__(self, title: str, prompts: int) -> None:
        super().__init__()
        self.bar = self.progress.add_task(escape(title), total=prompts, status="prompts")

    def __enter__(self) -> Self:
        self.progress.start()
        return self

    def advance(self, prompts: int) -> None:
        """Move the bar on."""
        self.progress.advance(self.bar, prompts)

    def finish(self, diagnosis: Diagnosis, output: Path | None) -> None:
        """The tables, and where the report is."""
        console.print(Text(describe(diagnosis)))
        for answer in tables(diagnosis):
            console.print(Text(answer.title, style="bold"))
            shown = Table(*answer.header, box=SIMPLE, show_edge=False, pad_edge=False)
            for row in answer.rows:
                shown.add_row(*map(Text, row))
            console.print(shown)
        if output is not None:
            console.print(Text(f"report in {output}: diagnosis.md, diagnosis.json, credit.svg, tokens.svg"))


def _progress() -> Progress:
    return Progress(
        TextColumn("[bold]{task.description}"),
        BarColumn(bar_width=None),
        MofNCompleteColumn(),
        TextColumn("{task.fields[status]}"),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        console=console,
    )


def _advance(progress: Progress, bar: TaskID, metrics: dict[str, float], total: int) -> None:
    """Move a run's bar to the step just done."""
    progress.start()  # not before there is something to show: a mistake in the recipe is one line, no bar
    if "examples/left_out" in metrics:
        left_out, examples = int(metrics["examples/left_out"]), int(metrics["examples"])
        console.print(f"{left_out:,} of {examples:,} training examples are left out as too long (trainer.max_tokens)")
    parts = [
        f"{label} {metrics[key]:.3f}"
        for key, label in [("reward/mean", "reward"), ("loss", "loss"), ("eval/accuracy", "accuracy")]
        if key in metrics and not (key == "loss" and "reward/mean" in metrics)
    ]
    progress.update(bar, total=total, completed=metrics["step"], status=" · ".join(parts))


class EvaluationView(View):
    """A progress bar over the responses of each evaluation, and the tables at the end."""

    def __init__(self) -> None:
        super().__init__()
        self.bar: TaskID | None = None
        self.judged = self.right = 0

    def begin(self, title: str, responses: int) -> None:
        """A new bar, which takes the place of the last."""
        self.progress.start()
        if self.bar is not None:
            self.progress.remove_task(self.bar)
        self.bar = self.progress.add_task(escape(title), total=responses, status="")
        self.judged = self.right = 0

    def advance(self, judged: Sequence[Judged]) -> None:
        """Move the bar on, and say how accurate the model is so far."""
        assert self.bar is not None
        self.judged += len(judged)
        self.right += sum(one.verdict is Verdict.RIGHT for one in judged)
        status = f"accuracy {self.right / self.judged:.3f}" if self.judged else ""
        self.progress.update(self.bar, completed=self.judged, status=status)

    def finish(self, results: Sequence[EvaluationResult], output: Path | None) -> None:
        """The tables, and where responses are."""
        if len(results) > 1:
            for table in paper_tables(results):
                console.print(Text(f"{table.setting}: accuracy in percent", style="bold"))
                console.print(_paper_table(table))
        header, rows = details(results)
        pieces = [[*range(7)], [*range(4), *range(7, len(header))]]  # pass@k apart: a terminal is not wide
        for columns in pieces if len(header) > 7 else pieces[:1]:
            shown = Table(box=SIMPLE, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0))
            for column in columns:  # names may be long and are folded; numbers stay in one piece
                is_name = column < 3
                shown.add_column(header[column], overflow="fold", no_wrap=not is_name, min_width=7 if is_name else None)
            for row in rows:
                shown.add_row(*(Text(row[column]) for column in columns))
            console.print(shown)
        unsure = sum(len(result.evaluation.unsure) for result in results)
        if unsure:
            console.print(f"{unsure} responses could not be judged surely and count as not right")
        failures = [failure for result in results for failure in result.evaluation.failures]
        if failures:
            self.say(f"{len(failures)} of them because the task failed, first with {failures[0]}")
        if output is not None:
            self.say(f"responses in {output}")

    def say(self, text: str) -> None:
        """A line as it is."""
        console.print(Text(text), soft_wrap=True)


def _paper_table(table: PaperTable) -> Table:
    shown = Table("", box=SIMPLE, show_edge=False, pad_edge=False)
    last = None
    for task, length in table.columns:  # a task is named above the first of its lengths
        shown.add_column(Text(f"{task if task != last else ''}\n{length}"), justify="right")
        last = task
    for model, row in table.rows.items():
        entries = [
            Text("" if value is None else f"{100 * value:.1f}", "bold" if value == table.best(column) else "")
            for column, value in enumerate(row)
        ]
        shown.add_row(Text(model), *entries)
    return shown


LISTED = 20
"""Broken and unsure rows that are listed one by one."""


def score_report(file: Path, scores: Scores) -> None:
    """Counts of the verdicts as a table, and the rows that could not be judged, or not surely."""
    table = Table("file", "rows", "right", "wrong", "unsure", "accuracy")
    counts = [str(scores.count(verdict)) for verdict in (Verdict.RIGHT, Verdict.WRONG, Verdict.UNSURE)]
    table.add_row(Text(file.name), str(len(scores.judgements)), *counts, f"{scores.accuracy:.4f}")
    console.print(table)
    if scores.unsure:
        more = f", and {len(scores.unsure) - LISTED} more" if len(scores.unsure) > LISTED else ""
        console.print(Text(f"unsure, counted as not right: rows {', '.join(map(str, scores.unsure[:LISTED]))}{more}"))
    for row, reason in list(scores.broken.items())[:LISTED]:
        console.print(Text(f"{file}: row {row}: {reason}"), soft_wrap=True)
    if len(scores.broken) > LISTED:
        console.print(Text(f"{file}: {len(scores.broken) - LISTED} more broken rows, listed in {scores.output.name}"))
    console.print(Text(f"rewards in {scores.output}"), soft_wrap=True)


def filter_report(filtered: Filtered) -> None:
    """What became of the examples, how many responses were right, and where everything is."""
    counts = {
        "rows read": filtered.rows,
        "too long": filtered.too_long,
        "never right": filtered.never_right,
        "right too often": filtered.too_easy,
        "kept": filtered.kept,
    }
    console.print(_count_table(counts))
    responses = filtered.samples * len(filtered.right)
    console.print(f"{filtered.solve_rate:.4f} of {responses:,} responses are right; examples by their own share:")
    console.print(_count_table(filtered.spread))
    console.print(Text(f"kept examples in {filtered.file}, responses in {filtered.responses}"), soft_wrap=True)


def _count_table(counts: Mapping[str, int]) -> Table:
    """One row of numbers."""
    table = Table(*counts)
    table.add_row(*(f"{count:,}" for count in counts.values()))
    return table


def show_answer(
    model: Denoiser,
    tokenizer: Any,
    task: Task,
    prompt: str | None,
    decoding: Decoding,
    *,
    seed: int,
    trace: bool,
) -> None:
    """Answer a prompt, or an evaluation example of the task; with `trace`, reveal it before the reader's eyes."""
    if prompt is None:
        data = task.evaluation()
        example = data[seed % len(data)]
        tokens = prompt_tokens(task, example, tokenizer)
    else:
        example = None
        tokens = render_prompt(tokenizer, prompt)
    ids, mask = left_pad([tokens], tokenizer.pad_token_id or 0)
    rollout = decode(model, ids, mask, decoding, generator=stream(seed, "sample"))
    pieces = [tokenizer.decode([token]) for token in rollout.response_ids[0].tolist()]
    if trace:
        show_trace(pieces, rollout, width=task.line_width)
    (text,) = response_text(tokenizer, rollout.response_ids)
    if example is not None:
        console.print(Text(task.show(example, text)))
        console.print(f"reward {task.reward(example, text):g}")
    else:
        console.print(Text(text))


def show_trace(pieces: list[str], rollout: Rollout, width: int | None = None) -> None:
    """The response after each step: hidden positions as ░, the newest tokens bold, and how sure the model was of them.

    Args:
        pieces: text of each token of row 0.
        width: tokens in a line; none writes them on.
    """
    steps = rollout.reveal_step[0].tolist()
    probability = rollout.logprob[0].exp().tolist()
    frames = range(-1, max(steps) + 1)
    with Live(console=console, auto_refresh=False, vertical_overflow="visible") as live:
        for frame in frames:
            text = Text()
            for position, piece in enumerate(pieces):
                if width and position % width == 0:
                    text.append("\n")
                is_new = steps[position] == frame
                shown = piece if steps[position] <= frame else "░"
                text.append(shown + (" " if width else ""), style="bold green" if is_new else "")
            new = [
                f"{piece}: p = {p:.2f}" for piece, s, p in zip(pieces, steps, probability, strict=True) if s == frame
            ]
            text.append(f"\nstep {frame + 1} of {len(frames) - 1}  {', '.join(new)}\n")
            live.update(text, refresh=True)
            if console.is_terminal:
                time.sleep(0.15)
            else:
                console.print(text)


def before_after(task: Task, before: Evaluation, after: Evaluation, count: int) -> Table:
    """The first `count` examples that the model got wrong before and right after training, side by side."""
    table = Table("puzzle and answer before", "reward", "puzzle and answer after", "reward", show_lines=True)
    rows = [
        index for index in range(len(before.rewards)) if before.rewards[index] < task.reward_max <= after.rewards[index]
    ]
    for index in rows[:count]:
        example = before.examples[index]
        table.add_row(
            Text(task.show(example, before.responses[index])),
            f"{before.rewards[index]:g}",
            Text(task.show(example, after.responses[index])),
            f"{after.rewards[index]:g}",
        )
    return table

"""A diagnosis as tables, and as a folder of Markdown, JSON and two pictures."""

import json
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from unmask.diagnostics.diagnosis import CONTINUATIONS, STABILITY_REPEATS, Diagnosis
from unmask.diagnostics.figures import draw_credit, draw_tokens
from unmask.diagnostics.mismatch import Share
from unmask.diagnostics.tokens import LEAST_COUNT
from unmask.errors import UnmaskError
from unmask.models.files import replaced_folder

PAPER_STABILITY = {2: ("0.29", "74.4 %"), 8: ("0.07", "92.3 %")}
"""ForkGRPO's table 6 on GSM8K, as far as its text gives it: M → value error, sign agreement."""


@dataclass(frozen=True)
class ReportTable:
    """One question and its answers."""

    title: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def tables(diagnosis: Diagnosis) -> tuple[ReportTable, ...]:
    """All answers, with the papers' numbers beside them."""
    found, calm = diagnosis.mismatch, diagnosis.held_out_mismatch
    tokens, theorem = diagnosis.tokens, diagnosis.theorem
    credit = ReportTable(
        "One advantage for a whole response (ForkGRPO, figure 3)",
        ("measure", f"M = {diagnosis.settings.group_size}", f"M = {CONTINUATIONS}, held out", "paper"),
        tuple(
            (name, _share(share), _share(calmer), paper)
            for name, share, calmer, paper in (
                ("ΔV > 0 in failed references", found.helpful_in_failed, calm.helpful_in_failed, "8 to 38 %"),
                ("ΔV < 0 in successful ones", found.harmful_in_succeeded, calm.harmful_in_succeeded, "1 to 5 %"),
                ("some ΔV ≠ 0 at advantage 0", found.silent, calm.silent, "3 to 17 %"),
                ("the same, of all references", found.silent_of_all, calm.silent_of_all, "—"),
            )
        ),
    )
    stable = ReportTable(
        f"Values from M continuations against {CONTINUATIONS}, {STABILITY_REPEATS} subsamples (ForkGRPO, table 6)",
        ("M", "value error", "same sign of ΔV", "where ΔV ≠ 0", "paper: error", "paper: sign"),
        tuple(
            (
                str(row.size),
                f"{row.value_error:.3f}",
                _percent(row.sign_agreement),
                _percent(row.changed_agreement),
                *PAPER_STABILITY.get(row.size, ("—", "—")),
            )
            for row in diagnosis.stability
        ),
    )
    simulated = ReportTable(
        f"Mean squared error of ΔV_j by simulation, slope {_number(theorem.slope)} in log M (ForkGRPO, theorem 1: −1)",
        ("M", "error", "bound 2ν²/M", "best shared advantage", "segments win"),
        tuple(
            (
                str(row.size),
                f"{row.error:.4f}",
                f"{row.bound:.4f}",
                f"{theorem.shared_error:.4f}",
                "yes" if row.error < theorem.shared_error else "no",
            )
            for row in theorem.errors
        ),
    )
    sure = ReportTable(
        "Tokens at reveal (RLDF, table 1 and figure 2)",
        ("measure", "value", "paper"),
        (
            ("Pearson correlation of probability and entropy", _number(tokens.pearson), "−0.928 to −0.950"),
            ("Spearman correlation of probability and entropy", _number(tokens.spearman), "−0.933 to −0.997"),
            ("tokens revealed with p ≥ 0.9", _percent(tokens.histogram[-1] / tokens.count), "over 80 %"),
        ),
    )
    unsure = ReportTable(
        f"Tokens with the highest mean entropy, of those revealed at least {LEAST_COUNT} times",
        ("token", "entropy", "count"),
        tuple(
            (repr(piece), f"{row.entropy:.3f}", f"{row.count:,}")
            for piece, row in zip(diagnosis.pieces, tokens.unsure, strict=True)
        ),
    )
    return credit, stable, simulated, sure, unsure


def describe(diagnosis: Diagnosis) -> str:
    """What was measured on, in a sentence or two."""
    decoding, settings = diagnosis.decoding, diagnosis.settings
    windows = " ".join(f"[{first},{last}]" for first, last in settings.windows)
    return (
        f"{decoding.order} decoding of {decoding.length} tokens at temperature {decoding.temperature:g}, "
        f"{diagnosis.prompts} prompts with groups of {settings.group_size} and forks in {windows or 'no window'}, "
        f"{diagnosis.held_out} held-out prompts with {diagnosis.states} states of {CONTINUATIONS} continuations, "
        f"seed {diagnosis.seed}; {diagnosis.tokens_generated:,} generated tokens. "
        f"{100 * diagnosis.accuracy:.1f} % of the root responses got full reward."
    )


@contextmanager
def report_folder(output: Path) -> Iterator[Path]:
    """A folder to write a report into, which becomes `output` at the end; on an error nothing is left.

    Raises:
        UnmaskError: `output` is a file, holds something other than an earlier report, or cannot be written.
    """
    with ExitStack() as stack:
        try:
            partial = stack.enter_context(replaced_folder(output, ("diagnosis.json",)))
        except OSError as error:
            raise UnmaskError(f"--output {output}: cannot be written: {error.strerror}") from error
        yield partial


def write_report(diagnosis: Diagnosis, folder: Path, subject: str, command: str) -> None:
    """Write diagnosis.md, diagnosis.json, credit.svg and tokens.svg into a folder that exists.

    Args:
        subject: model and task, as the title names them.
        command: what a reader would type to get the same.
    """
    draw_credit(diagnosis, folder / "credit.svg")
    draw_tokens(diagnosis, folder / "tokens.svg")
    lines = [f"# Diagnosis of {subject}", "", describe(diagnosis), ""]
    for table in tables(diagnosis):
        lines += [f"## {table.title}", "", *markdown(table.header, table.rows), ""]
    lines += ["![Credit](credit.svg)", "", "![Tokens](tokens.svg)", "", f"Made by `{command}`.", ""]
    (folder / "diagnosis.md").write_text("\n".join(lines), encoding="utf-8")
    numbers = {
        **asdict(diagnosis),
        "decoding": diagnosis.decoding.model_dump(mode="json"),
        "settings": diagnosis.settings.model_dump(mode="json", include={"group_size", "windows"}),
    }
    content = {"subject": subject, "command": command, **numbers}
    (folder / "diagnosis.json").write_text(
        json.dumps(content, indent=1, allow_nan=False, ensure_ascii=False) + "\n", encoding="utf-8"
    )


def markdown(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """The lines of a Markdown table."""
    return [
        "| " + " | ".join(cell.replace("|", r"\|") for cell in row) + " |"
        for row in [header, ("---",) * len(header), *rows]
    ]


def _share(share: Share) -> str:
    return f"{_percent(share.value)} ({share.count:,} of {share.total:,})"


def _percent(value: float | None) -> str:
    return "—" if value is None else f"{100 * value:.1f} %"


def _number(value: float | None) -> str:
    return "—" if value is None else f"{value:.3f}".replace("-", "−")

"""Figures as SVG files that do not change when what they show does not."""

from io import StringIO
from pathlib import Path
from typing import Any

from unmask.writing import replace_text


def save_svg(figure: Any, file: Path) -> None:
    """Write a matplotlib figure; the same figure gives the same file, and the file is whole or not there."""
    from matplotlib import rc_context

    text = StringIO()
    with rc_context({"svg.hashsalt": "unmask"}):
        figure.savefig(text, format="svg", metadata={"Date": None})
    replace_text(file, text.getvalue())

"""The figures of results pages: plain SVG on white, readable in a dark page too."""

from __future__ import annotations

import io
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

from ...runs import atomic_write

__all__ = ["COLOURS", "marked", "panels", "save_svg"]

COLOURS: Final = ("#0060a8", "#c4570a", "#2e7d32", "#8e24aa", "#5d4037", "#b0003a", "#546e7a")
_DIGITS: Final = re.compile(r"(\d+\.\d)\d+")
_STYLE: Final[dict[Any, Any]] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "relatum",
    "font.size": 9,
    "font.family": "sans-serif",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.7,
}


def panels(columns: int, *, rows: int = 1, width: float = 3.4, height: float = 2.7) -> Any:
    """A figure with axes in a grid, an array (rows, columns)."""
    with mpl.rc_context(_STYLE):
        figure = Figure(figsize=(width * columns, height * rows), layout="constrained")
        figure.patch.set_facecolor("white")
        return figure, figure.subplots(rows, columns, squeeze=False)


def save_svg(figure: Figure, path: Path) -> None:
    """Writes the figure as SVG whose text stays text; nothing in it depends on the day."""
    buffer = io.StringIO()
    with mpl.rc_context(_STYLE):
        FigureCanvasSVG(figure)
        figure.savefig(buffer, format="svg", metadata={"Date": None})
    # A tenth of a point is enough in tags; text stays as it is.
    text = re.sub(r"<[^>]*>", lambda tag: _DIGITS.sub(r"\1", tag[0]), buffer.getvalue())
    atomic_write(path, "\n".join(line.rstrip() for line in text.splitlines()).encode() + b"\n")


def marked(axis: Axes, x: Sequence[float], y: Sequence[float], colour: str) -> None:
    """Crosses where something ended."""
    axis.plot(x, y, "x", color=colour, markersize=8, markeredgewidth=2, clip_on=False)

"""The curves of all estimators as one SVG file."""

from __future__ import annotations

import io
import math
import re
from typing import Any, Final

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

from .cells import Plan
from .reference import Reference
from .summary import TITLES, Curves
from .task import LEVELS, TASKS

__all__ = ["staircase_svg"]

# One panel each; the second curve of a panel is drawn in the second colour.
_PANELS: Final = (
    ("rpc", "rpc-published"), ("rpc-logit",), ("smile",), ("js",), ("cpc",), ("nwj",),
    ("dv",), ("mine",), ("tuba",), ("doe",), ("doe-logistic",),
)  # fmt: skip
_COLUMNS: Final = 6
_POINTS: Final = 100  # of an authors' curve: the panels are small
_COLOURS: Final = ("#0060a8", "#c4570a")
_STYLE: Final[dict[Any, Any]] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "relatum",
    "font.size": 8,
    "font.family": "sans-serif",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.6,
    "path.simplify": True,
}


def staircase_svg(curves: Curves, plan: Plan, reference: Reference | None) -> str:
    """Small panels, two rows a task: truth, our seeds, the authors' run."""
    rows = math.ceil(len(_PANELS) / _COLUMNS)
    with mpl.rc_context(_STYLE):
        figure = Figure(figsize=(10.2, 1.55 * rows * len(TASKS)))
        figure.patch.set_facecolor("white")  # a page may be dark
        axes = figure.subplots(rows * len(TASKS), _COLUMNS, sharex=True, sharey=True)
        figure.subplots_adjust(0.025, 0.01, 0.995, 0.97, wspace=0.06, hspace=0.2)
        for place, task in enumerate(TASKS):
            panels = axes[rows * place : rows * (place + 1)].ravel()
            for axis, names in zip(panels, _PANELS, strict=False):
                _panel(axis, task, names, curves, plan, reference)
            for axis in panels[len(_PANELS) :]:
                axis.axis("off")
                if place == 0:
                    _legend(axis, reference is not None)
        buffer = io.StringIO()
        FigureCanvasSVG(figure)
        figure.savefig(buffer, format="svg", metadata={"Date": None})
    # Coordinates of a thousandth of a point are as good, and half the size.
    return re.sub(r"(\d+\.\d)\d{3,}", r"\1", buffer.getvalue())


def _panel(
    axis: Axes,
    task: str,
    names: tuple[str, ...],
    curves: Curves,
    plan: Plan,
    reference: Reference | None,
) -> None:
    edges = np.arange(len(LEVELS) + 1) / len(LEVELS)
    axis.stairs(LEVELS, edges, color="black", linewidth=0.9, baseline=None)
    for name, colour in zip(names, _COLOURS, strict=False):
        if reference is not None and (task, name) in reference.curves:
            theirs = reference.curves[task, name]
            means = theirs[: len(theirs) // _POINTS * _POINTS].reshape(_POINTS, -1).mean(1)
            _line(axis, means, color="#888888", linewidth=0.8)
        for curve in curves.get((task, name), []):
            _line(axis, np.asarray(curve), color=colour, linewidth=0.8)
    if names == ("cpc",):
        axis.axhline(math.log(plan.batch_size), color="black", linewidth=0.6, linestyle=":")
    axis.set(xlim=(0, 1), ylim=(0, 12), xticks=[], yticks=[0, 4, 8, 12])
    axis.set_title(f"{task}: {TITLES[names[0]]}", fontsize=7.5, pad=2)


def _line(axis: Axes, values: np.ndarray, **style: Any) -> None:
    """A curve along the schedule; what leaves the frame is cut there, so the file stays small."""
    at = (np.arange(len(values)) + 0.5) / len(values)
    axis.plot(at, np.clip(values, -1, 13), **style)


def _legend(axis: Axes, with_authors: bool) -> None:
    entries = [
        ("black", "true mutual information"),
        (_COLOURS[0], "ours, one line a seed"),
        (_COLOURS[1], "RPC, published read-out"),
        *([("#888888", "authors' run")] if with_authors else []),
    ]
    for colour, label in entries:
        axis.plot([], [], color=colour, label=label)
    axis.legend(loc="center", frameon=False, fontsize=7)

"""Figures as small inline SVG that follows the page's theme, drawn by matplotlib.

Every colour is drawn as a stand-in and replaced by a CSS variable, so one SVG serves light, dark
and print; text stays text; ids are prefixed because all figures share one document.
"""

from __future__ import annotations

import html
import io
import math
import re
from collections.abc import Sequence
from typing import Any

import matplotlib as mpl
import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from .reading import Group, RunRecord, number, series
from .tables import Row, half
from .words import MINUS, start_line

__all__ = ["CURVES", "accuracy_figure", "curve_figure", "loss_figure", "map_figure"]

# Quantity in the log -> (heading, what a reader should know about it).
CURVES = {
    "mi": ("Mutual information (nats)", "The objective's own reading; dashed: its ceiling log K."),
    "contrastive_accuracy": (
        "Contrastive accuracy",
        "Share of positives that score above all their negatives.",
    ),
    "effective_rank": (
        "Effective rank",
        "How many directions the embeddings use; 1 means collapse.",
    ),
    "learning_rate": ("Learning rate", "As scheduled."),
    "pairs_per_second": ("Pairs per second", "Speed of training."),
    "alignment": ("Alignment", "Mean squared distance of the two views; lower is closer."),
    "uniformity": ("Uniformity", "How evenly the embeddings spread; lower is more even."),
    "grad_norm": ("Gradient norm", "Jumps announce trouble."),
    "temperature": ("Temperature", "Constant unless it is learned."),
}

SLOTS = 10
_DASHES: list[str | tuple[int, tuple[int, ...]]] = [
    "-",
    (0, (5, 2)),
    (0, (1, 1)),
    (0, (6, 2, 1, 2)),
]
_MARKERS = "os^DvPX<>*"
_INK, _MUTED, _LINE = "#f1e1f1", "#f2e2f2", "#f3e3f3"
_POINTS = 400  # a curve has fewer pixels than this on any screen it is read on
_MAP_POINTS = 1500

_STYLE: dict[Any, Any] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "relatum",
    "font.size": 10,
    "text.color": _INK,
    "axes.labelcolor": _INK,
    "axes.edgecolor": _MUTED,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.7,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.unicode_minus": True,
    "grid.color": _LINE,
    "grid.linewidth": 0.6,
    "xtick.color": _MUTED,
    "ytick.color": _MUTED,
    "xtick.labelcolor": _INK,
    "ytick.labelcolor": _INK,
    "xtick.major.size": 2.5,
    "ytick.major.size": 2.5,
    "axes.formatter.limits": (-3, 5),
    "figure.constrained_layout.use": True,
}


def _stand_in(slot: int) -> str:
    return f"#f4e4{slot % SLOTS:02x}"


def _svg(figure: Figure, identity: str, alt: str) -> str:
    buffer = io.StringIO()
    FigureCanvasSVG(figure)
    figure.savefig(buffer, format="svg", metadata={"Date": None})
    text = buffer.getvalue()
    box = re.search(r'viewBox="[^"]*"', text)
    assert box, "matplotlib always writes a viewBox"
    # What the file needs on its own, and what would leak into the page (a style for "*").
    text = re.sub(
        r"^.*?<svg[^>]*>|<metadata>.*?</metadata>|<style.*?</style>", "", text, flags=re.S
    )
    # Only tags are rewritten: between them stands text that must stay as it is.
    text = re.sub(r"<[^>]*>", lambda tag: _tag(tag[0], identity), text)
    text = re.sub(r"<defs>\s*</defs>", "", text)
    text = re.sub(r"\n\s*", "\n", text)
    return f'<svg role="img" aria-label="{html.escape(alt, quote=True)}" {box[0]}>{text}'


def _tag(tag: str, identity: str) -> str:
    tag = re.sub(r'\bid="', f'id="{identity}-', tag)
    tag = re.sub(r'(url\(|xlink:href=")#', rf"\1#{identity}-", tag).replace("xlink:href", "href")
    tag = re.sub(r'(\d+\.\d)\d+(?=[" ,\n])', r"\1", tag)  # a tenth of a point is enough
    tag = re.sub(r"font: 700 ([\d.]+px)[^;\"]*", r"font-size: \1; font-weight: 700", tag)
    tag = re.sub(r"font: ([\d.]+px)[^;\"]*", r"font-size: \1", tag)
    for colour, name in ((_INK, "ink"), (_MUTED, "muted"), (_LINE, "line")):
        tag = tag.replace(colour, f"var(--{name})")
    return re.sub(r"#f4e4([0-9a-f]{2})", lambda match: f"var(--s{int(match[1], 16)})", tag)


def _axes(width: float = 4.3, height: float = 2.5) -> tuple[Figure, Axes]:
    figure = Figure(figsize=(width, height))
    figure.patch.set_alpha(0.0)
    axes = figure.add_subplot()
    axes.patch.set_alpha(0.0)
    return figure, axes


def _finish_steps(axes: Axes) -> None:
    axes.set_xlabel("step")
    axes.xaxis.set_major_locator(MaxNLocator(5, integer=True))
    axes.yaxis.set_major_locator(MaxNLocator(5))
    axes.margins(x=0.02)


def _line(axes: Axes, group: Group, run: RunRecord, key: str) -> float:
    steps, values = series(run, key)
    values = np.where(np.isfinite(values), values, np.nan)
    finite = values[np.isfinite(values)]
    if not finite.size:
        return math.nan
    keep = np.unique(np.linspace(0, len(steps) - 1, min(_POINTS, len(steps))).astype(int))
    dash = _DASHES[group.slot % len(_DASHES)]
    marker = "o" if len(keep) == 1 else ""
    axes.plot(
        steps[keep],
        values[keep],
        color=_stand_in(group.slot),
        linestyle=dash,
        linewidth=1.4,
        marker=marker,
        markersize=4,
    )
    return float(finite[-1])


def _rule(axes: Axes, height: float, text: str) -> None:
    axes.axhline(height, color=_INK, linewidth=0.9, linestyle=(0, (3, 2)))
    axes.annotate(
        text,
        (1, height),
        (0, 2),
        xycoords=("axes fraction", "data"),
        textcoords="offset points",
        ha="right",
        fontsize=9,
        gid=f"halo-{len(axes.texts)}",
    )


def _ends(title: str, ends: Sequence[tuple[str, float]]) -> str:
    return f"{title} against step. Last values: " + "; ".join(f"{n} {v:.4g}" for n, v in ends)


def curve_figure(groups: Sequence[Group], key: str, identity: str) -> str | None:
    """One logged quantity, a line for each run; None where nothing finite is logged."""
    with mpl.rc_context(_STYLE):
        figure, axes = _axes()
        runs = [(g, run) for g in groups for run in g.runs]
        ends = [(run.name, _line(axes, group, run, key)) for group, run in runs]
        ends = [(name, end) for name, end in ends if math.isfinite(end)]
        if not ends:
            return None
        if key == "mi":
            for ceiling in sorted({c for _, run in runs for c in _ceilings(run)}):
                _rule(axes, ceiling, f"log K = {ceiling:.2f}")
        if key == "contrastive_accuracy":
            axes.set_ylim(-0.03, 1.03)
        elif key in ("pairs_per_second", "learning_rate"):
            axes.set_ylim(bottom=0)
        _finish_steps(axes)
        return _svg(figure, identity, _ends(CURVES[key][0], ends))


def _ceilings(run: RunRecord) -> set[float]:
    found = {round(number(line.get("mi_ceiling")), 2) for line in run.metrics}
    return {value for value in found if math.isfinite(value)}


def loss_figure(group: Group, identity: str) -> str | None:
    """The losses of one group, with the starting line and the floor where the log tells them."""
    with mpl.rc_context(_STYLE):
        figure, axes = _axes()
        ends = [(run.name, _line(axes, group, run, "loss")) for run in group.runs]
        ends = [(name, end) for name, end in ends if math.isfinite(end)]
        if not ends:
            return None
        for start in sorted({s for run in group.runs if (s := start_line(run)) is not None}):
            ceilings = sorted({c for run in group.runs for c in _ceilings(run)})
            at_log_k = any(abs(start - c) < 0.01 for c in ceilings)
            _rule(
                axes,
                start,
                f"start: {'log K = ' if at_log_k else ''}{start:.2f}".replace("-", MINUS),
            )
            for floor in (round(start - ceiling, 2) + 0.0 for ceiling in ceilings):
                _rule(axes, floor, f"floor: {floor:.2f}".replace("-", MINUS))
        _finish_steps(axes)
        return _svg(figure, identity, _ends(f"Loss of {group.label}", ends))


def accuracy_figure(rows: Sequence[Row], column: int, title: str, identity: str) -> str:
    """Accuracies of one column as points with their intervals, one line a row."""
    shown = [(row, cell) for row in rows if (cell := row.cells[column])]
    with mpl.rc_context({**_STYLE, "axes.spines.left": False, "ytick.major.size": 0}):
        figure, axes = _axes(3.4, 0.66 + 0.25 * len(shown))
        for height, (row, cell) in enumerate(reversed(shown)):
            colour = _INK if row.slot is None else _stand_in(row.slot)
            marker = "D" if row.slot is None else "o"
            spread = 0.0 if cell.n == 1 else 100 * half(cell)
            axes.plot(
                [100 * cell.mean - spread, 100 * cell.mean + spread], [height] * 2, color=colour
            )
            axes.plot(100 * cell.mean, height, marker, color=colour, markersize=5)
        labels = [_short(row.label) for row, _ in reversed(shown)]
        axes.set_yticks(range(len(shown)), labels, parse_math=False)
        axes.set_ylim(-0.6, len(shown) - 0.4)
        axes.margins(x=0.08)
        axes.xaxis.set_major_locator(MaxNLocator(4, integer=True))
        axes.set_xlabel("test accuracy, %")
        axes.grid(axis="y", visible=False)
        ends = "; ".join(f"{row.label} {100 * cell.mean:.1f} %" for row, cell in shown)
        return _svg(figure, identity, f"{title}: {ends}")


def _short(label: str) -> str:
    return label if len(label) <= 26 else f"{label[:25]}…"


def map_figure(
    xy: Float[np.ndarray, "n 2"], labels: Sequence[int], classes: Sequence[str], identity: str
) -> str:
    """The 2-D map of test images, coloured and marked by class, each class named at its median."""
    keep = np.unique(np.linspace(0, len(xy) - 1, min(_MAP_POINTS, len(xy))).astype(int))
    of = np.asarray(labels)
    with mpl.rc_context({**_STYLE, "axes.grid": False}):
        figure, axes = _axes(height=3.9)
        axes.set_axis_off()
        axes.set_aspect("equal", adjustable="datalim")
        for slot, label in enumerate(sorted(set(of.tolist()))):
            rows = keep[of[keep] == label]
            colour = _MUTED if label < 0 else _stand_in(slot)
            axes.plot(
                *xy[rows].T,
                linestyle="",
                marker=_MARKERS[slot % len(_MARKERS)],
                markersize=2.6,
                color=colour,
                markeredgewidth=0,
                alpha=0.75,
            )
        counts = {label: int((of == label).sum()) for label in sorted(set(of.tolist()))}
        named = sorted((label for label in counts if label >= 0), key=lambda i: -counts[i])[:20]
        for label in named:
            x, y = np.median(xy[of == label], axis=0)
            name = classes[label] if label < len(classes) else str(label)
            axes.text(
                x,
                y,
                _short(name),
                parse_math=False,
                fontsize=11,
                weight="bold",
                ha="center",
                va="center",
                gid=f"halo-{label}",
            )
        shown = f"{len(keep)} of {len(xy)} images" if len(keep) < len(xy) else f"{len(xy)} images"
        return _svg(figure, identity, f"Map of {shown}, coloured by class")

"""The figures of the report on runs: curves, losses, accuracies, maps."""

from __future__ import annotations

import math
from collections.abc import Sequence

import matplotlib as mpl
import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from .drawing import INK, MUTED, STYLE, new_axes, slot_colour, to_svg
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
    "accuracy_first": (
        "Contrastive accuracy, one frame ahead",
        "Of the nearest of the frames that are predicted.",
    ),
    "accuracy_last": (
        "Contrastive accuracy, farthest ahead",
        "Of the farthest of the frames that are predicted.",
    ),
    "alignment": ("Alignment", "Mean squared distance of the two views; lower is closer."),
    "uniformity": ("Uniformity", "How evenly the embeddings spread; lower is more even."),
    "contrastive_risk": (
        "Contrastive risk of class mates",
        "On training images held back, hinge loss of cosines / 0.5; knowing nothing costs 1.",
    ),
    "noncollision_risk": (
        "Its part between classes",
        "The risk of a classifier that knows one image of each class.",
    ),
    "collision_excess": (
        "Price of collisions",
        "By how much a negative of the anchor's own class costs more than 1.",
    ),
    "mean_classifier_risk": (
        "Risk of the mean classifier",
        "Between two classes, by their means; the contrastive risk bounds it.",
    ),
    "gradient_penalty": (
        "Gradient penalty",
        "How far scores are from 1-Lipschitz; 0 where the constraint holds.",
    ),
    "grad_norm": ("Gradient norm", "Jumps announce trouble."),
    "temperature": ("Temperature", "Constant unless it is learned."),
}

_DASHES: list[str | tuple[int, tuple[int, ...]]] = [
    "-",
    (0, (5, 2)),
    (0, (1, 1)),
    (0, (6, 2, 1, 2)),
]
_MARKERS = "os^DvPX<>*"
_POINTS = 400  # a curve has fewer pixels than this on any screen it is read on
_MAP_POINTS = 1500


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
        color=slot_colour(group.slot),
        linestyle=dash,
        linewidth=1.4,
        marker=marker,
        markersize=4,
    )
    return float(finite[-1])


def _rule(axes: Axes, height: float, text: str) -> None:
    axes.axhline(height, color=INK, linewidth=0.9, linestyle=(0, (3, 2)))
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
    with mpl.rc_context(STYLE):
        figure, axes = new_axes()
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
        return to_svg(figure, identity, _ends(CURVES[key][0], ends))


def _ceilings(run: RunRecord) -> set[float]:
    found = {round(number(line.get("mi_ceiling")), 2) for line in run.metrics}
    return {value for value in found if math.isfinite(value)}


def loss_figure(group: Group, identity: str) -> str | None:
    """The losses of one group, with the starting line and the floor where the log tells them."""
    with mpl.rc_context(STYLE):
        figure, axes = new_axes()
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
        return to_svg(figure, identity, _ends(f"Loss of {group.label}", ends))


def accuracy_figure(rows: Sequence[Row], column: int, title: str, identity: str) -> str:
    """Accuracies of one column as points with their intervals, one line a row."""
    shown = [(row, cell) for row in rows if (cell := row.cells[column])]
    with mpl.rc_context({**STYLE, "axes.spines.left": False, "ytick.major.size": 0}):
        figure, axes = new_axes(3.4, 0.66 + 0.25 * len(shown))
        for height, (row, cell) in enumerate(reversed(shown)):
            colour = INK if row.slot is None else slot_colour(row.slot)
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
        return to_svg(figure, identity, f"{title}: {ends}")


def _short(label: str) -> str:
    return label if len(label) <= 26 else f"{label[:25]}…"


def map_figure(
    xy: Float[np.ndarray, "n 2"], labels: Sequence[int], classes: Sequence[str], identity: str
) -> str:
    """The 2-D map of test images, coloured and marked by class, each class named at its median."""
    keep = np.unique(np.linspace(0, len(xy) - 1, min(_MAP_POINTS, len(xy))).astype(int))
    of = np.asarray(labels)
    with mpl.rc_context({**STYLE, "axes.grid": False}):
        figure, axes = new_axes(height=3.9)
        axes.set_axis_off()
        axes.set_aspect("equal", adjustable="datalim")
        for slot, label in enumerate(sorted(set(of.tolist()))):
            rows = keep[of[keep] == label]
            colour = MUTED if label < 0 else slot_colour(slot)
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
        return to_svg(figure, identity, f"Map of {shown}, coloured by class")

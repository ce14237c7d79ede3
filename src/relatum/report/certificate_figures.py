"""The figures of a transfer certificate: the way to the bound, and the few-shot curve."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import matplotlib as mpl
from matplotlib.ticker import FixedLocator, NullLocator

from .drawing import INK, MUTED, STYLE, new_axes, slot_colour, to_svg
from .mi_words import amount

__all__ = ["few_shot_figure", "waterfall_figure"]

_SLOTS: Final = {"fact": 2, "risk": 0, "gap": 4, "price": 1, "bound": 7}
_CURVES: Final = (
    ("top1_error", "among all classes", 0, "-", "o"),
    ("pairwise_error", "between two classes", 1, "--", "s"),
)


def waterfall_figure(record: Mapping[str, Any], identity: str) -> str | None:
    """A bar for each step, from where the last one ended; the line at 1 is where a bound ends.

    None where there is no step to draw.
    """
    steps = record["waterfall"]
    if not steps:
        return None
    with mpl.rc_context({**STYLE, "axes.spines.left": False, "ytick.major.size": 0}):
        figure, axes = new_axes(5.6, 0.75 + 0.3 * len(steps))
        for row, step in enumerate(steps):
            start, end = step["start"], step["end"]
            axes.barh(row, end - start, 0.62, start, color=slot_colour(_SLOTS[step["kind"]]))
            axes.annotate(
                amount(end), (max(start, end), row), (4, 0),
                textcoords="offset points", va="center", fontsize=9,
            )  # fmt: skip
        axes.axvline(1, color=INK, linewidth=0.9, linestyle=(0, (3, 2)))
        axes.axvline(0, color=MUTED, linewidth=0.9)
        axes.set_yticks(range(len(steps)), [_added(row, s) for row, s in enumerate(steps)])
        axes.set_ylim(len(steps) - 0.4, -0.6)
        axes.margins(x=0.12)
        axes.grid(axis="y", visible=False)
        axes.set_xlabel(
            f"{record['certificate']['settings'].get('loss', '')} risk; 1: says nothing"
        )
        told = "; ".join(f"{s['step']} up to {amount(s['end'])}" for s in steps)
        return to_svg(figure, identity, f"From the error to the bound: {told}")


def _added(row: int, step: Mapping[str, Any]) -> str:
    return step["step"] if row == 0 else f"+ {step['step']}"


def few_shot_figure(record: Mapping[str, Any], identity: str) -> str | None:
    """Predicted errors against labels per class; None for fewer than two points."""
    shots = record["certificate"]["few_shot"]
    if len(shots) < 2:
        return None
    with mpl.rc_context(STYLE):
        figure, axes = new_axes(5.6, 2.5)
        x = [shot["shots"] for shot in shots]
        for key, name, slot, dash, marker in _CURVES:
            y = [float("nan") if shot[key] is None else shot[key] for shot in shots]
            axes.plot(
                x, y, dash, marker=marker, markersize=4, linewidth=1.4,
                color=slot_colour(slot), label=name,
            )  # fmt: skip
        axes.set_xscale("log")
        axes.xaxis.set_major_locator(FixedLocator(x))
        axes.xaxis.set_minor_locator(NullLocator())
        axes.set_xticklabels([str(each) for each in x])
        axes.set_ylim(bottom=0)
        axes.set_xlabel("labels per class")
        axes.set_ylabel("error")
        axes.legend(frameon=False, fontsize=9)
        told = "; ".join(f"{s['shots']}: {amount(s['top1_error'])}" for s in shots)
        return to_svg(figure, identity, f"Predicted top-1 error by labels per class: {told}")

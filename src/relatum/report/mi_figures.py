"""The figures of the page on mutual information."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import matplotlib as mpl
import numpy as np
from matplotlib.ticker import MaxNLocator

from .drawing import INK, MUTED, STYLE, new_axes, slot_colour, to_svg
from .mi_words import amount, interval_text

__all__ = ["MARKERS", "interval_figure", "pointwise_figure", "scatter_figure"]

Estimate = Mapping[str, Any]

MARKERS: Final = {"lower bound": ">", "plug-in": "o", "difference": "D"}
_POINTS = 1500
_SHADES = (0.25, 0.5, 0.75, 1.0)  # of a point, by the quartile of its |pointwise value|


def interval_figure(estimates: Sequence[Estimate], unit: str, identity: str) -> str:
    """Every estimate as a point with its interval, and its ceiling as a bar, over one axis."""
    with mpl.rc_context({**STYLE, "axes.spines.left": False, "ytick.major.size": 0}):
        figure, axes = new_axes(5.2, 0.7 + 0.26 * len(estimates))
        axes.axvline(0, color=MUTED, linewidth=0.9)
        for height, e in enumerate(reversed(estimates)):
            slot = len(estimates) - 1 - height
            if None not in e["interval"]:
                axes.plot(e["interval"], [height] * 2, color=slot_colour(slot), linewidth=2)
            axes.plot(e["value"], height, MARKERS[e["kind"]], color=slot_colour(slot), markersize=6)
        _ceilings(axes, estimates)
        axes.set_yticks(range(len(estimates)), [e["method"] for e in reversed(estimates)])
        axes.set_ylim(-0.6, len(estimates) - 0.4)
        axes.xaxis.set_major_locator(MaxNLocator(6))
        axes.set_xlabel(f"mutual information ({unit})")
        axes.grid(axis="y", visible=False)
        told = "; ".join(
            f"{e['method']} {amount(e['value'])}, {interval_text(e)}" for e in estimates
        )
        return to_svg(figure, identity, f"Estimates with intervals, in {unit}: {told}")


def _ceilings(axes: Any, estimates: Sequence[Estimate]) -> None:
    """A bar at each ceiling that is near enough not to squeeze everything else."""
    reach = max(max(e["value"], e["interval"][1] or 0, 0) for e in estimates)
    for height, e in enumerate(reversed(estimates)):
        if e["ceiling"] is not None and e["ceiling"] <= 2 * reach:
            axes.plot([e["ceiling"]] * 2, [height - 0.25, height + 0.25], color=INK, linewidth=1.6)


def pointwise_figure(estimate: Estimate, slot: int, identity: str) -> str | None:
    """Histogram of the pointwise mutual information of the rows; None where there is none."""
    values = finite_pointwise(estimate)
    if values is None:
        return None
    shown = values[np.isfinite(values)]
    with mpl.rc_context(STYLE):
        figure, axes = new_axes()
        bins = int(min(max(np.sqrt(len(shown)), 8), 50))
        axes.hist(shown, bins=bins, color=slot_colour(slot), alpha=0.45, edgecolor="none")
        if None not in estimate["interval"]:
            axes.axvspan(*estimate["interval"], color=slot_colour(slot), alpha=0.35, linewidth=0)
        axes.axvline(estimate["value"], color=INK, linewidth=1.2)
        axes.axvline(0, color=MUTED, linewidth=0.8, linestyle=(0, (3, 2)))
        axes.set_xlabel(f"pointwise ({estimate['unit']})")
        axes.set_ylabel("rows")
        axes.xaxis.set_major_locator(MaxNLocator(6))
        axes.yaxis.set_major_locator(MaxNLocator(4, integer=True))
        low, high = amount(float(shown.min()), 2), amount(float(shown.max()), 2)
        alt = f"Pointwise mutual information by {estimate['method']}, from {low} to {high}"
        return to_svg(figure, identity, alt)


def finite_pointwise(estimate: Estimate) -> np.ndarray | None:
    """The pointwise values with NaN for none; None where no row has one."""
    if estimate["pointwise"] is None:
        return None
    values = np.array([np.nan if v is None else v for v in estimate["pointwise"]], dtype=float)
    return values if np.isfinite(values).any() else None


def scatter_figure(
    x: Sequence[float],
    y: Sequence[float],
    names: tuple[str, str],
    estimate: Estimate,
    identity: str,
) -> str | None:
    """The rows in the plane: dots where the pair is likelier together than by chance, else crosses.

    The stronger the colour, the larger the pointwise value is in size. None without any.
    """
    values = finite_pointwise(estimate)
    if values is None:
        return None
    rows = np.flatnonzero(np.isfinite(values))
    rows = rows[np.unique(np.linspace(0, len(rows) - 1, min(_POINTS, len(rows))).astype(int))]
    at = np.stack([np.asarray(x, float), np.asarray(y, float)])[:, rows]
    values = values[rows]
    shade = np.searchsorted(np.quantile(np.abs(values), [0.25, 0.5, 0.75]), np.abs(values))
    with mpl.rc_context(STYLE):
        figure, axes = new_axes(height=3.4)
        for sign, marker, slot in ((values < 0, "x", 1), (values >= 0, "o", 0)):
            for level, alpha in enumerate(_SHADES):
                axes.plot(
                    *at[:, sign & (shade == level)],
                    linestyle="",
                    marker=marker,
                    markersize=3.2,
                    color=slot_colour(slot),
                    markeredgewidth=0.9 if marker == "x" else 0,
                    alpha=alpha,
                )
        axes.set_xlabel(names[0], parse_math=False)
        axes.set_ylabel(names[1], parse_math=False)
        axes.xaxis.set_major_locator(MaxNLocator(5))
        axes.yaxis.set_major_locator(MaxNLocator(5))
        above = f"{int((values >= 0).sum()):,} of {len(values):,} rows"
        alt = f"{names[1]} against {names[0]}, coloured by {estimate['method']}: {above} above zero"
        return to_svg(figure, identity, alt)

"""The plain words of ``transfer_page.py``: what holds, what is vacuous."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from transfer_ranks import numbers, rankings

__all__ = ["agreement", "in_short", "reading"]

Cell = dict[str, Any]


def in_short(source: str, cells: Sequence[Cell]) -> str:
    """One paragraph a data set."""
    certified = [value for cell in cells if (value := cell["certificate"]["certified"]) is not None]
    gaps = [abs(gap) for gap, _ in differences(cells, "top1_error")]
    found = {ranking.name: ranking for ranking in rankings(cells)}
    free = max((r for r in found.values() if not r.needs_labels), key=lambda r: abs(r.value))
    ranked = ", ".join(
        f"{found[name].value:+.2f} for `{name}`"
        for name in ("contrastive_risk", "certified", "rankme", "alpha_req", "view_risk")
        if name in found
    )
    return (
        f"* **{source}**, {len(cells)} encoders. {sum(v < 1 for v in certified)} are certified "
        f"below 1, at {min(certified):.2f} to {max(certified):.2f}. The learning curve is "
        f"predicted to within {100 * max(gaps):.1f} points of top-1 error, "
        f"{100 * np.mean(gaps):.1f} on average. Rank correlation with the "
        f"linear probe: {ranked}; the strongest without labels is `{free.name}`, {free.value:+.2f}."
    )


def differences(cells: Sequence[Cell], name: str) -> list[tuple[float, float]]:
    """Predicted less measured for all encoders and shots, and the deviation of one draw."""
    found = []
    for cell in cells:
        measured = {entry["shots"]: entry for entry in cell["few_shot"]}
        for shot in cell["certificate"]["few_shot"]:
            entry = measured[shot["shots"]]
            found.append((shot[name] - entry[name], entry["deviations"][name]))
    return found


def agreement(cells: Sequence[Cell]) -> str:
    """How far predictions are from what was measured, over all encoders of a data set."""
    said = []
    for name, words in (("top1_error", "top-1 error"), ("pairwise_error", "pairwise error"),
                        ("risk", "hinge risk")):  # fmt: skip
        gaps, deviations = np.transpose(differences(cells, name))
        inside = int((np.abs(gaps) <= deviations).sum())
        said.append(
            f"{words}: mean difference {np.mean(gaps):+.3f}, root mean square "
            f"{np.sqrt(np.mean(np.square(gaps))):.3f}, largest {np.abs(gaps).max():.3f}, "
            f"{inside} of {len(gaps)} within one standard deviation of a draw"
        )
    return "Predicted less measured, all encoders: " + "; ".join(said) + "."


def reading(cells: Sequence[Cell]) -> list[str]:
    """Plain words from the numbers."""
    rows = [numbers(cell) for cell in cells]
    certified = [row["certified"] for row in rows if "certified" in row]
    useful = sum(value < 1 for value in certified)
    lines = [
        f"* *Certified at 95 %*: {useful} of {len(cells)} below 1, from {min(certified):.2f} to "
        f"{max(certified):.2f}. The error that it bounds is "
        f"{ratio(rows, 'certified', 'pairwise_error')} times smaller (median)."
        if certified
        else "* *Certified at 95 %*: nothing."
    ]
    lines += [
        line
        for key, truth, words in (
            ("certificate_point", "pairwise_error", "(L_un − τ)/(1 − τ), without its width"),
            ("jensen_bound", "jensen_gap", "J, the bound on one-shot noise"),
            ("collision_price", "collision_excess", "c' s, the bound on L^= − 1"),
            ("collision_price_directional", "collision_excess", "c' s_dir, the sharper one"),
            ("second_order_price", "collision_excess", "the second-order one"),
            ("margin_bound", "noncollision_risk", "the margin bound on L^≠"),
        )
        if (line := overstated(rows, key, truth, words))
    ]
    bounds = {key for row in rows for key in row if key.startswith(("top1_bound", "training_gap"))}
    lines += [vacuous(rows, key, lambda value: value >= 1) for key in sorted(bounds)]
    highs = sorted({key for row in rows for key in row if key.startswith("cross_entropy_high")})
    classes = float(np.log(10))
    lines += [vacuous(rows, key, lambda value: value >= classes) for key in highs]
    return lines


def overstated(rows: list[dict[str, float]], key: str, truth: str, words: str) -> str:
    """How a bound compares with what it bounds."""
    values = [row[key] for row in rows if key in row]
    if not values:
        return ""
    return (
        f"* *{words}*: {min(values):.2f} to {max(values):.2f}, {ratio(rows, key, truth)} times "
        f"`{truth}` (median); {sum(v >= 1 for v in values)} of {len(values)} at 1 or above."
    )


def vacuous(rows: list[dict[str, float]], key: str, says_nothing: Callable[[float], bool]) -> str:
    values = [row[key] for row in rows if key in row]
    count = sum(map(says_nothing, values))
    return (
        f"* `{key}`: {min(values):.2f} to {max(values):.2f}, vacuous for {count} of {len(values)}."
    )


def ratio(rows: list[dict[str, float]], key: str, truth: str) -> str:
    """The median of the quotients, where what is bounded is there."""
    quotients = [row[key] / row[truth] for row in rows if key in row and row.get(truth, 0) > 0]
    return f"{statistics.median(quotients):.3g}" if quotients else "–"

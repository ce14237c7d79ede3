"""The page of ``relatum reproduce relative-parameters``."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product
from pathlib import Path
from typing import Any, Final

from ...probes import paired_difference
from ..experiments.cells import Record
from ..experiments.page import origin, table, write_page
from ..experiments.statistics import gain, level
from .grid import GRID, TITLES, Point

__all__ = ["write_parameters_page"]

_WHY: Final = """\
The released projection head ends in batch normalisation without an offset, over both views: the \
2N embeddings of a batch sum to zero. For raw dot products the mean negative score is then \
−(mean of |z|² / τ + mean positive score) / (2N − 2), whatever the weights are, and alpha times it \
is a correction of order 1/(2N). An offset in that last layer, or dividing each embedding by its \
norm, frees the mean. *Share*: by how much the gradient of one step on 128 images moves when alpha \
goes from 0 to 1, relative to its length at alpha = 0 (beta = 0.001, gamma = 1).

Cells with beta = 0 or gamma = 0 are unbounded objectives: with beta = 0 positive scores may grow \
without end, with gamma = 0 (and alpha > 0) negative ones may fall without end. With all three 0 \
nothing speaks of negatives at all. They are run as they are; a loss that is not finite ends a \
training, and the last checkpoint before is measured."""


Points = Mapping[Point, list[Record]]


def write_parameters_page(
    records: Mapping[str, Record], *, page: Path | None, command: str, jobs: int
) -> str:
    """Writes the page and its figure if asked for; returns tables and findings as text."""
    points = _points(records)
    tables = "\n\n".join(f"### {TITLES[head]}\n\n{_grid(points, head)}" for head in TITLES)
    findings = "\n".join(f"* {line}" for line in _findings(points))
    if page is not None:
        from .parameters_figure import parameters_svg  # matplotlib is slow to load, and an extra

        figure = page.with_suffix(".svg")
        parameters_svg({point: _accuracies(found) for point, found in points.items()}, figure)
        sections = [
            "# Relative parameters: the paper's figure 2, for three heads",
            origin(command, records, jobs),
            _protocol(next(iter(records.values()))["plan"]),
            f"![Accuracy over alpha, beta and gamma]({figure.name})",
            "## What was found",
            findings,
            "## Alpha where beta = 0.001 and gamma = 1",
            _deciding(points),
            "## The grids",
            tables,
            "## Why",
            _WHY,
        ]
        write_page(page, sections, command, records)
    return f"{tables}\n\n{findings}"


def _points(records: Mapping[str, Record]) -> Points:
    found: dict[Point, list[Record]] = {}
    for name in sorted(records, key=lambda name: int(name.rpartition("_")[2])):
        head, alpha, beta, gamma, _ = name.split("_")
        point = Point(head, float(alpha), float(beta), float(gamma))
        found.setdefault(point, []).append(records[name])
    return found


def _accuracies(found: list[Record]) -> list[float]:
    values = (record["measures"]["linear"] for record in found)
    return [value for value in values if value is not None]


def _grid(points: Points, head: str) -> str:
    """Linear accuracy of seed 0, in percent; a cross where a loss was not finite."""
    header = [
        "alpha \\ beta, gamma",
        *(f"{beta:g}, {gamma:g}" for beta, gamma in product(GRID, GRID)),
    ]
    rows = []
    for alpha in GRID:
        row = [f"{alpha:g}"]
        for beta, gamma in product(GRID, GRID):
            found = points.get(Point(head, alpha, beta, gamma), [])[:1]
            stopped = any(each["training"]["nonfinite_step"] is not None for each in found)
            row.append(level(_accuracies(found)) + (" ×" if stopped else ""))
        rows.append(row)
    return table(header, rows)


def _deciding(points: Points) -> str:
    """Every alpha at the paper's best beta and gamma, over all seeds, with alpha's share."""
    header = [
        "head", *(f"alpha = {alpha:g}" for alpha in GRID), "alpha 1 − 0, points",
        "share, untrained", "share, trained",
    ]  # fmt: skip
    rows = []
    for head, title in TITLES.items():
        of = {alpha: points.get(Point(head, alpha, 0.001, 1.0), []) for alpha in GRID}
        values = {alpha: _accuracies(found) for alpha, found in of.items()}
        shares = [each["alpha_share"] for each in of[0.0] if "alpha_share" in each]
        means = [
            f"{sum(share[kind] for share in shares) / len(shares):.4f}" if shares else "not run"
            for kind in ("untrained", "trained")
        ]
        change = gain(values[1.0], values[0.0])
        rows.append([title, *(level(values[alpha]) for alpha in GRID), change, *means])
    return table(header, rows) + "\n\nMean ± half of the 95 % t-interval over seeds, in percent."


def _findings(points: Points) -> list[str]:
    lines = []
    for head, title in TITLES.items():
        one, zero = (_accuracies(points.get(Point(head, a, 0.001, 1.0), [])) for a in (1.0, 0.0))
        shares = [
            record["alpha_share"]["trained"]
            for record in points.get(Point(head, 0.0, 0.001, 1.0), []) if "alpha_share" in record
        ]  # fmt: skip
        if not one or len(one) != len(zero) or not shares:
            continue
        clear = paired_difference(one, zero).excludes_zero
        lines.append(
            f"{title}: alpha from 0 to 1 moves the gradient of a trained network by "
            f"{100 * sum(shares) / len(shares):.2f} % of its length, and accuracy by "
            f"{gain(one, zero)} points ({'' if clear else 'not '}clear at these seeds)."
        )
    for head, (point, accuracy) in _best(points).items():
        run = sum(1 for other in points if other.head == head)
        lines.append(
            f"{TITLES[head]}: best of {run} of 27 cells (seed 0) at alpha = {point.alpha:g}, beta "
            f"= {point.beta:g}, gamma = {point.gamma:g}, {100 * accuracy:.1f} %; the paper has its "
            "best region at beta = 0.001, gamma = 1."
        )
    stopped = [
        f"{point.head} ({point.alpha:g}, {point.beta:g}, {point.gamma:g})"
        for point, found in points.items()
        if any(each["training"]["nonfinite_step"] is not None for each in found)
    ]
    lines.append(f"Not finite: {', '.join(stopped) or 'no cell'}.")
    return lines


def _best(points: Points) -> dict[str, tuple[Point, float]]:
    best: dict[str, tuple[Point, float]] = {}
    for point, found in points.items():
        value = _accuracies(found[:1])
        if value and (point.head not in best or value[0] > best[point.head][1]):
            best[point.head] = point, value[0]
    return best


def _protocol(plan: Mapping[str, Any]) -> str:
    side = plan["image_size"] or 32
    return (
        f"CIFAR-10 at {side} x {side} pixels, {plan['limit'] or 50_000:,} training images, "
        f"`{plan['encoder']}`, batch {plan['batch_size']}, {plan['epochs']:g} epochs, "
        f"{plan['optimizer']} at rate {plan['learning_rate']:g}. Linear classifier on frozen "
        "features, its penalty chosen on training images, judged on the 10,000 test images. The "
        "best cell of a grid is chosen on those, as in the paper: it says where the grid is high, "
        "and its accuracy is too high by that choice."
    )

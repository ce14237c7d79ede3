"""The page of ``relatum reproduce relative-parameters``."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product
from pathlib import Path
from typing import Any, Final

from ...probes import paired_difference
from ..experiments.cells import Record
from ..experiments.page import length, origin, table, write_page
from ..experiments.seeds import Runs, accuracy, by_seed, ended, shared, values
from ..experiments.statistics import gain
from .grid import DECIDING, GRID, TITLES, Point

__all__ = ["write_parameters_page"]

_WHY: Final = """\
The released projection head ends in batch normalisation without an offset, over both views: the \
2N embeddings of a batch sum to zero. For raw dot products the mean negative score is then \
−(mean of |z|² / τ + mean positive score) / (2N − 2), whatever the weights are, and alpha times it \
is a correction of order 1/(2N). An offset in that last layer, or dividing each embedding by its \
norm, frees the mean. *Share*: by how much the gradient of one step on 128 images moves when alpha \
goes from 0 to 1, relative to its length at alpha = 0 (beta = 0.001, gamma = 1).

For raw scores some cells are unbounded objectives: with beta = 0 positive scores may grow without \
end, with gamma = 0 and alpha > 0 negative ones may fall without end; where alpha and gamma are 0 \
nothing speaks of negatives at all. Cosines are bounded, and so is every objective of them. All \
cells are run as they are; a loss that is not finite ends a training (×), and the last checkpoint \
before is measured."""


Points = Mapping[Point, Runs]


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
        parameters_svg({point: values(found).get(0) for point, found in points.items()}, figure)
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
    found = {}
    for key, runs in by_seed(records).items():
        head, alpha, beta, gamma = key.split("_")
        found[Point(head, float(alpha), float(beta), float(gamma))] = runs
    return found


def _first(runs: Runs) -> Runs:
    """Of seed 0 alone, which the grid is compared on."""
    return {seed: record for seed, record in runs.items() if seed == 0}


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
            row.append(accuracy(_first(points.get(Point(head, alpha, beta, gamma), {}))))
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
        of = {alpha: points.get(Point(head, alpha, *DECIDING), {}) for alpha in GRID}
        shares = _shares(of[0.0])
        means = [
            f"{sum(share[kind] for share in shares) / len(shares):.4f}" if shares else "not run"
            for kind in ("untrained", "trained")
        ]
        change = gain(*shared(values(of[1.0]), values(of[0.0])))
        rows.append([title, *(accuracy(of[alpha]) for alpha in GRID), change, *means])
    return table(header, rows) + "\n\nMean ± half of the 95 % t-interval over seeds, in percent."


def _shares(runs: Runs) -> list[dict[str, float]]:
    """Alpha's share of the gradient, untrained and trained, where it was measured."""
    return [record["alpha_share"] for record in runs.values() if "alpha_share" in record]


def _findings(points: Points) -> list[str]:
    lines = []
    for head, title in TITLES.items():
        ends = [points.get(Point(head, alpha, *DECIDING), {}) for alpha in (1.0, 0.0)]
        one, zero = shared(*map(values, ends))
        shares = [share["trained"] for share in _shares(ends[1])]
        if not one or not shares:
            continue
        clear = paired_difference(one, zero).excludes_zero
        lines.append(
            f"{title}: alpha from 0 to 1 moves the gradient of a trained network by "
            f"{100 * sum(shares) / len(shares):.2f} % of its length, and accuracy by "
            f"{gain(one, zero)} points ({'' if clear else 'not '}clear at these seeds)."
        )
    for head, (point, value) in _best(points).items():
        run = sum(1 for other in points if other.head == head)
        lines.append(
            f"{TITLES[head]}: best of {run} of 27 cells (seed 0) at alpha = {point.alpha:g}, beta "
            f"= {point.beta:g}, gamma = {point.gamma:g}, {100 * value:.1f} %; the paper has its "
            "best region at beta = 0.001, gamma = 1."
        )
    stopped = [
        f"{point.head} ({point.alpha:g}, {point.beta:g}, {point.gamma:g})"
        for point, found in points.items()
        if ended(found)
    ]
    lines.append(f"Not finite: {', '.join(stopped) or 'no cell'}.")
    return lines


def _best(points: Points) -> dict[str, tuple[Point, float]]:
    best: dict[str, tuple[Point, float]] = {}
    for point, found in points.items():
        value = values(found).get(0)
        if value is not None and (point.head not in best or value > best[point.head][1]):
            best[point.head] = point, value
    return best


def _protocol(plan: Mapping[str, Any]) -> str:
    side = plan["image_size"] or 32
    return (
        f"CIFAR-10 at {side} x {side} pixels, {plan['limit'] or 50_000:,} training images, "
        f"`{plan['encoder']}`, batch {plan['batch_size']}, {length(plan)}, "
        f"{plan['optimizer']} at rate {plan['learning_rate']:g}. Linear classifier on frozen "
        "features, its penalty chosen on training images, judged on all test images. The "
        "best cell of a grid is chosen on those, as in the paper: it says where the grid is high, "
        "and its accuracy is too high by that choice."
    )

"""Accuracy of two objectives against the size of the batch: page, figure, verdict."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from ...probes import paired_difference
from .cells import Record
from .page import origin, table, write_page
from .statistics import Slope, gain, level, slope

__all__ = ["write_batch_page"]

_EXPLAINED = """\
Mean ± half width of the 95 % t-interval over seeds, in percent; the difference is paired over \
seeds. *Slope*: points of accuracy for each doubling of the batch, by least squares over all sizes \
and seeds, with its 95 % t-interval. The paper says that CPC drops more at small batches: then \
CPC's slope is the larger one, and the slope of RPC − CPC is below zero."""


class _Point(NamedTuple):
    objective: str
    size: int
    seed: int
    accuracy: float


def write_batch_page(
    records: Mapping[str, Record],
    *,
    page: Path | None,
    title: str,
    command: str,
    protocol: str,
    measure: str,
    jobs: int,
) -> str:
    """Writes the page if one is asked for; returns its table and findings as text.

    Args:
        records: Of cells named OBJECTIVE-SIZE-SEED.
        page: Where, ending in .md.
        title: Of the page.
        command: That makes it.
        protocol: What was trained and measured.
        measure: Which measure is compared.
        jobs: Cells at a time.
    """
    points = _points(records, measure)
    sizes = sorted({point.size for point in points})
    header = ["batch", "RPC, %", "CPC, %", "RPC − CPC, points"]
    rows = [
        [str(size), level(_at(points, "rpc", size)), level(_at(points, "cpc", size)),
         gain(*_pairs(points, size))]
        for size in sizes
    ]  # fmt: skip
    shown = table(header, rows)
    slopes = {name: _slope(points, name) for name in ("rpc", "cpc")}
    slopes["difference"] = _difference_slope(points)
    findings = "\n".join(f"* {line}" for line in [*_findings(slopes), _levels(points, sizes)])
    if page is not None:
        _draw(points, page.with_suffix(".svg"))
        sections = [
            f"# {title}",
            origin(command, records, jobs),
            protocol,
            f"![Accuracy against batch size]({page.with_suffix('.svg').name})",
            "## What was found",
            findings,
            "## The numbers",
            shown,
            _EXPLAINED,
        ]
        found = {name: value and value._asdict() for name, value in slopes.items()}
        write_page(page, sections, command, records, slopes=found)
    return f"{shown}\n\n{findings}"


def _points(records: Mapping[str, Record], measure: str) -> list[_Point]:
    found = []
    for name, record in records.items():
        objective, size, seed = name.split("-")
        value = record["measures"].get(measure)
        if value is not None:
            found.append(_Point(objective, int(size), int(seed), float(value)))
    return sorted(found)


def _at(points: Sequence[_Point], objective: str, size: int) -> list[float]:
    return [p.accuracy for p in points if (p.objective, p.size) == (objective, size)]


def _pairs(points: Sequence[_Point], size: int) -> tuple[list[float], list[float]]:
    """Accuracies of the seeds that both objectives have."""
    of = {(p.objective, p.seed): p.accuracy for p in points if p.size == size}
    seeds = sorted(s for name, s in of if name == "rpc" and ("cpc", s) in of)
    return [of["rpc", s] for s in seeds], [of["cpc", s] for s in seeds]


def _slope(points: Sequence[_Point], objective: str) -> Slope | None:
    mine = [point for point in points if point.objective == objective]
    return _fit([p.size for p in mine], [p.accuracy for p in mine])


def _difference_slope(points: Sequence[_Point]) -> Slope | None:
    sizes, differences = [], []
    for size in sorted({point.size for point in points}):
        for a, b in zip(*_pairs(points, size), strict=True):
            sizes.append(size)
            differences.append(a - b)
    return _fit(sizes, differences)


def _fit(sizes: Sequence[int], values: Sequence[float]) -> Slope | None:
    if len(values) < 3 or len(set(sizes)) < 2:
        return None
    return slope([math.log2(size) for size in sizes], values)


def _findings(slopes: Mapping[str, Slope | None]) -> list[str]:
    names = {"rpc": "RPC", "cpc": "CPC", "difference": "RPC − CPC"}
    lines = []
    for key, name in names.items():
        if (found := slopes[key]) is not None:
            ends = f"{100 * found.low:+.2f} to {100 * found.high:+.2f}"
            lines.append(f"{name}: {100 * found.value:+.2f} points for each doubling ({ends}).")
    if (found := slopes["difference"]) is not None:
        if found.high < 0:
            verdict = "holds here: the interval of the difference lies below zero"
        elif found.low > 0:
            verdict = "is contradicted here: the interval of the difference lies above zero"
        else:
            verdict = "is neither shown nor refuted here: the interval of the difference holds zero"
        lines.append(f"That RPC depends less on the size of the batch than CPC {verdict}.")
    return lines


def _levels(points: Sequence[_Point], sizes: Sequence[int]) -> str:
    """At which sizes one of the two is clearly above the other."""
    above: dict[str, list[str]] = {"RPC": [], "CPC": []}
    for size in sizes:
        rpc, cpc = _pairs(points, size)
        if rpc and (found := paired_difference(rpc, cpc)).excludes_zero:
            above["RPC" if found.mean > 0 else "CPC"].append(str(size))
    said = [f"{name} is above at {', '.join(at)}" for name, at in above.items() if at]
    return f"By paired intervals {'; '.join(said) or 'neither is above the other at any size'}."


def _draw(points: Sequence[_Point], path: Path) -> None:
    from .figure import COLOURS, panels, save_svg  # matplotlib is slow to load, and an extra

    figure, axes = panels(1, width=4.8, height=3.0)
    axis = axes[0][0]
    sizes = sorted({point.size for point in points})
    for name, colour in zip(("rpc", "cpc"), COLOURS, strict=False):
        mine = [p for p in points if p.objective == name]
        known = [size for size in sizes if _at(points, name, size)]
        means = [100 * sum(v) / len(v) for size in known if (v := _at(points, name, size))]
        axis.plot(known, means, color=colour, linewidth=1.6, label=name.upper())
        axis.plot([p.size for p in mine], [100 * p.accuracy for p in mine], "o", color=colour,
                  markersize=3.5, alpha=0.6)  # fmt: skip
    axis.set_xscale("log", base=2)
    axis.set_xticks(sizes, [str(size) for size in sizes])
    axis.minorticks_off()
    axis.set_xlabel("batch")
    axis.set_ylabel("accuracy, % (a dot is a seed)")
    axis.legend(frameon=False)
    save_svg(figure, path)

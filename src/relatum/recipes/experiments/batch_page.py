"""Accuracy of two objectives against the size of the batch: page, figure, verdict."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from ...probes import mean_interval, paired_difference
from .cells import Record
from .page import origin, table, write_page
from .seeds import accuracy, by_seed, shared, values
from .statistics import Slope, gain, slope

__all__ = ["write_batch_page"]

_EXPLAINED = """\
Mean ± half width of the 95 % t-interval over seeds, in percent; the difference is paired over \
seeds. *Slope*: points of accuracy for each doubling of the batch, by least squares. *Over seeds*: \
one slope a seed, and the t-interval of their mean; it supposes nothing of trainings that share a \
seed, and is what the verdict rests on. *Pooled*: one line through all trainings, taken as \
independent. The paper says that CPC drops more at small batches: then CPC's slope is above zero, \
and the slope of RPC − CPC below it."""

_NAMES = {"rpc": "RPC", "cpc": "CPC", "difference": "RPC − CPC"}


class _Slopes(NamedTuple):
    """One slope by two intervals, which differ in what they suppose."""

    over_seeds: Slope
    pooled: Slope


Curves = Mapping[int, Mapping[int, float]]
"""Accuracies of an objective, by size and seed."""


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
    curves = {name: _curves(records, name, measure) for name in ("rpc", "cpc")}
    sizes = sorted(curves["rpc"].keys() | curves["cpc"].keys())
    header = ["batch", "RPC, %", "CPC, %", "RPC − CPC, points"]
    found = by_seed(records)
    rows = [
        [str(size), *(accuracy(found.get(f"{name}-{size}", {}), measure) for name in curves),
         gain(*_pairs(curves, size))]
        for size in sizes
    ]  # fmt: skip
    shown = table(header, rows)
    slopes = {name: _slopes(curve) for name, curve in {**curves, **_difference(curves)}.items()}
    findings = "\n".join(f"* {line}" for line in [*_findings(slopes), _levels(curves, sizes)])
    if page is not None:
        _draw(curves, page.with_suffix(".svg"))
        sections = [
            f"# {title}",
            origin(command, records, jobs),
            protocol,
            f"![Accuracy against batch size]({page.with_suffix('.svg').name})",
            "## What was found",
            findings,
            "## The numbers",
            shown,
            _slope_table(slopes),
            _EXPLAINED,
        ]
        numbers = {
            name: each and {kind: value._asdict() for kind, value in each._asdict().items()}
            for name, each in slopes.items()
        }
        write_page(page, sections, command, records, slopes=numbers)
    return f"{shown}\n\n{findings}"


def _curves(records: Mapping[str, Record], objective: str, measure: str) -> Curves:
    found = {}
    for key, runs in by_seed(records).items():
        name, _, size = key.partition("-")
        if name == objective and (known := values(runs, measure)):
            found[int(size)] = known
    return dict(sorted(found.items()))


def _pairs(curves: Mapping[str, Curves], size: int) -> tuple[list[float], list[float]]:
    """Accuracies of the seeds that both objectives have."""
    return shared(curves["rpc"].get(size, {}), curves["cpc"].get(size, {}))


def _difference(curves: Mapping[str, Curves]) -> dict[str, Curves]:
    rpc, cpc = curves["rpc"], curves["cpc"]
    return {
        "difference": {
            size: {s: rpc[size][s] - cpc[size][s] for s in rpc[size].keys() & cpc[size].keys()}
            for size in rpc.keys() & cpc.keys()
        }
    }


def _slopes(curve: Curves) -> _Slopes | None:
    """Accuracy against log2 of the size; None with fewer than two seeds or three sizes of each."""
    of: dict[int, list[tuple[float, float]]] = {}
    for size, seeds in curve.items():
        for seed, value in seeds.items():
            of.setdefault(seed, []).append((math.log2(size), value))
    if len(of) < 2 or min(map(len, of.values())) < 3:
        return None
    mean = mean_interval([slope(*zip(*points, strict=True)).value for points in of.values()])
    every = [point for points in of.values() for point in points]
    return _Slopes(Slope(mean.mean, mean.low, mean.high), slope(*zip(*every, strict=True)))


def _ends(found: Slope) -> str:
    return f"{100 * found.value:+.2f} ({100 * found.low:+.2f} to {100 * found.high:+.2f})"


def _slope_table(slopes: Mapping[str, _Slopes | None]) -> str:
    header = ["slope, points a doubling", "over seeds", "pooled"]
    rows = [
        [name, *(map(_ends, found) if (found := slopes[key]) else ("not run", "not run"))]
        for key, name in _NAMES.items()
    ]
    return table(header, rows)


def _findings(slopes: Mapping[str, _Slopes | None]) -> list[str]:
    lines = [
        f"{name}: {_ends(found.over_seeds)} points for each doubling."
        for key, name in _NAMES.items()
        if (found := slopes[key]) is not None
    ]
    difference, cpc = slopes["difference"], slopes["cpc"]
    if difference is None or cpc is None:
        return [*lines, "Fewer than two seeds of three sizes: no verdict."]
    return [*lines, f"That CPC loses more by small batches than RPC {_verdict(difference, cpc)}"]


def _verdict(difference: _Slopes, cpc: _Slopes) -> str:
    if cpc.over_seeds.value <= 0:
        return "cannot be seen here: CPC does not lose by small batches."
    found, pooled = difference
    if found.high < 0:
        return "holds here: the interval of the difference lies below zero."
    if found.low > 0:
        return "is contradicted here: the interval of the difference lies above zero."
    said = "is neither shown nor refuted here: the interval of the difference holds zero"
    if pooled.high < 0:
        return f"{said}, though that of the pooled trainings lies below it."
    return f"{said}."


def _levels(curves: Mapping[str, Curves], sizes: Sequence[int]) -> str:
    """At which sizes one of the two is clearly above the other."""
    above: dict[str, list[str]] = {"RPC": [], "CPC": []}
    for size in sizes:
        rpc, cpc = _pairs(curves, size)
        if rpc and (found := paired_difference(rpc, cpc)).excludes_zero:
            above["RPC" if found.mean > 0 else "CPC"].append(str(size))
    said = [f"{name} is above at {', '.join(at)}" for name, at in above.items() if at]
    return f"By paired intervals {'; '.join(said) or 'neither is above the other at any size'}."


def _draw(curves: Mapping[str, Curves], path: Path) -> None:
    from .figure import COLOURS, panels, save_svg  # matplotlib is slow to load, and an extra

    figure, axes = panels(1, width=4.8, height=3.0)
    axis = axes[0][0]
    for (name, curve), colour in zip(curves.items(), COLOURS, strict=False):
        means = [100 * sum(seeds.values()) / len(seeds) for seeds in curve.values()]
        axis.plot(list(curve), means, color=colour, linewidth=1.6, label=name.upper())
        dots = [(size, 100 * value) for size, seeds in curve.items() for value in seeds.values()]
        axis.plot(*zip(*dots, strict=True), "o", color=colour, markersize=3.5, alpha=0.6)
    sizes = sorted({size for curve in curves.values() for size in curve})
    axis.set_xscale("log", base=2)
    axis.set_xticks(sizes, [str(size) for size in sizes])
    axis.minorticks_off()
    axis.set_xlabel("batch")
    axis.set_ylabel("accuracy, % (a dot is a seed)")
    axis.legend(frameon=False)
    save_svg(figure, path)

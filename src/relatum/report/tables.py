"""The report's numbers: means over repeats with intervals, and paired differences.

The unit of replication is the run: probe seeds inside a run (draws of few labels) are averaged
first, so that an interval speaks of what would change if training were repeated. Only where a
group holds a single run are its probe seeds the units, and the page says so.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from ..probes.summary import Interval, mean_interval, paired_difference
from .reading import Column, Group, RunRecord

__all__ = [
    "BASELINES",
    "Interval",
    "Row",
    "accuracy_rows",
    "by_seed",
    "columns",
    "compare",
    "difference_rows",
    "half",
    "interval",
    "standing",
    "units",
]


BASELINES: Final = {
    "untrained": "untrained encoder",
    "pixels": "raw pixels",
    "mfcc": "39 MFCC",
    "mfcc13": "13 MFCC",
}
"""Features that stand beside those of an encoder, by the name that probes give them."""


class Row(NamedTuple):
    """One table row: a heading and one interval (or None) for each column."""

    label: str
    slot: int | None
    repeats: str
    cells: tuple[Interval | None, ...]

    @property
    def most(self) -> int:
        """The largest number of repeats behind one of its cells."""
        return max((cell.n for cell in self.cells if cell), default=0)


def half(value: Interval) -> float:
    """Half the width of an interval; NaN for a single value."""
    return (value.high - value.low) / 2


def standing(difference: Interval) -> str:
    """Where a difference stands: "above", "below", "unclear" (zero inside), "single" (n = 1)."""
    if difference.n == 1:
        return "single"
    if not difference.excludes_zero:
        return "unclear"
    return "above" if difference.mean > 0 else "below"


def interval(values: Iterable[float]) -> Interval | None:
    """The mean of the values with its 95 % t-interval; None where there is no value."""
    found = list(values)
    return mean_interval(found) if found else None


def columns(groups: Sequence[Group]) -> list[Column]:
    """All kinds of probe that any run has, in reading order."""
    found = {row.column for g in groups for run in g.runs for row in run.probe_rows}
    return sorted(found, key=lambda column: column.order)


def _measured(run: RunRecord, features: str, column: Column) -> dict[int, float]:
    return {
        row.seed: row.accuracy
        for row in run.probe_rows
        if (row.features, row.column) == (features, column) and math.isfinite(row.accuracy)
    }


def units(group: Group, features: str, column: Column) -> dict[int, float]:
    """One accuracy for each unit of replication: keyed by run, or by probe seed in a single run."""
    if len(group.runs) == 1:
        return _measured(group.runs[0], features, column)
    found = {i: _measured(run, features, column) for i, run in enumerate(group.runs)}
    return {i: math.fsum(each.values()) / len(each) for i, each in found.items() if each}


def repeats(group: Group) -> str:
    """What was repeated, in words."""
    if len(group.runs) > 1:
        probed = sum(bool(run.probe_rows) for run in group.runs)
        return f"{'' if probed == len(group.runs) else f'{probed} of '}{len(group.runs)} runs"
    seeds = {row.seed for row in group.runs[0].probe_rows}
    return "1 run" if len(seeds) < 2 else f"1 run, {len(seeds)} probe seeds"


def _diverged(group: Group) -> str:
    count = sum(run.diverged is not None for run in group.runs)
    return "" if not count else f", {count} diverged" if len(group.runs) > 1 else ", diverged"


def accuracy_rows(groups: Sequence[Group], columns: Sequence[Column]) -> list[Row]:
    """Accuracies of each group's encoder, then of what stands beside it."""
    rows = [
        Row(
            group.label,
            group.slot,
            repeats(group) + _diverged(group),
            tuple(interval(units(group, "encoder", c).values()) for c in columns),
        )
        for group in groups
    ]
    for features, name in BASELINES.items():
        label = name[0].upper() + name[1:]
        cells = tuple(interval(_baseline(groups, features, column)) for column in columns)
        most = max((cell.n for cell in cells if cell), default=0)
        if most:
            rows.append(Row(label, None, f"n = {most}", cells))
    return rows


def _baseline(groups: Sequence[Group], features: str, column: Column) -> list[float]:
    # Groups share their baselines: the untrained encoder of seed 0 is the same one under every
    # objective. Counting it once for each group would make its interval too narrow.
    seen: dict[tuple[object, float], float] = {}
    for group in groups:
        for i, value in units(group, features, column).items():
            seed = group.runs[i].setting("seed") if len(group.runs) > 1 else i
            seen[seed, value] = value
    values = list(seen.values())
    if features != "untrained" and len(set(values)) == 1:  # one measurement, however often repeated
        return values[:1]
    return values


def compare(a: Mapping[int, float], b: Mapping[int, float]) -> Interval | None:
    """The interval of a − b over the units that both have (paired); None where there is none."""
    shared = sorted(a.keys() & b.keys())
    return paired_difference([a[i] for i in shared], [b[i] for i in shared]) if shared else None


def difference_rows(groups: Sequence[Group], columns: Sequence[Column]) -> list[Row]:
    """Paired differences: each encoder minus its baselines, then objectives against each other."""
    rows = []
    for group in groups:
        for features, name in BASELINES.items():
            cells = tuple(
                compare(units(group, "encoder", c), units(group, features, c)) for c in columns
            )
            rows.append(Row(f"{group.label} minus {name}", group.slot, repeats(group), cells))
    for a, b in itertools.combinations(groups, 2):
        cells = tuple(compare(by_seed(a, c), by_seed(b, c)) for c in columns)
        shared = [cell.n for cell in cells if cell]
        count = f"{max(shared)} shared seed{'s' * (max(shared) > 1)}" if shared else ""
        rows.append(Row(f"{a.label} minus {b.label}", None, count, cells))
    return [row for row in rows if any(row.cells)]


def by_seed(group: Group, column: Column) -> dict[int, float]:
    """One accuracy for each training seed, by which two objectives pair up.

    A seed fixes the initial weights and the order of the data for all of them.
    """
    found: dict[int, float] = {}
    for run in group.runs:
        each, seed = _measured(run, "encoder", column), run.setting("seed")
        if each and isinstance(seed, int):
            found[seed] = math.fsum(each.values()) / len(each)
    return found

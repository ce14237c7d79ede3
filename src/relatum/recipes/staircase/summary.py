"""Seeds of a reading taken together, level by level."""

from __future__ import annotations

import math
from typing import Any, Final, NamedTuple

import numpy as np

from .cells import Cell
from .task import LEVELS

__all__ = ["TITLES", "Curves", "Level", "curves_of", "levels_of", "outside_of"]

TITLES: Final = {
    "rpc": "RPC, right read-out",
    "rpc-drop": "RPC, right read-out, out of range left out",
    "rpc-published": "RPC, published read-out",
    "rpc-logit": "RPC, logit form",
    "smile": "SMILE (τ = 5)",
    "js": "JS, read by NWJ",
    "cpc": "CPC",
    "nwj": "NWJ",
    "dv": "DV",
    "mine": "MINE",
    "tuba": "TUBA",
    "doe": "DoE, Gaussian",
    "doe-logistic": "DoE, logistic",
}

Curves = dict[tuple[str, str], list[list[float]]]
Cells = dict[Cell, dict[str, Any]]


class Level(NamedTuple):
    """A reading at one level, over its seeds: squares are averaged, then means and medians.

    Attributes:
        truth: The mutual information, in nats.
        mean: Of the estimates.
        sd: Of the estimates at one level of one seed, learning included.
        noise: Their scatter from batch to batch, learning not included.
        mse: Mean squared error.
        median: Of the estimates.
        not_finite: Number of estimates that were none.
    """

    truth: float
    mean: float
    sd: float
    noise: float
    mse: float
    median: float
    not_finite: int

    @property
    def bias(self) -> float:
        """Mean less truth."""
        return self.mean - self.truth


def levels_of(cells: Cells) -> dict[tuple[str, str], list[Level]]:
    """Levels by (task, reading)."""
    found: dict[tuple[str, str], list[list[dict[str, float]]]] = {}
    for cell, record in cells.items():
        for name, reading in record["readings"].items():
            found.setdefault((cell.task, name), []).append(reading["levels"])
    return {
        place: [_pooled([seed[at] for seed in seeds]) for at in range(len(LEVELS))]
        for place, seeds in found.items()
    }


def curves_of(cells: Cells) -> Curves:
    """Curves by (task, reading), one a seed."""
    curves: Curves = {}
    for cell, record in cells.items():
        for name, reading in record["readings"].items():
            curves.setdefault((cell.task, name), []).append(reading["curve"])
    return curves


def outside_of(cells: Cells, task: str) -> list[tuple[float, float]]:
    """Share of RPC's positives below and above its range, by level; empty without such a cell."""
    shares = [
        [(level["below"], level["above"]) for level in record["outside"]]
        for cell, record in cells.items()
        if (cell.task, cell.training) == (task, "rpc")
    ]
    if not shares:
        return []
    return [(float(below), float(above)) for below, above in np.mean(shares, axis=0)]


def _pooled(seeds: list[dict[str, float]]) -> Level:
    def mean(name: str) -> float:
        return float(np.mean([seed[name] for seed in seeds]))

    def root(name: str) -> float:
        return math.sqrt(float(np.mean([seed[name] ** 2 for seed in seeds])))

    return Level(
        truth=seeds[0]["truth"],
        mean=mean("mean"),
        sd=root("sd"),
        noise=root("noise"),
        mse=mean("mse"),
        median=mean("median"),
        not_finite=int(sum(seed["not_finite"] for seed in seeds)),
    )

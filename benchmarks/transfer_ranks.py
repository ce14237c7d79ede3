"""Which numbers of a certificate rank encoders as their linear probes do."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy.stats import rankdata

__all__ = ["Ranking", "label_free_names", "numbers", "rankings"]

PERMUTATIONS, RESAMPLES = 20_000, 2000
# Not of the encoder: the range of a fit, and a gap that is a power of the radius alone.
LEFT_OUT = ("alpha_req_first", "alpha_req_last", "training_gap")
LABEL_FREE = ("uniformity", "rankme", "alpha_req", "effective_rank", "participation_ratio")


class Ranking(NamedTuple):
    """Spearman's rank correlation of one number with probe accuracy, over encoders."""

    name: str
    value: float
    low: float
    high: float
    p: float
    trained: float
    encoders: int
    needs_labels: bool


def numbers(cell: Mapping[str, Any]) -> dict[str, float]:
    """Everything that a certificate of an encoder holds, by name."""
    certificate = cell["certificate"]
    found = {line["key"]: line["value"] for line in certificate["lines"]}
    found["certified"] = certificate["certified"]
    found |= {
        f"top-1 error predicted for {shot['shots']} labels": shot["top1_error"]
        for shot in certificate["few_shot"]
    }
    found |= certificate["diagnostics"]
    found |= cell["label_free"]
    return {
        name: float(value)
        for name, value in found.items()
        if isinstance(value, int | float) and not isinstance(value, bool)
    }


def label_free_names(cell: Mapping[str, Any]) -> set[str]:
    """The numbers that need no label."""
    return {
        *cell["label_free"],
        *(n for n in cell["certificate"]["diagnostics"] if n in LABEL_FREE),
    }


def rankings(cells: Sequence[Mapping[str, Any]]) -> list[Ranking]:
    """One ranking a number that all encoders have and that is not the same for all."""
    rows = [numbers(cell) for cell in cells]
    accuracy = np.array([cell["probe"]["linear"] for cell in cells])
    trained = np.array([cell["objective"] != "untrained" for cell in cells])
    free = label_free_names(cells[0])
    found = []
    for name in rows[0]:
        if name in LEFT_OUT or not all(name in row for row in rows):
            continue
        values = np.array([row[name] for row in rows])
        if np.ptp(values) <= 1e-9 * max(1.0, np.abs(values).max()):  # equal, or all but 0
            continue
        low, high = interval(values, accuracy)
        found.append(
            Ranking(
                name,
                spearman(values, accuracy),
                low,
                high,
                permutation_p(values, accuracy),
                spearman(values[trained], accuracy[trained]),
                len(cells),
                name not in free,
            )
        )
    return sorted(found, key=lambda ranking: -abs(ranking.value))


def spearman(x: np.ndarray, y: np.ndarray) -> float:
    """The correlation of the ranks; equal values share their mean rank."""
    a, b = centred_ranks(x), centred_ranks(y)
    size = math.sqrt((a @ a) * (b @ b))
    return float(a @ b / size) if size else math.nan


def centred_ranks(values: np.ndarray) -> np.ndarray:
    ranks = rankdata(values, axis=-1)
    return np.asarray(ranks - ranks.mean(axis=-1, keepdims=True))


def permutation_p(x: np.ndarray, y: np.ndarray) -> float:
    """How often a random order is as far from 0: (1 + hits) / (1 + permutations), two-sided."""
    generator = np.random.default_rng(0)
    a, b = centred_ranks(x), centred_ranks(y)
    shuffled = generator.permuted(np.tile(a, (PERMUTATIONS, 1)), axis=1) @ b
    hits = int((np.abs(shuffled) >= abs(a @ b) - 1e-9).sum())
    return (1 + hits) / (1 + PERMUTATIONS)


def interval(x: np.ndarray, y: np.ndarray) -> tuple[float, float]:
    """The middle 95 % over encoders drawn with replacement."""
    rows = np.random.default_rng(0).integers(len(x), size=(RESAMPLES, len(x)))
    a, b = centred_ranks(x[rows]), centred_ranks(y[rows])
    sizes = np.sqrt((a**2).sum(1) * (b**2).sum(1))
    values = (a * b).sum(1)[sizes > 0] / sizes[sizes > 0]
    low, high = np.quantile(values, (0.025, 0.975))
    return float(low), float(high)

"""Intervals for a reading, by resampling its rows, groups of rows, or blocks of a series."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float64

from .reading import Reading
from .splits import numbered

__all__ = ["Interval", "bootstrap", "check_resampling"]

_DRAWS = 1 << 22  # resampled numbers held at a time


class Interval(NamedTuple):
    """Ends and standard error, in nats; NaN where the reading is not finite."""

    low: float
    high: float
    standard_error: float


def bootstrap(
    reading: Reading,
    *,
    level: float = 0.95,
    resamples: int = 1000,
    seed: int = 0,
    groups: Sequence[object] | np.ndarray | None = None,
    block_length: int | None = None,
) -> Interval:
    r"""Percentiles of the mean of resampled terms.

    A row is a pair (x_i, y_i), and pairs are never broken. With groups, whole groups are drawn;
    with a block length L, circular blocks of L rows in a row, which keeps dependence over less than
    L. Where the reading knows a standard error of its own that is larger than that of independent
    terms, what is beyond them is added in squares, and the interval is widened about the value in
    proportion.

    Args:
        reading: An estimate and its terms.
        level: Nominal coverage, in (0, 1).
        resamples: How often rows are drawn.
        seed: Of the draws.
        groups: A label for each row.
        block_length: Rows in a block.

    Raises:
        ValueError: As :func:`check_resampling`.

    Example:
        >>> reading = Reading(0.5, np.array([0.0, 1.0] * 200), None, "plug-in")
        >>> low, high, error = bootstrap(reading)
        >>> bool(abs(low - 0.45) < 0.01), round(error, 3)  # 0.5 − 1.96 · 0.5 / 20
        (True, 0.025)
    """
    check_resampling(len(reading.terms), level, resamples, groups, block_length)
    if not np.isfinite(reading.terms).all() or not np.isfinite(reading.value):
        return Interval(float("nan"), float("nan"), float("nan"))
    random = np.random.default_rng(seed)
    if block_length is not None:
        sums, counts = _blocks(reading.terms, block_length)
        draws = -(-len(reading.terms) // block_length)
    elif groups is not None:
        labels = numbered(len(reading.terms), groups)
        sums, counts = np.bincount(labels, reading.terms), np.bincount(labels).astype(float)
        draws = len(sums)
    else:
        sums, counts = reading.terms, np.ones(len(reading.terms))
        draws = len(sums)
    means = _means(sums, counts, draws, resamples, random)
    error = float(means.std(ddof=1))
    center, widen = float(reading.terms.mean()), 1.0
    beyond = _beyond_terms(reading)
    if beyond > 0:
        whole = math.hypot(error, beyond)
        # Terms without spread say nothing; the reading's own error then stands alone.
        widen = whole / error if error > 0 else 1.0
        means = means if error > 0 else center + whole * random.standard_normal(resamples)
        error = whole
    low, high = np.quantile(means, [(1 - level) / 2, (1 + level) / 2])
    return Interval(
        reading.value + widen * (float(low) - center),
        reading.value + widen * (float(high) - center),
        error,
    )


def check_resampling(
    n: int,
    level: float,
    resamples: int,
    groups: Sequence[object] | np.ndarray | None,
    block_length: int | None,
) -> None:
    """Refuses what :func:`bootstrap` cannot do with n rows, before any work is done.

    Raises:
        ValueError: If the level is outside (0, 1), there are fewer than 2 resamples, fewer than 2
            groups or not a label for each row, blocks are longer than half the series, or groups
            and blocks are both given.
    """
    if not 0 < level < 1:
        raise ValueError(f"level must be between 0 and 1, got {level}")
    if resamples < 2:
        raise ValueError(f"resamples must be at least 2, got {resamples}")
    if groups is not None and block_length is not None:
        raise ValueError("groups and block_length exclude each other: give one of them")
    if groups is not None and not numbered(n, groups).any():
        raise ValueError("groups must hold at least 2 different labels: one cannot be resampled")
    if block_length is not None and not 1 <= block_length <= n // 2:
        raise ValueError(
            f"block_length must be from 1 to half the {n} rows, got {block_length}: with fewer "
            "than two blocks nothing can be resampled"
        )


def _beyond_terms(reading: Reading) -> float:
    """The part of the reading's own standard error that independent terms do not show."""
    if reading.standard_error is None:
        return 0.0
    of_terms = float(reading.terms.var(ddof=1)) / len(reading.terms)
    return math.sqrt(max(0.0, reading.standard_error**2 - of_terms))


def _means(
    sums: Float64[np.ndarray, " k"],
    counts: Float64[np.ndarray, " k"],
    draws: int,
    resamples: int,
    random: np.random.Generator,
) -> Float64[np.ndarray, " b"]:
    equal = bool((counts == counts[0]).all())
    parts = []
    for part in np.array_split(np.arange(resamples), 1 + resamples * draws // _DRAWS):
        drawn = random.integers(len(sums), size=(len(part), draws))
        total = draws * counts[0] if equal else counts[drawn].sum(1)
        parts.append(sums[drawn].sum(1) / total)
    means: np.ndarray = np.concatenate(parts)
    return means


def _blocks(terms: Float64[np.ndarray, " n"], length: int) -> tuple[np.ndarray, np.ndarray]:
    around = np.concatenate([[0.0], np.cumsum(np.concatenate([terms, terms[: length - 1]]))])
    return around[length:] - around[:-length], np.full(len(terms), float(length))

"""Intervals for a reading, by resampling its rows, groups of rows, or blocks of a series."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float64

from .reading import Reading

__all__ = ["Interval", "bootstrap"]

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
    L. Where the reading knows a standard error of its own that is larger than that of its terms,
    the interval is widened about the value in proportion.

    Args:
        reading: An estimate and its terms.
        level: Nominal coverage, in (0, 1).
        resamples: How often rows are drawn.
        seed: Of the draws.
        groups: A label for each row.
        block_length: Rows in a block.

    Raises:
        ValueError: If the level is outside (0, 1), there are fewer than 2 groups, or the blocks are
            longer than the series.

    Example:
        >>> reading = Reading(0.5, np.array([0.0, 1.0] * 200), None, "plug-in")
        >>> low, high, error = bootstrap(reading)
        >>> bool(abs(low - 0.45) < 0.01), round(error, 3)  # 0.5 − 1.96 · 0.5 / 20
        (True, 0.025)
    """
    if not 0 < level < 1:
        raise ValueError(f"level must be between 0 and 1, got {level}")
    if not np.isfinite(reading.terms).all() or not np.isfinite(reading.value):
        return Interval(float("nan"), float("nan"), float("nan"))
    random = np.random.default_rng(seed)
    if block_length is not None:
        sums, counts = _blocks(reading.terms, block_length)
        draws = -(-len(reading.terms) // block_length)
    elif groups is not None:
        labels = np.unique(np.asarray(groups), return_inverse=True)[1].reshape(-1)
        sums, counts = np.bincount(labels, reading.terms), np.bincount(labels).astype(float)
        draws = len(sums)
        if draws < 2:
            raise ValueError(
                "groups must hold at least 2 different labels: one cannot be resampled"
            )
    else:
        sums, counts = reading.terms, np.ones(len(reading.terms))
        draws = len(sums)
    means = _means(sums, counts, draws, resamples, random)
    error = float(means.std(ddof=1))
    center, widen = float(reading.terms.mean()), 1.0
    own = reading.standard_error
    if own is not None and own > error:
        widen = own / error if error > 0 else 1.0
        # Terms without spread say nothing; the reading's own error then stands alone.
        means = means if error > 0 else center + own * random.standard_normal(resamples)
        error = own
    low, high = np.quantile(means, [(1 - level) / 2, (1 + level) / 2])
    return Interval(
        reading.value + widen * (float(low) - center),
        reading.value + widen * (float(high) - center),
        error,
    )


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
    if not 1 <= length <= len(terms) // 2:
        raise ValueError(
            f"block_length must be from 1 to half the {len(terms)} rows, got {length}: with fewer "
            "than two blocks nothing can be resampled"
        )
    around = np.concatenate([[0.0], np.cumsum(np.concatenate([terms, terms[: length - 1]]))])
    return around[length:] - around[:-length], np.full(len(terms), float(length))

"""Numbers over repetitions: a mean is reported with its interval, a gain as a paired difference."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from scipy import stats

__all__ = ["Interval", "mean_interval", "paired_difference"]


@dataclass(frozen=True)
class Interval:
    r"""A mean over repetitions with its t-interval.

    .. math:: \bar v \pm t_{n-1,\,(1+c)/2} \; s / \sqrt{n}

    with the sample standard deviation :math:`s` (n-1). It covers what differs between the
    repetitions (seeds) and nothing else. A single repetition has no interval: `low` and `high` are
    NaN.

    Attributes:
        mean: The mean.
        low: Lower end; NaN if n is 1.
        high: Upper end; NaN if n is 1.
        n: Repetitions.
        confidence: :math:`c`.
        kind: "fraction" prints as a percentage, "difference" of fractions as signed points.

    Example:
        >>> str(Interval(0.931, 0.927, 0.935, 5))
        '93.1 ± 0.4 %'
        >>> str(Interval(0.012, 0.008, 0.016, 5, kind="difference"))
        '+1.2 ± 0.4 points'
    """

    mean: float
    low: float
    high: float
    n: int
    confidence: float = 0.95
    kind: Literal["fraction", "difference"] = "fraction"

    def __str__(self) -> str:
        unit = "%" if self.kind == "fraction" else "points"
        mean = f"{100 * self.mean:{'' if self.kind == 'fraction' else '+'}.1f}"
        if math.isnan(self.low):
            return f"{mean} {unit} (one repetition, no interval)"
        return f"{mean} ± {50 * (self.high - self.low):.1f} {unit}"

    @property
    def excludes_zero(self) -> bool:
        """Whether zero lies outside: for a difference, whether its sign is clear.

        Without an interval nothing is clear, and this is False.
        """
        return self.low > 0 or self.high < 0


def mean_interval(values: Sequence[float], *, confidence: float = 0.95) -> Interval:
    """The mean of fractions over repetitions, with its t-interval.

    Raises:
        ValueError: If there are no values, one is not finite, or `confidence` is not in (0, 1).

    Example:
        >>> print(mean_interval([0.92, 0.94, 0.93]))
        93.0 ± 2.5 %
    """
    return _interval(_finite(values, "values"), confidence, "fraction")


def paired_difference(
    a: Sequence[float], b: Sequence[float], *, confidence: float = 0.95
) -> Interval:
    """The mean of a - b over repetitions that share seed and split, with its t-interval.

    Whatever a seed does to both cancels in its difference, so this is sharper than two separate
    intervals, which must not be compared by whether they overlap.

    Raises:
        ValueError: If the two are not equally long or are empty, a value is not finite, or
            `confidence` is not in (0, 1).

    Example:
        >>> print(paired_difference([0.92, 0.94, 0.93], [0.90, 0.92, 0.92]))
        +1.7 ± 1.4 points
    """
    first, second = _finite(a, "a"), _finite(b, "b")
    if len(first) != len(second):
        raise ValueError(
            f"paired values must be equally many, got {len(first)} in a and {len(second)} in b"
        )
    return _interval(first - second, confidence, "difference")


def _finite(values: Sequence[float], name: str) -> np.ndarray:
    array = np.asarray(values, np.float64)
    if array.ndim != 1 or len(array) == 0:
        raise ValueError(f"{name} must be a list of at least one number, got {values!r}")
    bad = np.flatnonzero(~np.isfinite(array))
    if len(bad):
        raise ValueError(f"{name}[{bad[0]}] is {array[bad[0]]}")
    return array


def _interval(
    values: np.ndarray, confidence: float, kind: Literal["fraction", "difference"]
) -> Interval:
    if not 0 < confidence < 1:
        raise ValueError(f"confidence must lie between 0 and 1, got {confidence}")
    n = len(values)
    mean = float(values.mean())
    if n == 1:
        return Interval(mean, math.nan, math.nan, 1, confidence, kind)
    half = float(stats.t.ppf((1 + confidence) / 2, n - 1) * values.std(ddof=1) / math.sqrt(n))
    return Interval(mean, mean - half, mean + half, n, confidence, kind)

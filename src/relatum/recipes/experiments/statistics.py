"""What an experiment says over its seeds: means, gains, slopes, each with an interval."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy import stats

from ...probes import Interval, mean_interval, paired_difference

__all__ = ["Slope", "gain", "level", "slope"]


def level(values: Sequence[float]) -> str:
    """Mean and half width of the 95 % t-interval over seeds, in percent.

    Example:
        >>> level([0.92, 0.94, 0.93]), level([0.5]), level([])
        ('93.0 ± 2.5', '50.0', 'not run')
    """
    return _text(mean_interval(values), signed=False) if values else "not run"


def gain(a: Sequence[float], b: Sequence[float]) -> str:
    """Mean and half width of the paired difference a − b over seeds, in points.

    Example:
        >>> gain([0.92, 0.94, 0.93], [0.90, 0.92, 0.92])
        '+1.7 ± 1.4'
    """
    return _text(paired_difference(a, b), signed=True) if a and len(a) == len(b) else "not run"


def _text(found: Interval, *, signed: bool) -> str:
    mean = f"{100 * found.mean:{'+' if signed else ''}.1f}"
    return mean if math.isnan(found.low) else f"{mean} ± {50 * (found.high - found.low):.1f}"


class Slope(NamedTuple):
    """A straight line through points: its slope with an interval."""

    value: float
    low: float
    high: float


def slope(x: Sequence[float], y: Sequence[float], *, confidence: float = 0.95) -> Slope:
    r"""The slope of y on x by least squares, with its t-interval on n − 2 degrees of freedom.

    .. math:: \hat b = \frac{\sum (x - \bar x)(y - \bar y)}{\sum (x - \bar x)^2}, \qquad
        \hat b \pm t_{n-2} \sqrt{\frac{\sum e^2}{(n - 2) \sum (x - \bar x)^2}}

    Args:
        x: At least three numbers that are not all equal.
        y: As many.
        confidence: In (0, 1).

    Raises:
        ValueError: If there are fewer than three points, or all x are equal.

    Example:
        >>> round(slope([1, 2, 3], [1.0, 2.1, 2.9]).value, 3)
        0.95
    """
    u, v = np.asarray(x, float), np.asarray(y, float)
    if len(u) < 3 or len(u) != len(v) or np.ptp(u) == 0:
        raise ValueError(
            f"a slope with an interval needs three points or more of different x; got x = {list(x)}"
            f" and {len(v)} values of y"
        )
    u, v = u - u.mean(), v - v.mean()
    value = float(u @ v / (u @ u))
    # Not scipy's linregress: it has no error for a horizontal line without scatter.
    error = math.sqrt(float(((v - value * u) ** 2).sum()) / (len(u) - 2) / float(u @ u))
    half = float(stats.t.ppf((1 + confidence) / 2, len(u) - 2)) * error
    return Slope(value, value - half, value + half)

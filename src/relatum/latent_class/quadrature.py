r"""The logistic loss of k independent negatives, by one integral for any k."""

from __future__ import annotations

import math

import numpy as np
from jaxtyping import Float64

__all__ = ["expected_logarithms"]

_STEP = 0.22  # the trapezoid's error is about exp(-π² / step), below rounding


def expected_logarithms(
    scores: Float64[np.ndarray, " m"],
    weights: Float64[np.ndarray, " m"],
    positives: Float64[np.ndarray, " p"],
    k: int,
    *,
    own: float = 0.0,
) -> Float64[np.ndarray, " p"]:
    r""":math:`E \log_2(1 + S)`, :math:`S = \sum_{i \le k} e^{v_i - u}`, for each u.

    .. math:: E \ln(1 + S) = \int_0^\infty \big(1 - \varphi(t)^k\big) e^{-t} \frac{dt}t,
              \qquad \varphi(t) = E\, e^{-t e^{v - u}}

    by the trapezoid rule in ln t, whose error is that of rounding. With :math:`t = e^{a + u}` the
    transform depends on a alone, so that one grid in a serves all positives.

    Args:
        scores: The scores v that a negative may have.
        weights: Their probabilities; what they lack of 1 brings nothing.
        positives: The scores u.
        k: The number of negatives.
        own: The weight of the positive's own score, where it stands among the scores and is to be
            taken out.

    Example:
        >>> expected_logarithms(np.zeros(1), np.ones(1), np.zeros(1), 3).round(12)
        array([2.])
    """
    # Below, 1 − φ^k < e^-36; above, e^-t < e^-54.
    low, high = -(36 + math.log(k) + scores.max()), 4 - positives.min()
    grid = np.arange(low, high + _STEP, _STEP)[:, None]
    with np.errstate(over="ignore"):  # e^-inf is the limit
        missing = -np.expm1(-np.exp(grid + scores)) @ weights  # 1 − φ, small where φ is near 1
        t = np.exp(grid + positives)
    missing = missing[:, None] + own * np.expm1(-t)
    # Rounding may leave it outside of [0, 1), where the power has no logarithm.
    missing = missing.clip(0, 1 - 2.0**-53)
    values = -np.expm1(k * np.log1p(-missing)) * np.exp(-t)
    return np.asarray(_STEP * values.sum(axis=0) / math.log(2))

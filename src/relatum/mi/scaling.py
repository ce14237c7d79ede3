"""Columns in units of their own deviation."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float64

__all__ = ["deviations", "standardised", "varying"]


def deviations(x: Float64[np.ndarray, "n d"]) -> Float64[np.ndarray, " d"]:
    """Standard deviations (divisor n), exactly 0 for a constant: that of 0.1s is rounded."""
    return np.where(x.max(axis=0) == x.min(axis=0), 0.0, x.std(axis=0))


def standardised(x: Float64[np.ndarray, "n d"]) -> Float64[np.ndarray, "n d"]:
    """Columns of mean 0 and deviation 1; constant columns become 0.

    Example:
        >>> standardised(np.array([[0.0, 0.1], [2.0, 0.1]]))
        array([[-1.,  0.],
               [ 1.,  0.]])
    """
    scale = deviations(x)
    scaled: np.ndarray = np.where(scale > 0, x - x.mean(axis=0), 0.0) / np.where(
        scale > 0, scale, 1
    )
    return scaled


def varying(
    side: str, x: Float64[np.ndarray, "n d"]
) -> tuple[Float64[np.ndarray, "n k"], tuple[str, ...]]:
    """Standardised columns without the constant ones, and a note if there were any."""
    keep = deviations(x) > 0
    if keep.all():
        return standardised(x), ()
    return standardised(x[:, keep]), (f"{int((~keep).sum())} constant columns of {side} left out",)

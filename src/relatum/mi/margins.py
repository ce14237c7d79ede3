"""Columns through their own distribution to a standard normal one."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float64
from scipy.special import ndtri

__all__ = ["NormalScores"]


@dataclass(frozen=True)
class NormalScores:
    r"""The normal scores of columns, :math:`z = \Phi^{-1}\big((R(x) + 1) / (n + 1)\big)`.

    R(x) is the rank of x, from 0, among the n rows of the fit: half way between the two that it
    lies between, beyond them that of the nearest, and the middle rank where rows are equal. A
    rising map of single columns keeps mutual information, and normal scores do not change when a
    column, of the fit and of new rows alike, is scaled, shifted or bent by such a map.

    Attributes:
        rising: The columns of the fit, each sorted.

    Example:
        >>> scores = NormalScores.fit(np.array([[1.0], [10.0], [1000.0]]))
        >>> scores(np.array([[1.0], [10.0], [5000.0]])).ravel().round(2)
        array([-0.67,  0.  ,  0.67])
    """

    rising: Float64[np.ndarray, "n d"]

    @classmethod
    def fit(cls, x: Float64[np.ndarray, "n d"]) -> NormalScores:
        """The ranks of the rows of `x`."""
        return cls(np.sort(x, axis=0))

    def __call__(self, x: Float64[np.ndarray, "m d"]) -> Float64[np.ndarray, "m d"]:
        """The normal scores of the rows of `x`."""
        rows, scores = len(self.rising), np.empty(x.shape)
        for index, column in enumerate(self.rising.T):
            inside = x[:, index].clip(column[0], column[-1])
            below, upto = (np.searchsorted(column, inside, side) for side in ("left", "right"))
            scores[:, index] = ndtri(((below + upto - 1) / 2 + 1) / (rows + 1))
        return scores

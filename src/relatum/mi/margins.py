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

    R(x) is the rank of x, from 0, among the n rows of the fit: between two of them by linear
    interpolation, beyond them that of the nearest, and the middle rank where rows are equal. A
    rising map of single columns keeps mutual information, and estimates from normal scores do not
    change when a column is scaled, shifted or bent by such a map.

    Attributes:
        values: The distinct values of each column, rising.
        ranks: The ranks of these values.
        rows: n.

    Example:
        >>> scores = NormalScores.fit(np.array([[1.0], [10.0], [1000.0]]))
        >>> scores(np.array([[1.0], [10.0], [5000.0]])).ravel().round(2)
        array([-0.67,  0.  ,  0.67])
    """

    values: tuple[Float64[np.ndarray, " k"], ...]
    ranks: tuple[Float64[np.ndarray, " k"], ...]
    rows: int

    @classmethod
    def fit(cls, x: Float64[np.ndarray, "n d"]) -> NormalScores:
        """The ranks of the rows of `x`."""
        values, ranks = [], []
        for column in x.T:
            distinct, counts = np.unique(column, return_counts=True)
            values.append(distinct)
            ranks.append(np.cumsum(counts) - (counts + 1) / 2)
        return cls(tuple(values), tuple(ranks), len(x))

    def __call__(self, x: Float64[np.ndarray, "m d"]) -> Float64[np.ndarray, "m d"]:
        """The normal scores of the rows of `x`."""
        scores = np.empty_like(x)
        for index, (values, ranks) in enumerate(zip(self.values, self.ranks, strict=True)):
            rank = np.interp(x[:, index], values, ranks)
            scores[:, index] = ndtri((rank + 1) / (self.rows + 1))
        return scores

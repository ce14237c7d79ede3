"""First and second moments of pairs: all that the closed form needs, in bounded memory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float64

__all__ = ["PairMoments", "chunks"]

_CHUNK = 1 << 20  # numbers converted to float64 at a time

Side = Float64[np.ndarray, "n d"]


def chunks(x: Any, y: Any) -> Iterator[tuple[Side, Side]]:
    """The pairs in float64, a few at a time, so that a ``numpy.memmap`` may stay on disk."""
    step = max(1, _CHUNK // (x.shape[1] + y.shape[1]))
    for start in range(0, len(x), step):
        rows = slice(start, start + step)
        yield np.asarray(x[rows], dtype=np.float64), np.asarray(y[rows], dtype=np.float64)


@dataclass(frozen=True)
class PairMoments:
    r"""Count, mean and scatter :math:`\sum_i (z_i - \bar z)(z_i - \bar z)^\top` of z = (x, y).

    Moments of parts add up to those of the whole (:meth:`plus`), centred throughout, so nothing
    cancels where means are large. Memory is (dx + dy)² numbers whatever the rows.

    Attributes:
        count: Rows.
        mean: Means of the columns of x, then of y.
        scatter: Sums of products of deviations.
        width: Columns of x.

    References:
        Updating Formulae and a Pairwise Algorithm for Computing Sample Variances (Chan, Golub &
        LeVeque, 1979), equation 2.1.

    Example:
        >>> x, y = np.array([[0.0], [2.0]]), np.array([[1.0], [5.0]])
        >>> moments = PairMoments.of(x, y)
        >>> moments.mean, moments.across(centred=True)
        (array([1., 3.]), array([[2.]]))
    """

    count: int
    mean: Float64[np.ndarray, " d"]
    scatter: Float64[np.ndarray, "d d"]
    width: int

    @classmethod
    def of(cls, x: Any, y: Any) -> PairMoments:
        """Of all pairs, read once."""
        d = x.shape[1] + y.shape[1]
        total = cls(0, np.zeros(d), np.zeros((d, d)), x.shape[1])
        for pair in chunks(x, y):
            z = np.concatenate(pair, axis=1)
            mean = z.mean(axis=0)
            z -= mean
            total = total.plus(cls(len(z), mean, z.T @ z, x.shape[1]))
        return total

    def plus(self, other: PairMoments) -> PairMoments:
        """Of the rows of both."""
        count = self.count + other.count
        if count == 0:
            return self
        apart = other.mean - self.mean
        between = self.count * (other.count / count)
        return PairMoments(
            count,
            self.mean + apart * (other.count / count),
            self.scatter + other.scatter + between * np.outer(apart, apart),
            self.width,
        )

    def mapped(self, x: tuple[Side, np.ndarray], y: tuple[Side, np.ndarray]) -> PairMoments:
        """Of the images (x − c) P of each side, from a matrix P and a centre c a side."""
        (into_x, centre_x), (into_y, centre_y) = x, y
        cut = self.width
        rows = np.concatenate([into_x.T @ self.scatter[:cut], into_y.T @ self.scatter[cut:]])
        scatter = np.concatenate([rows[:, :cut] @ into_x, rows[:, cut:] @ into_y], axis=1)
        mean = [(self.mean_x - centre_x) @ into_x, (self.mean_y - centre_y) @ into_y]
        return PairMoments(self.count, np.concatenate(mean), scatter, into_x.shape[1])

    @property
    def mean_x(self) -> Float64[np.ndarray, " dx"]:
        """E x."""
        return self.mean[: self.width]

    @property
    def mean_y(self) -> Float64[np.ndarray, " dy"]:
        """E y."""
        return self.mean[self.width :]

    def within_x(self, *, centred: bool) -> Float64[np.ndarray, "dx dx"]:
        """E xxᵀ, or the covariance."""
        return self._block(slice(None, self.width), slice(None, self.width), centred)

    def within_y(self, *, centred: bool) -> Float64[np.ndarray, "dy dy"]:
        """E yyᵀ, or the covariance."""
        return self._block(slice(self.width, None), slice(self.width, None), centred)

    def across(self, *, centred: bool) -> Float64[np.ndarray, "dx dy"]:
        """E xyᵀ over the pairs, or the covariance between the sides."""
        return self._block(slice(None, self.width), slice(self.width, None), centred)

    def _block(self, rows: slice, columns: slice, centred: bool) -> Float64[np.ndarray, "a b"]:
        block: np.ndarray = self.scatter[rows, columns] / self.count
        return block if centred else block + np.outer(self.mean[rows], self.mean[columns])

"""The density ratio of a Gaussian law, fitted so that it does no harm on new rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from jaxtyping import Float64

from .scaling import deviations

__all__ = ["GaussianRatio", "RatioTerms"]

# Shares of the round covariance that whitening may borrow; 1 leaves correlations within a side.
_WHITENING = (0.0, 0.01, 0.03, 0.1, 0.3, 1.0)
_FOLDS = 5
_HIGHEST = 1 - 1e-9  # of a correlation: beyond, 1 − ρ² is rounding


class RatioTerms(NamedTuple):
    """The parts of log r(x_i, y_j) = constant + left_i · right_j − of_x_i − of_y_j, in nats."""

    left: Float64[np.ndarray, "n k"]
    right: Float64[np.ndarray, "m k"]
    of_x: Float64[np.ndarray, " n"]
    of_y: Float64[np.ndarray, " m"]
    constant: float


@dataclass(frozen=True)
class GaussianRatio:
    r"""The density ratio of a Gaussian law, fitted so that it does no harm on new rows.

    .. math:: \log r(x, y) = \sum_k \Bigl[\frac{\rho_k u_k v_k - \rho_k^2 (u_k^2 + v_k^2) / 2}
              {1 - \rho_k^2} - \tfrac12 \log(1 - \rho_k^2)\Bigr]

    with canonical variables :math:`u = A^\top (x - \bar x)` and :math:`v = B^\top (y - \bar y)`.
    Canonical correlations of a sample are far too high in high dimension (0.9 for independent sides
    at n = 200, d = 50 + 50), so :math:`\rho` is what rows outside the fit say: each of five folds
    is projected on the directions of the other four, and the correlations seen there are made to
    fall with k and to be at least 0. How far whitening leaves out correlations within a side is
    chosen by the mean log r of the same rows. Independent sides get ρ near 0, hence log r near 0.

    Attributes:
        center_x: Column means of x.
        center_y: Column means of y.
        into_x: A, which maps x to its canonical variables.
        into_y: B, likewise.
        correlations: ρ in (0, 1), falling; components of ρ = 0 are left out, so k may be 0.
        held_out: Mean log r over the rows outside each fit, in nats, at the chosen settings; it
            chose them, and is optimistic by that.

    Example:
        >>> x, noise = np.random.default_rng(0).normal(size=(2, 10_000, 1))
        >>> ratio = GaussianRatio.fit(x, x + noise)
        >>> round(float(ratio.log_ratio(x, x + noise).mean()), 1)  # ½ log 2 = 0.35
        0.3
    """

    center_x: Float64[np.ndarray, " dx"]
    center_y: Float64[np.ndarray, " dy"]
    into_x: Float64[np.ndarray, "dx k"]
    into_y: Float64[np.ndarray, "dy k"]
    correlations: Float64[np.ndarray, " k"]
    held_out: float

    @classmethod
    def fit(cls, x: Float64[np.ndarray, "n dx"], y: Float64[np.ndarray, "n dy"]) -> GaussianRatio:
        """Fits the rows; deterministic, and folds go by position.

        Raises:
            ValueError: If there are fewer than 10 rows.
        """
        n = len(x)
        if n < 2 * _FOLDS:
            raise ValueError(f"GaussianRatio needs at least {2 * _FOLDS} rows, got {n}")
        scale_x, scale_y = (np.where(s > 0, s, 1.0) for s in (deviations(x), deviations(y)))
        x, y = x / scale_x, y / scale_y
        folds = np.arange(n) % _FOLDS
        parts = [_Cross.of(x[folds != fold], y[folds != fold]) for fold in range(_FOLDS)]
        # A single column is its own direction, however much it is whitened.
        shares = _WHITENING if max(x.shape[1], y.shape[1]) > 1 else _WHITENING[:1]
        best = max(
            (_held_out(x, y, folds, parts, share) for share in shares), key=lambda c: c.value
        )
        whole = _Cross.of(x, y)
        into_x, into_y = whole.directions(best.share)
        into_x, into_y = into_x / best.unit_u, into_y / best.unit_v
        kept = best.correlations > 0
        return cls(
            center_x=whole.center_x * scale_x,
            center_y=whole.center_y * scale_y,
            into_x=into_x[:, kept] / scale_x[:, None],
            into_y=into_y[:, kept] / scale_y[:, None],
            correlations=best.correlations[kept],
            held_out=best.value,
        )

    def terms(self, x: Float64[np.ndarray, "n dx"], y: Float64[np.ndarray, "m dy"]) -> RatioTerms:
        """The parts of log r: for all pairs, constant + left @ right.T − of_x[:, None] − of_y."""
        u, v = (x - self.center_x) @ self.into_x, (y - self.center_y) @ self.into_y
        rest = 1 - self.correlations**2
        squared = self.correlations**2 / (2 * rest)
        constant = float(-np.log(rest).sum() / 2)
        return RatioTerms(
            u * (self.correlations / rest), v, u**2 @ squared, v**2 @ squared, constant
        )

    def log_ratio(
        self, x: Float64[np.ndarray, "n dx"], y: Float64[np.ndarray, "n dy"]
    ) -> Float64[np.ndarray, " n"]:
        """Log r(x_i, y_i) of each row, in nats."""
        parts = self.terms(x, y)
        pairs = (parts.left * parts.right).sum(axis=1)
        logs: np.ndarray = parts.constant + pairs - parts.of_x - parts.of_y
        return logs

    def matrix(
        self, x: Float64[np.ndarray, "n dx"], y: Float64[np.ndarray, "m dy"]
    ) -> Float64[np.ndarray, "n m"]:
        """Log r(x_i, y_j) of all pairs, in nats."""
        parts = self.terms(x, y)
        logs: np.ndarray = (
            parts.constant + parts.left @ parts.right.T - parts.of_x[:, None] - parts.of_y
        )
        return logs


class _Cross(NamedTuple):
    """Covariances of some rows, within sides by their eigenvectors, across in these coordinates."""

    center_x: np.ndarray
    center_y: np.ndarray
    values_x: np.ndarray
    values_y: np.ndarray
    axes_x: np.ndarray
    axes_y: np.ndarray
    across: np.ndarray

    @classmethod
    def of(cls, x: np.ndarray, y: np.ndarray) -> _Cross:
        n, mean_x, mean_y = len(x), x.mean(axis=0), y.mean(axis=0)
        x, y = x - mean_x, y - mean_y
        values_x, axes_x = np.linalg.eigh(x.T @ x / n)
        values_y, axes_y = np.linalg.eigh(y.T @ y / n)
        across = axes_x.T @ (x.T @ y / n) @ axes_y
        return cls(mean_x, mean_y, values_x, values_y, axes_x, axes_y, across)

    def directions(self, share: float) -> tuple[np.ndarray, np.ndarray]:
        """A and B, with covariances within sides drawn towards a round one by `share`."""
        by_x, by_y = _inverse_root(self.values_x, share), _inverse_root(self.values_y, share)
        left, _, right = np.linalg.svd(by_x[:, None] * self.across * by_y, full_matrices=False)
        return self.axes_x @ (by_x[:, None] * left), self.axes_y @ (by_y[:, None] * right.T)


def _inverse_root(values: np.ndarray, share: float) -> np.ndarray:
    drawn = (1 - share) * values + share * values.mean()
    # Directions without variance are not whitened: nothing is known of them.
    known = drawn > len(values) * np.finfo(float).eps * max(drawn.max(), 1e-300)
    roots: np.ndarray = np.where(known, 1 / np.sqrt(np.where(known, drawn, 1.0)), 0.0)
    return roots


class _Choice(NamedTuple):
    share: float
    value: float
    correlations: np.ndarray
    unit_u: np.ndarray
    unit_v: np.ndarray


def _held_out(
    x: np.ndarray, y: np.ndarray, folds: np.ndarray, parts: list[_Cross], share: float
) -> _Choice:
    """Correlations, and the mean log r they give, on rows outside of each fit."""
    u, v = (np.empty((len(x), min(x.shape[1], y.shape[1]))) for _ in range(2))
    for fold, part in enumerate(parts):
        into_x, into_y = part.directions(share)
        u[folds == fold] = (x[folds == fold] - part.center_x) @ into_x
        v[folds == fold] = (y[folds == fold] - part.center_y) @ into_y
    # Directions that are not whitened in full have any variance; outside the fit it becomes 1.
    units = [np.where(m > 0, np.sqrt(m), 1.0) for m in ((u**2).mean(axis=0), (v**2).mean(axis=0))]
    raw = (u / units[0] * v / units[1]).mean(axis=0)
    # Beyond 1 − 1/n² it is told by less than the distance of two ranks.
    rho = np.clip(_falling(raw), 0.0, min(_HIGHEST, 1 - 1 / len(x) ** 2))
    gain = (rho * raw - rho**2) / (1 - rho**2) - np.log1p(-(rho**2)) / 2
    return _Choice(share, float(gain.sum()), rho, *units)


def _falling(values: np.ndarray) -> np.ndarray:
    """The falling sequence nearest in squares: the min over starts of the max over ends of means.

    Directions come in order of their correlation within the fit, so the means of neighbours lend
    each other strength: many that are noise average to nothing.
    """
    k = len(values)
    sums = np.concatenate([[0.0], np.cumsum(values)])
    length = np.arange(1, k + 1) - np.arange(k)[:, None]
    means = np.where(length > 0, (sums[1:] - sums[:-1, None]) / np.maximum(length, 1), -np.inf)
    highest = np.maximum.accumulate(means[:, ::-1], axis=1)[:, ::-1]
    falling: np.ndarray = np.diag(np.minimum.accumulate(highest, axis=0))
    return falling

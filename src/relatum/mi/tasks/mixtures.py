"""Gaussian mixtures: laws with several modes, whose information is an integral."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from jaxtyping import Float64
from scipy.special import logsumexp
from scipy.stats import multivariate_normal

from .task import LogRatio, Rows, Task

__all__ = ["mixture"]

LogDensity = Callable[[Rows], Float64[np.ndarray, " n"]]

_REACH = 7.5  # standard deviations beyond every mode: what is left out is below 1e-12 of the mass


def mixture(
    name: str,
    weights: Float64[np.ndarray, " k"],
    means: Float64[np.ndarray, "k d"],
    covariances: Float64[np.ndarray, "k d d"],
    dim_x: int,
    step: float = 0.1,
) -> Task:
    r"""A mixture of Gaussians; its marginals are the mixtures of the components' marginals.

    .. math:: p(z) = \sum_k w_k N(z; \mu_k, \Sigma_k), \qquad
              I = \int p(x, y) \log \frac{p(x, y)}{p(x)\, p(y)} \, dx\, dy

    The integral is a sum over a grid: the integrand is analytic and dies out with its derivatives,
    and there the trapezium rule converges exponentially in 1/step.

    Args:
        name: Name of the task.
        weights: Weights of the components, of sum 1.
        means: Their means.
        covariances: Their covariances.
        dim_x: Columns of x.
        step: Grid step of the integral, in units of the columns. Half the smallest standard
            deviation (of any component, in any direction) gives seven digits, a fifth eleven.

    Raises:
        ValueError: If the weights are negative or do not sum to 1.
    """
    if weights.min() < 0 or abs(weights.sum() - 1) > 1e-12:
        raise ValueError(f"weights must be at least 0 and of sum 1, got {weights.tolist()}")
    roots = np.linalg.cholesky(covariances)
    dim_y = means.shape[1] - dim_x
    joint = _log_density(weights, means, covariances)
    first = _log_density(weights, means[:, :dim_x], covariances[:, :dim_x, :dim_x])
    second = _log_density(weights, means[:, dim_x:], covariances[:, dim_x:, dim_x:])

    def draw(generator: np.random.Generator, n: int) -> tuple[Rows, Rows]:
        component = generator.choice(len(weights), size=n, p=weights)
        noise = generator.standard_normal((n, means.shape[1]))
        z = means[component] + np.einsum("nij,nj->ni", roots[component], noise)
        return z[:, :dim_x], z[:, dim_x:]

    def log_ratio(x: Rows, y: Rows) -> Float64[np.ndarray, " n"]:
        return joint(np.hstack([x, y])) - first(x) - second(y)

    grid = _grid(means, covariances, step)
    value = _integral(grid, step, joint, log_ratio, dim_x)
    note = f"integral on a grid of {len(grid):,} points"
    return Task(name, value, dim_x, dim_y, draw, log_ratio, "Gaussian mixture", note)


def _log_density(
    weights: Float64[np.ndarray, " k"],
    means: Float64[np.ndarray, "k d"],
    covariances: Float64[np.ndarray, "k d d"],
) -> LogDensity:
    laws = [multivariate_normal(m, c) for m, c in zip(means, covariances, strict=True)]

    def log_density(rows: Rows) -> Float64[np.ndarray, " n"]:
        parts = np.stack([np.reshape(law.logpdf(rows), len(rows)) for law in laws])
        total: Float64[np.ndarray, " n"] = logsumexp(parts, axis=0, b=weights[:, None])
        return total

    return log_density


def _grid(
    means: Float64[np.ndarray, "k d"], covariances: Float64[np.ndarray, "k d d"], step: float
) -> Rows:
    reach = _REACH * np.sqrt(np.diagonal(covariances, axis1=1, axis2=2))
    low, high = (means - reach).min(axis=0), (means + reach).max(axis=0)
    axes = [np.arange(a, b + step, step) for a, b in zip(low, high, strict=True)]
    return np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, len(axes))


def _integral(grid: Rows, step: float, joint: LogDensity, log_ratio: LogRatio, dim_x: int) -> float:
    density = np.exp(joint(grid))
    inside = density > 0  # below the smallest number p log r is zero, whatever log r is
    grid, density = grid[inside], density[inside]
    return float(density @ log_ratio(grid[:, :dim_x], grid[:, dim_x:]) * step ** grid.shape[1])

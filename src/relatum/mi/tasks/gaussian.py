"""Gaussian tasks: one pair of columns, independent pairs, a few pairs of many, all with all."""

from __future__ import annotations

import math

import numpy as np
from jaxtyping import Float64
from scipy.stats import multivariate_normal

from .task import Rows, Task

__all__ = [
    "dense",
    "gaussian",
    "gaussian_information",
    "paired",
    "pairwise",
    "pairwise_correlation",
]


def gaussian_information(correlation: Float64[np.ndarray, "d d"], dim_x: int) -> float:
    r"""Mutual information of the first `dim_x` columns of a Gaussian with the others, in nats.

    .. math:: I = \tfrac12 \log \frac{|\Sigma_{xx}|\,|\Sigma_{yy}|}{|\Sigma|}

    Args:
        correlation: :math:`\Sigma`, positive definite.
        dim_x: Columns of x.

    Raises:
        ValueError: If `correlation` is not positive definite.

    References:
        Estimating mutual information (Kraskov et al., 2004), equation 11 for one column a side.
        https://arxiv.org/abs/cond-mat/0305641

    Example:
        >>> round(gaussian_information(np.array([[1.0, 0.75], [0.75, 1.0]]), 1), 6)
        0.413339
    """
    blocks = correlation, correlation[:dim_x, :dim_x], correlation[dim_x:, dim_x:]
    signs, logs = zip(*(np.linalg.slogdet(block) for block in blocks), strict=True)
    if min(signs) <= 0 or np.linalg.eigvalsh(correlation)[0] <= 0:
        raise ValueError("correlation must be positive definite")
    return float(logs[1] + logs[2] - logs[0]) / 2


def gaussian(name: str, correlation: Float64[np.ndarray, "d d"], dim_x: int, note: str) -> Task:
    """A Gaussian with mean zero and this covariance; see :func:`gaussian_information`."""
    root = np.linalg.cholesky(correlation)
    dim_y = len(correlation) - dim_x
    joint = multivariate_normal(cov=correlation)
    sides = (
        multivariate_normal(cov=correlation[:dim_x, :dim_x]),
        multivariate_normal(cov=correlation[dim_x:, dim_x:]),
    )

    def draw(generator: np.random.Generator, n: int) -> tuple[Rows, Rows]:
        z = generator.standard_normal((n, len(root))) @ root.T
        return z[:, :dim_x], z[:, dim_x:]

    def log_ratio(x: Rows, y: Rows) -> Float64[np.ndarray, " n"]:
        both = joint.logpdf(np.hstack([x, y]))
        return np.reshape(both - sides[0].logpdf(x) - sides[1].logpdf(y), len(x))

    information = gaussian_information(correlation, dim_x)
    return Task(name, information, dim_x, dim_y, draw, log_ratio, "Gaussian", note)


def paired(correlations: list[float], dim: int) -> Float64[np.ndarray, "d d"]:
    """The correlation matrix where x_i meets y_i alone, with correlations[i]; 0 for the rest."""
    if len(correlations) > dim:
        raise ValueError(f"{len(correlations)} correlations for {dim} columns a side")
    matrix = np.eye(2 * dim)
    for at, rho in enumerate(correlations):
        matrix[at, dim + at] = matrix[dim + at, at] = rho
    return matrix


def pairwise_correlation(dim: int, information: float) -> float:
    r"""The correlation of `dim` equal pairs that share `information` nats in all.

    .. math:: I = -\tfrac d2 \log(1 - \rho^2), \qquad \rho = \sqrt{1 - e^{-2 I / d}}

    Raises:
        ValueError: If `information` is negative or `dim` below 1.

    Example:
        >>> round(pairwise_correlation(20, 10.0), 6)
        0.79506
    """
    if dim < 1 or not 0 <= information < math.inf:
        raise ValueError(
            "dim must be at least 1 and information at least 0 nats, "
            f"got dim = {dim} and information = {information}"
        )
    return math.sqrt(-math.expm1(-2 * information / dim))


def pairwise(name: str, dim: int, information: float) -> Task:
    """`dim` independent pairs of equally correlated columns: the task of the RPC paper.

    References:
        Self-supervised Representation Learning with Relative Predictive Coding (Tsai et al.,
        2021), section 3.3. https://arxiv.org/abs/2103.11275
    """
    rho = pairwise_correlation(dim, information)
    return gaussian(name, paired([rho] * dim, dim), dim, f"−d/2 log(1 − ρ²), ρ = {rho:.4f}")


def dense(name: str, dim: int) -> Task:
    r"""Every two of the 2 `dim` columns have the correlation 1/2.

    .. math:: I = \tfrac12 \log \frac{(d + 1)^2}{2 d + 1}

    References:
        Beyond normal: on the evaluation of mutual information estimators (Czyż et al., 2023)
        ("dense" multivariate normal). https://arxiv.org/abs/2306.11078
    """
    correlation = (np.eye(2 * dim) + 1) / 2
    return gaussian(name, correlation, dim, "½ log((d + 1)² / (2d + 1)), all correlations ½")

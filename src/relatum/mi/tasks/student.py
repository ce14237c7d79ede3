"""Multivariate Student tasks: heavy tails, and information without correlation."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float64
from scipy.special import digamma, gammaln
from scipy.stats import multivariate_t

from .gaussian import gaussian_information
from .task import Rows, Task

__all__ = ["student", "student_correction"]


def student_correction(freedom: float, dim_x: int, dim_y: int) -> float:
    r"""What the common tail of a multivariate Student law adds to the Gaussian's information.

    .. math:: c(\nu, d_x, d_y) = f(\nu) + f(\nu + d_x + d_y) - f(\nu + d_x) - f(\nu + d_y),
              \qquad f(t) = \log \Gamma(\tfrac t2) - \tfrac t2 \psi(\tfrac t2)

    from the entropy :math:`\frac12 \log |\Sigma| + \frac d2 \log \nu\pi + \log \Gamma(\frac\nu2)
    - \log \Gamma(\frac{\nu + d}2) + \frac{\nu + d}2 [\psi(\frac{\nu + d}2) - \psi(\frac\nu2)]` of
    the joint law and of both marginals, which are Student laws of the same :math:`\nu`. It does not
    depend on :math:`\Sigma`, is positive, and vanishes as :math:`\nu \to \infty`.

    Args:
        freedom: Degrees of freedom :math:`\nu > 0`.
        dim_x: Columns of x.
        dim_y: Columns of y.

    Raises:
        ValueError: If `freedom` is not positive.

    References:
        Beyond normal: on the evaluation of mutual information estimators (Czyż et al., 2023)
        (multivariate Student). https://arxiv.org/abs/2306.11078

    Example:
        >>> round(student_correction(1.0, 1, 1), 6)
        0.224171
    """
    if not freedom > 0:
        raise ValueError(f"freedom must be positive, got {freedom}")
    halves = np.array([freedom, freedom + dim_x + dim_y, freedom + dim_x, freedom + dim_y]) / 2
    return float([1, 1, -1, -1] @ (gammaln(halves) - halves * digamma(halves)))


def student(name: str, correlation: Float64[np.ndarray, "d d"], dim_x: int, freedom: float) -> Task:
    """The Student law with this scale matrix: a Gaussian row divided by one root of χ²/ν.

    Its mutual information is the Gaussian's plus :func:`student_correction`.
    """
    root = np.linalg.cholesky(correlation)
    dim_y = len(correlation) - dim_x
    joint = multivariate_t(shape=correlation, df=freedom)
    sides = (
        multivariate_t(shape=correlation[:dim_x, :dim_x], df=freedom),
        multivariate_t(shape=correlation[dim_x:, dim_x:], df=freedom),
    )

    def draw(generator: np.random.Generator, n: int) -> tuple[Rows, Rows]:
        z = generator.standard_normal((n, len(root))) @ root.T
        z /= np.sqrt(generator.chisquare(freedom, (n, 1)) / freedom)
        return z[:, :dim_x], z[:, dim_x:]

    def log_ratio(x: Rows, y: Rows) -> Float64[np.ndarray, " n"]:
        both = joint.logpdf(np.hstack([x, y]))
        return np.reshape(both - sides[0].logpdf(x) - sides[1].logpdf(y), len(x))

    information = gaussian_information(correlation, dim_x)
    information += student_correction(freedom, dim_x, dim_y)
    note = f"Gaussian value + c(ν, dx, dy), ν = {freedom:g}"
    return Task(name, information, dim_x, dim_y, draw, log_ratio, "Student", note)

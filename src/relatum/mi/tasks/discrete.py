"""Tasks with values to count: contingency tables, and a class that shifts a Gaussian."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float64
from scipy.integrate import quad
from scipy.special import logsumexp, xlogy
from scipy.stats import norm

from .task import Rows, Task

__all__ = ["class_and_gaussian", "table", "table_information"]


def table_information(cells: Float64[np.ndarray, "r c"]) -> float:
    r"""Mutual information of row and column of a table of probabilities, in nats.

    .. math:: I = \sum_{ij} p_{ij} \log \frac{p_{ij}}{p_{i\cdot}\, p_{\cdot j}}

    Raises:
        ValueError: If the cells are negative or do not sum to 1.

    Example:
        >>> round(table_information(np.eye(2) / 2), 6)  # log 2
        0.693147
    """
    if cells.min() < 0 or abs(cells.sum() - 1) > 1e-12:
        raise ValueError(f"cells must be at least 0 and of sum 1, got the sum {cells.sum()}")
    sides = cells.sum(axis=1), cells.sum(axis=0)
    return float(xlogy(cells, cells).sum() - sum(xlogy(side, side).sum() for side in sides))


def table(name: str, cells: Float64[np.ndarray, "r c"]) -> Task:
    """A cell is drawn with its probability; x is its row and y its column, both from 0."""
    with np.errstate(divide="ignore"):
        logs = np.log(cells) - np.log(np.outer(cells.sum(axis=1), cells.sum(axis=0)))

    def draw(generator: np.random.Generator, n: int) -> tuple[Rows, Rows]:
        cell = generator.choice(cells.size, size=n, p=cells.ravel())
        row, column = np.divmod(cell[:, None], cells.shape[1])
        return row.astype(np.float64), column.astype(np.float64)

    def log_ratio(x: Rows, y: Rows) -> Float64[np.ndarray, " n"]:
        return np.asarray(logs[x[:, 0].astype(int), y[:, 0].astype(int)])

    value = table_information(cells)
    return Task(name, value, 1, 1, draw, log_ratio, "table", "sum over the cells", (True, True))


def class_and_gaussian(
    name: str, weights: Float64[np.ndarray, " k"], means: Float64[np.ndarray, " k"]
) -> Task:
    r"""A class x from 0 with these weights, and y Gaussian around its mean with deviation 1.

    .. math:: I = \sum_k w_k \int \varphi(y - \mu_k) \log
              \frac{\varphi(y - \mu_k)}{\sum_j w_j \varphi(y - \mu_j)} \, dy

    by adaptive quadrature of one variable.

    References:
        Estimating mutual information for discrete-continuous mixtures (Gao et al., 2017).
        https://arxiv.org/abs/1709.06212
    """

    def given_class(code: Float64[np.ndarray, " n"], y: Rows) -> Float64[np.ndarray, " n"]:
        logs = norm.logpdf(y - means)
        own = np.take_along_axis(logs, code.astype(int)[:, None], axis=1)[:, 0]
        return np.asarray(own - logsumexp(logs, axis=1, b=weights))

    def draw(generator: np.random.Generator, n: int) -> tuple[Rows, Rows]:
        code = generator.choice(len(weights), size=(n, 1), p=weights)
        return code.astype(np.float64), means[code] + generator.standard_normal((n, 1))

    def log_ratio(x: Rows, y: Rows) -> Float64[np.ndarray, " n"]:
        return given_class(x[:, 0], y)

    def integrand(y: float, code: int) -> float:
        ratio = given_class(np.array([code]), np.array([[y]]))[0]
        return float(norm.pdf(y - means[code]) * ratio)

    value = sum(
        weight * quad(integrand, mean - 12, mean + 12, args=(code,), epsabs=1e-12, epsrel=1e-12)[0]
        for code, (weight, mean) in enumerate(zip(weights, means, strict=True))
    )
    note = "adaptive quadrature over y"
    discrete = (True, False)
    return Task(name, float(value), 1, 1, draw, log_ratio, "class and Gaussian", note, discrete)

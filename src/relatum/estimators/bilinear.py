r"""The optimum of RPC over bilinear critics: a linear system in whitened coordinates."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float64
from scipy.sparse.linalg import LinearOperator, cg

from .moments import PairMoments, chunks

__all__ = ["Frame", "Optimum", "frames", "maximise"]


class Frame(NamedTuple):
    r"""Coordinates of one side in which Q is white: :math:`z = (x - c) K`, then 1 if affine.

    Attributes:
        centre: c, the mean; 0 without an intercept.
        into: K with :math:`K^\top \hat S K = 1`; directions without variance are left out.
        mean: E z.
    """

    centre: Float64[np.ndarray, " d"]
    into: Float64[np.ndarray, "d k"]
    mean: Float64[np.ndarray, " z"]

    @property
    def affine(self) -> bool:
        """Whether the last coordinate is the constant 1."""
        return bool(len(self.mean) > self.into.shape[1])

    def extended(self, x: Float64[np.ndarray, "n d"]) -> Float64[np.ndarray, "n e"]:
        """The deviations x − c, and 1 behind them if affine."""
        if not self.affine:
            return x
        wide = np.empty((len(x), x.shape[1] + 1))
        np.subtract(x, self.centre, out=wide[:, :-1])
        wide[:, -1] = 1
        return wide

    @property
    def matrix(self) -> Float64[np.ndarray, "e z"]:
        """K, with the constant mapped to itself: z is the extended row times this."""
        d, k = self.into.shape
        whole = np.zeros((d + self.affine, k + self.affine))
        whole[:d, :k] = self.into
        if self.affine:
            whole[d, k] = 1
        return whole


class Optimum(NamedTuple):
    """The best critic in the coordinates of the frames.

    Attributes:
        weights: Ω; the score is its bilinear form in the two sides' coordinates.
        iterations: Of conjugate gradients; 0 for the closed form.
        residual: What is left of the equation, relative to its right side.
    """

    weights: Float64[np.ndarray, "zx zy"]
    iterations: int
    residual: float


def frames(
    moments: PairMoments, ridges: tuple[float, float], intercept: bool
) -> tuple[Frame, Frame]:
    """The frames of both sides; a ridge each, in units of the mean variance of a column."""
    sides = (
        (moments.mean_x, moments.within_x(centred=True)),
        (moments.mean_y, moments.within_y(centred=True)),
    )
    first, second = (
        _frame(*side, ridge, intercept) for side, ridge in zip(sides, ridges, strict=True)
    )
    return first, second


def _frame(
    mean: Float64[np.ndarray, " d"],
    covariance: Float64[np.ndarray, "d d"],
    ridge: float,
    intercept: bool,
) -> Frame:
    form = covariance if intercept else covariance + np.outer(mean, mean)
    # What rounding leaves of a column that is constant is no variance.
    constant = np.diag(form) <= (8 * np.finfo(float).eps * np.abs(mean)) ** 2
    form = form + np.diag(np.where(constant, 0.0, ridge * np.diag(form).mean()))
    scale = np.where(constant, 0.0, 1 / np.sqrt(np.where(constant, 1.0, np.diag(form))))
    # Columns of one size first: units must not decide which directions are rounding.
    values, axes = np.linalg.eigh(form * scale[:, None] * scale)
    known = values > len(values) * np.finfo(float).eps * values.max(initial=0.0)
    into = scale[:, None] * axes[:, known] / np.sqrt(values[known])
    if intercept:
        return Frame(mean, into, np.append(np.zeros(into.shape[1]), 1.0))
    return Frame(np.zeros_like(mean), into, mean @ into)


def maximise(
    moments: PairMoments,
    sides: tuple[Frame, Frame],
    relative: tuple[float, float, float],
    data: tuple[Any, Any] | None,
    tolerance: float,
    max_iter: int,
) -> Optimum:
    r"""Solves :math:`\gamma \Omega + \beta E_P[(z_x^\top \Omega z_y) z_x z_y^\top] = M`.

    Its right side is :math:`M = E_P z_x z_y^\top - \alpha E z_x E z_y^\top`. The quadratic form of
    the negatives is the identity here, so with β = 0 the solution is M / γ, and with β > 0
    conjugate gradients see no eigenvalue below γ. An iteration reads the pairs once.
    """
    alpha, beta, gamma = relative
    x, y = sides
    linear = _across(moments, sides) - alpha * np.outer(x.mean, y.mean)
    if beta == 0:
        return Optimum(linear / gamma, 0, 0.0)
    assert data is not None
    squares = _squares(data, sides)
    iterations = 0

    def apply(flat: np.ndarray) -> np.ndarray:
        weights = flat.reshape(linear.shape)
        result: np.ndarray = (gamma * weights + beta * squares(weights)).ravel()
        return result

    def count(_: np.ndarray) -> None:
        nonlocal iterations
        iterations += 1

    operator = LinearOperator((linear.size, linear.size), apply, dtype=np.float64)
    flat, _ = cg(
        operator, linear.ravel(), linear.ravel() / (beta + gamma), rtol=tolerance, atol=0.0,
        maxiter=max_iter, callback=count,
    )  # fmt: skip
    size = np.linalg.norm(linear)
    left = np.linalg.norm(linear.ravel() - apply(flat))
    return Optimum(flat.reshape(linear.shape), iterations, float(left / size) if size else 0.0)


def _across(moments: PairMoments, sides: tuple[Frame, Frame]) -> Float64[np.ndarray, "zx zy"]:
    """E_P of z_x z_yᵀ."""
    x, y = sides
    block: np.ndarray = x.into.T @ moments.across(centred=x.affine) @ y.into
    if not x.affine:
        return block
    whole = np.zeros((len(x.mean), len(y.mean)))
    whole[:-1, :-1] = block
    whole[-1, -1] = 1
    return whole


def _squares(
    data: tuple[Any, Any], sides: tuple[Frame, Frame]
) -> Callable[[Float64[np.ndarray, "zx zy"]], Float64[np.ndarray, "zx zy"]]:
    """Ω ↦ E_P of (z_xᵀ Ω z_y) z_x z_yᵀ, by one pass over the pairs."""
    x, y = sides
    into_x, into_y = x.matrix, y.matrix

    def squares(weights: Float64[np.ndarray, "zx zy"]) -> Float64[np.ndarray, "zx zy"]:
        critic = into_x @ weights @ into_y.T
        total = np.zeros_like(critic)
        for left, right in chunks(*data):
            left, right = x.extended(left), y.extended(right)
            scores = np.einsum("nd,nd->n", left @ critic, right)
            total += (left * scores[:, None]).T @ right
        result: np.ndarray = into_x.T @ (total / len(data[0])) @ into_y
        return result

    return squares

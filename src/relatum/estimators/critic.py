"""A bilinear critic with affine terms: its scores, and the value of RPC at it."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float64

from ..base import Moments
from ..objectives import RPC
from .bilinear import Frame
from .moments import PairMoments, chunks

__all__ = ["BilinearForm", "value"]


@dataclass(frozen=True)
class BilinearForm:
    r"""The score :math:`f = (x-c_x)^\top W (y-c_y) + a^\top(x-c_x) + b^\top(y-c_y) + c`.

    Attributes:
        centre_x: c_x.
        centre_y: c_y.
        directions_x: A, whose images are white.
        directions_y: B, likewise.
        strengths: s, falling: W = A diag(s) Bᵀ.
        bias_x: a.
        bias_y: b.
        bias: c.
    """

    centre_x: Float64[np.ndarray, " dx"]
    centre_y: Float64[np.ndarray, " dy"]
    directions_x: Float64[np.ndarray, "dx k"]
    directions_y: Float64[np.ndarray, "dy k"]
    strengths: Float64[np.ndarray, " k"]
    bias_x: Float64[np.ndarray, " dx"]
    bias_y: Float64[np.ndarray, " dy"]
    bias: float

    @classmethod
    def of(
        cls,
        weights: Float64[np.ndarray, "zx zy"],
        sides: tuple[Frame, Frame],
        rank: int | None,
    ) -> BilinearForm:
        """From its matrix in the coordinates of the frames; the `rank` strongest directions."""
        x, y = sides
        kx, ky = x.into.shape[1], y.into.shape[1]
        left, strengths, right = np.linalg.svd(weights[:kx, :ky], full_matrices=False)
        a, b, c = np.zeros(kx), np.zeros(ky), 0.0
        if x.affine:
            a, b, c = weights[:kx, ky], weights[kx, :ky], float(weights[kx, ky])
        return cls(
            x.centre, y.centre, x.into @ left[:, :rank], y.into @ right.T[:, :rank],
            strengths[:rank], x.into @ a, y.into @ b, c,
        )  # fmt: skip

    @property
    def weight(self) -> Float64[np.ndarray, "dx dy"]:
        """W."""
        weight: np.ndarray = self._left @ self.directions_y.T
        return weight

    def pairs(
        self, x: Float64[np.ndarray, "n dx"], y: Float64[np.ndarray, "n dy"]
    ) -> Float64[np.ndarray, " n"]:
        """f(x_i, y_i)."""
        left, right = x - self.centre_x, y - self.centre_y
        both = np.einsum("nk,nk->n", left @ self._left, right @ self.directions_y)
        scores: np.ndarray = both + left @ self.bias_x + right @ self.bias_y + self.bias
        return scores

    def matrix(
        self, x: Float64[np.ndarray, "n dx"], y: Float64[np.ndarray, "m dy"]
    ) -> Float64[np.ndarray, "n m"]:
        """f(x_i, y_j) of all pairs."""
        left, right = x - self.centre_x, y - self.centre_y
        both = (left @ self._left) @ (right @ self.directions_y).T
        scores: np.ndarray = both + (left @ self.bias_x)[:, None] + right @ self.bias_y + self.bias
        return scores

    @property
    def _left(self) -> Float64[np.ndarray, "dx k"]:
        left: np.ndarray = self.directions_x * self.strengths
        return left


def value(
    form: BilinearForm,
    moments: PairMoments,
    relative: tuple[float, float, float],
    data: tuple[Any, Any] | None,
) -> float:
    """J of RPC, Q being the product of the marginals; `data` are needed with β > 0 alone."""
    mx, my = moments.mean_x - form.centre_x, moments.mean_y - form.centre_y
    weight = form.weight
    affine = form.bias_x @ mx + form.bias_y @ my + form.bias
    across = moments.across(centred=True) + np.outer(mx, my)
    squares = 0.0
    if relative[1] > 0:
        assert data is not None
        squares = sum(float((form.pairs(*pair) ** 2).sum()) for pair in chunks(*data))
    whole = np.block([[weight, form.bias_x[:, None]], [form.bias_y, np.array(form.bias)]])
    second_x = _second(mx, moments.within_x(centred=True))
    second_y = _second(my, moments.within_y(centred=True))
    positives = _moments((weight * across).sum() + affine, squares / moments.count)
    negatives = _moments(mx @ weight @ my + affine, ((second_x @ whole) * (whole @ second_y)).sum())
    with warnings.catch_warnings():
        # RPC warns that β = 0 has no maximum on a batch; with own pairs in Q it has one.
        warnings.simplefilter("ignore", UserWarning)
        objective = RPC(*relative)
    return float(objective.from_moments(positives, negatives))


def _second(
    mean: Float64[np.ndarray, " d"], covariance: Float64[np.ndarray, "d d"]
) -> Float64[np.ndarray, "e e"]:
    """Second moments of a side with a column of ones behind it."""
    wide = np.append(mean, 1.0)
    second: np.ndarray = np.outer(wide, wide)
    second[:-1, :-1] += covariance
    return second


def _moments(mean: Any, square: Any) -> Moments:
    return Moments(*(torch.tensor(float(part), dtype=torch.float64) for part in (mean, square)))

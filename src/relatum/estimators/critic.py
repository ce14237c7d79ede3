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

__all__ = ["BilinearForm", "Map", "images", "value"]

Map = tuple[Float64[np.ndarray, "d k"], Float64[np.ndarray, " d"]]
"""A matrix P and a centre c: rows x become (x − c) P."""


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

    @property
    def maps(self) -> tuple[Map, Map]:
        """Of each side the matrix [A, a] or [B, b] and the centre: scores need only such images."""
        return (
            (np.column_stack([self.directions_x, self.bias_x]), self.centre_x),
            (np.column_stack([self.directions_y, self.bias_y]), self.centre_y),
        )

    def lifted(self, x: Map, y: Map) -> BilinearForm:
        """The same scores as a form of the rows whose images (x − c) P this is a form of."""
        (into_x, centre_x), (into_y, centre_y) = x, y
        return BilinearForm(
            centre_x + into_x @ self.centre_x, centre_y + into_y @ self.centre_y,
            into_x @ self.directions_x, into_y @ self.directions_y, self.strengths,
            into_x @ self.bias_x, into_y @ self.bias_y, self.bias,
        )  # fmt: skip

    def pairs(
        self, x: Float64[np.ndarray, "n dx"], y: Float64[np.ndarray, "n dy"]
    ) -> Float64[np.ndarray, " n"]:
        """f(x_i, y_i)."""
        left, right = self._images(x, y)
        both = np.einsum("nk,nk->n", left[:, :-1] * self.strengths, right[:, :-1])
        scores: np.ndarray = both + left[:, -1] + right[:, -1] + self.bias
        return scores

    def matrix(
        self, x: Float64[np.ndarray, "n dx"], y: Float64[np.ndarray, "m dy"]
    ) -> Float64[np.ndarray, "n m"]:
        """f(x_i, y_j) of all pairs."""
        left, right = self._images(x, y)
        both = (left[:, :-1] * self.strengths) @ right[:, :-1].T
        scores: np.ndarray = both + left[:, [-1]] + right[:, -1] + self.bias
        return scores

    def _images(self, x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        (into_x, centre_x), (into_y, centre_y) = self.maps
        return (x - centre_x) @ into_x, (y - centre_y) @ into_y

    @property
    def _left(self) -> Float64[np.ndarray, "dx k"]:
        left: np.ndarray = self.directions_x * self.strengths
        return left


def images(form: BilinearForm, x: Any, y: Any) -> PairMoments:
    """Moments of the images that scores are made of, by one pass: as few columns as directions."""
    (into_x, centre_x), (into_y, centre_y) = form.maps
    width = into_x.shape[1] + into_y.shape[1]
    total = PairMoments(0, np.zeros(width), np.zeros((width, width)), into_x.shape[1])
    for left, right in chunks(x, y):
        part = PairMoments.of((left - centre_x) @ into_x, (right - centre_y) @ into_y)
        total = total.plus(part)
    return total


def value(
    form: BilinearForm,
    moments: PairMoments,
    relative: tuple[float, float, float],
    data: tuple[Any, Any] | None,
) -> float:
    """J of RPC, Q being the product of the marginals.

    Args:
        form: The critic.
        moments: Of the images of the rows (:func:`images`).
        relative: (α, β, γ).
        data: The rows; needed with β > 0 alone.
    """
    mx, my = moments.mean_x, moments.mean_y
    core = np.zeros((len(mx) + 1, len(my) + 1))  # of (image, 1) and (image, 1)
    core[np.arange(len(form.strengths)), np.arange(len(form.strengths))] = form.strengths
    core[-2, -1] = core[-1, -2] = 1
    core[-1, -1] = form.bias
    joint = np.append(mx, 1.0)[:, None] * np.append(my, 1.0)
    across = joint.copy()
    across[:-1, :-1] += moments.across(centred=True)
    second_x = _second(mx, moments.within_x(centred=True))
    second_y = _second(my, moments.within_y(centred=True))
    squares = 0.0
    if relative[1] > 0:
        assert data is not None
        squares = sum(float((form.pairs(*pair) ** 2).sum()) for pair in chunks(*data))
    positives = _moments((core * across).sum(), squares / moments.count)
    negatives = _moments((core * joint).sum(), ((second_x @ core) * (core @ second_y)).sum())
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

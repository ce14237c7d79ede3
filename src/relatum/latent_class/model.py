r"""Latent-class models: a prior of classes, a law of data for each class, an encoder.

A class :math:`c \sim \rho` is drawn, then data :math:`x \sim D_c`, seen through :math:`f(x)`. Two
members of one class are *similar*; a *negative* comes from a class drawn anew, which may be the
same one again: a *collision*, of probability :math:`\tau = \sum_c \rho_c^2`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Float64
from numpy.random import Generator
from numpy.typing import ArrayLike

from .checks import ROUNDING, Array, check_law, checked_prior, finite_array
from .sampling import Sampling

__all__ = ["FiniteModel"]


@dataclass(frozen=True, eq=False, init=False)
class FiniteModel(Sampling):
    r"""K classes over N support points: every risk of the theory is a finite sum.

    .. math:: c \sim \rho, \quad P(x = x_i \mid c) = P_{ci}, \quad f(x_i) = \Phi_i

    Args:
        prior: Class probabilities ρ > 0, at least two.
        laws: Row c is the law of class c over the support points.
        features: Row i is the embedding of support point i.
        radius: A bound R on all norms :math:`|f(x)|`; by default the largest one, which is exact
            here (of a sample it would be no bound).

    Raises:
        ValueError: If shapes do not fit, a number is not finite, a law is none, or the radius is
            below a norm.

    References:
        A Theoretical Analysis of Contrastive Unsupervised Representation Learning (Saunshi et al.,
        2019), section 2. https://arxiv.org/abs/1902.09229

    Example:
        >>> model = FiniteModel([0.5, 0.3, 0.2], np.eye(3), np.eye(3))
        >>> round(model.tau, 2), model.nu.round(3), model.radius
        (0.38, array([0.658, 0.237, 0.105]), 1.0)
    """

    prior: Float64[np.ndarray, " K"]
    laws: Float64[np.ndarray, "K N"]
    features: Float64[np.ndarray, "N d"]
    radius: float

    def __init__(
        self,
        prior: ArrayLike,
        laws: ArrayLike,
        features: ArrayLike,
        radius: float | None = None,
    ) -> None:
        rho = checked_prior(prior)
        table = finite_array("laws", laws, 2)
        points = finite_array("features", features, 2)
        if table.shape != (len(rho), len(points)):
            raise ValueError(
                "laws must have a row for each class and a column for each support point, "
                f"{(len(rho), len(points))}, got {table.shape}"
            )
        for c, row in enumerate(table):
            check_law(f"laws row {c}", row)
        largest = float(np.linalg.norm(points, axis=1).max())
        if radius is not None and not largest * (1 - ROUNDING) <= radius < math.inf:
            raise ValueError(
                f"radius must be finite and at least the largest norm, {largest}, got {radius}"
            )
        values = (rho, table, points, largest if radius is None else float(radius))
        for name, value in zip(("prior", "laws", "features", "radius"), values, strict=True):
            object.__setattr__(self, name, value)

    @property
    def tau(self) -> float:
        """The probability of a collision, τ = Σ ρ² in (0, 1)."""
        return float(self.prior @ self.prior)

    @property
    def nu(self) -> Float64[np.ndarray, " K"]:
        """The law of the class given a collision, ν = ρ² / τ."""
        return np.asarray(self.prior**2 / self.tau)

    @property
    def task_law(self) -> Float64[np.ndarray, "K K"]:
        """π, the law of two classes (anchor's, negative's) given that they differ."""
        law = np.outer(self.prior, self.prior)
        np.fill_diagonal(law, 0)
        return np.asarray(law / law.sum())

    @cached_property
    def gram(self) -> Float64[np.ndarray, "N N"]:
        """All scores f(x)·f(x')."""
        return np.asarray(self.features @ self.features.T)

    @cached_property
    def means(self) -> Float64[np.ndarray, "K d"]:
        """μ_c = E f(x) of each class: the mean classifier's weights."""
        return np.asarray(self.laws @ self.features)

    @cached_property
    def covariances(self) -> Float64[np.ndarray, "K d d"]:
        """Σ_c, the covariance of f(x) within each class."""
        centred = self.features - self.means[:, None]
        return np.asarray(np.einsum("cn,cni,cnj->cij", self.laws, centred, centred))

    @property
    def similar_law(self) -> Float64[np.ndarray, "N N"]:
        """D_sim, the law of a similar pair: Σ_c ρ_c D_c(x) D_c(x⁺)."""
        return np.asarray((self.laws.T * self.prior) @ self.laws)

    @property
    def negative_law(self) -> Float64[np.ndarray, " N"]:
        """D_neg, the law of a negative, which is that of the data: Σ_c ρ_c D_c."""
        return np.asarray(self.prior @ self.laws)

    def sample_classes(self, n: int, generator: Generator) -> Array:
        """Draws n classes from the prior."""
        return generator.choice(len(self.prior), n, p=self.prior)

    def sample_members(self, classes: Array, generator: Generator) -> Float64[np.ndarray, "n d"]:
        """One embedding f(x), x ~ D_c, for each class in a list."""
        size = len(self.features)
        points = np.empty(len(classes), np.int64)
        for c in np.unique(classes):
            rows = classes == c
            points[rows] = generator.choice(size, rows.sum(), p=self.laws[c])
        return self.features[points]

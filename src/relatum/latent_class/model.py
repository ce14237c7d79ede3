r"""Latent-class models: a prior of classes, a law of data for each class, an encoder.

A class :math:`c \sim \rho` is drawn, then data :math:`x \sim D_c`, seen through :math:`f(x)`. Two
members of one class are *similar*; a *negative* comes from a class drawn anew, which may be the
same one again: a *collision*, of probability :math:`\tau = \sum_c \rho_c^2`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float64
from numpy.random import Generator
from numpy.typing import ArrayLike, NDArray

__all__ = ["Contrasts", "FiniteModel", "Pairs", "SampledModel"]

# Sums of probabilities may be off by rounding, not by a forgotten normalisation.
_ROUNDING = 1e-9

Array = NDArray[Any]


class Pairs(NamedTuple):
    """Similar pairs: row i of both sides comes from class i."""

    anchors: Float64[np.ndarray, "n d"]
    positives: Float64[np.ndarray, "n d"]
    classes: Array


class Contrasts(NamedTuple):
    """Anchors with positives of their class and negatives of classes drawn anew.

    A triplet has one of each, (n, d); k negatives are (n, k, d) with classes (n, k); the positives
    and the negatives of blocks are (n, b, d), each block of one class.
    """

    anchors: Float64[np.ndarray, "n d"]
    positives: Float64[np.ndarray, "n *b d"]
    negatives: Float64[np.ndarray, "n *k d"]
    classes: Array
    negative_classes: Array


class _Sampling:
    """The laws of the theory, given a law of classes and one of the members of a class."""

    def sample_classes(self, n: int, generator: Generator) -> Array:
        """Draws n classes from the prior."""
        raise NotImplementedError

    def sample_members(self, classes: Array, generator: Generator) -> Float64[np.ndarray, "n d"]:
        """One embedding f(x), x ~ D_c, for each class in a list."""
        raise NotImplementedError

    def sample_labelled(
        self, n: int, generator: Generator
    ) -> tuple[Float64[np.ndarray, "n d"], Array]:
        """Independent embeddings and their classes."""
        classes = self.sample_classes(n, generator)
        return self.sample_members(classes, generator), classes

    def sample_pairs(self, n: int, generator: Generator) -> Pairs:
        r"""Independent similar pairs, from :math:`D_{sim}`.

        The class comes first, from ρ. Pairs drawn evenly among all pairs of class mates would have
        classes from ν ∝ ρ² instead.
        """
        anchors, classes = self.sample_labelled(n, generator)
        return Pairs(anchors, self.sample_members(classes, generator), classes)

    def sample_triplets(self, n: int, generator: Generator) -> Contrasts:
        """Independent triplets (x, x⁺, x⁻): a similar pair, and a negative from a class drawn anew."""
        draws = self.sample_tuples(n, 1, generator)
        return draws._replace(
            negatives=draws.negatives[:, 0], negative_classes=draws.negative_classes[:, 0]
        )

    def sample_tuples(self, n: int, k: int, generator: Generator) -> Contrasts:
        """Independent similar pairs with k independent negatives each."""
        _check_count("k", k)
        anchors, positives, classes = self.sample_pairs(n, generator)
        negatives, others = self.sample_labelled(n * k, generator)
        return Contrasts(
            anchors,
            positives,
            negatives.reshape(n, k, anchors.shape[1]),
            classes,
            others.reshape(n, k, *others.shape[1:]),
        )

    def sample_blocks(self, n: int, block: int, generator: Generator) -> Contrasts:
        """Anchors with b positives of their class and b negatives of one class drawn anew."""
        _check_count("block", block)
        anchors, classes = self.sample_labelled(n, generator)
        others = self.sample_classes(n, generator)

        def members(of: Array) -> Array:
            rows = self.sample_members(np.repeat(of, block, axis=0), generator)
            return rows.reshape(n, block, anchors.shape[1])

        return Contrasts(anchors, members(classes), members(others), classes, others)


@dataclass(frozen=True, eq=False, init=False)
class FiniteModel(_Sampling):
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
        rho = _checked_prior(prior)
        table = _finite("laws", laws, 2)
        points = _finite("features", features, 2)
        if table.shape != (len(rho), len(points)):
            raise ValueError(
                "laws must have a row for each class and a column for each support point, "
                f"{(len(rho), len(points))}, got {table.shape}"
            )
        for c, row in enumerate(table):
            _check_law(f"laws row {c}", row)
        largest = float(np.linalg.norm(points, axis=1).max())
        if radius is not None and not largest * (1 - _ROUNDING) <= radius < math.inf:
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
        return self.prior**2 / self.tau

    @property
    def task_law(self) -> Float64[np.ndarray, "K K"]:
        """π, the law of two classes (anchor's, negative's) given that they differ."""
        law = np.outer(self.prior, self.prior)
        np.fill_diagonal(law, 0)
        return law / law.sum()

    @cached_property
    def gram(self) -> Float64[np.ndarray, "N N"]:
        """All scores f(x)·f(x')."""
        return self.features @ self.features.T

    @cached_property
    def means(self) -> Float64[np.ndarray, "K d"]:
        """μ_c = E f(x) of each class: the mean classifier's weights."""
        return self.laws @ self.features

    @cached_property
    def covariances(self) -> Float64[np.ndarray, "K d d"]:
        """Σ_c, the covariance of f(x) within each class."""
        centred = self.features - self.means[:, None]
        return np.einsum("cn,cni,cnj->cij", self.laws, centred, centred)

    @property
    def similar_law(self) -> Float64[np.ndarray, "N N"]:
        """D_sim, the law of a similar pair: Σ_c ρ_c D_c(x) D_c(x⁺)."""
        return (self.laws.T * self.prior) @ self.laws

    @property
    def negative_law(self) -> Float64[np.ndarray, " N"]:
        """D_neg, the law of a negative, which is that of the data: Σ_c ρ_c D_c."""
        return self.prior @ self.laws

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


@dataclass(frozen=True, eq=False)
class SampledModel(_Sampling):
    r"""Classes of which one can draw only: continuous data, and classes without atoms.

    With K classes, `prior` is ρ and ``samplers[c](generator, n)`` draws n points of class c.

    An *atomless* law of classes never repeats one: τ = 0, and there are no collisions. Then
    ``prior(generator, n)`` draws the parameters of n classes, rows of an array, and
    ``samplers(generator, classes)`` one point for each.

    Args:
        prior: The class probabilities, or what draws classes.
        samplers: What draws points: one for each class, or one for all.
        encoder: Takes points (n, ...) to embeddings (n, d).
        atomless: Whether no class has positive probability.

    Raises:
        ValueError: If the prior is no law, or samplers are missing; when drawing, if the encoder
            does not give one finite row for each point.

    Example:
        >>> spheres = SampledModel(
        ...     prior=lambda generator, n: generator.normal(size=(n, 2)),
        ...     samplers=lambda generator, classes: classes + generator.normal(size=classes.shape),
        ...     encoder=lambda x: x / np.linalg.norm(x, axis=1, keepdims=True),
        ...     atomless=True,
        ... )
        >>> spheres.tau, spheres.sample_tuples(5, 3, np.random.default_rng(0)).negatives.shape
        (0.0, (5, 3, 2))
    """

    prior: Any
    samplers: Sequence[Callable[[Generator, int], Array]] | Callable[[Generator, Array], Array]
    encoder: Callable[[Array], ArrayLike]
    atomless: bool = False

    def __post_init__(self) -> None:
        """Checks that the parts belong together."""
        if self.atomless:
            if not (callable(self.prior) and callable(self.samplers)):
                raise ValueError(
                    "an atomless model needs prior(generator, n), which draws classes, and "
                    "samplers(generator, classes), which draws a point of each"
                )
            return
        object.__setattr__(self, "prior", _checked_prior(self.prior))
        if callable(self.samplers) or len(self.samplers) != len(self.prior):
            raise ValueError(
                f"samplers must be a list of one for each of {len(self.prior)} classes"
            )

    @property
    def tau(self) -> float:
        """The probability of a collision: Σ ρ², or 0 where classes are atomless."""
        return 0.0 if self.atomless else float(self.prior @ self.prior)

    def sample_classes(self, n: int, generator: Generator) -> Array:
        """Draws n classes: their numbers, or their parameters where classes are atomless."""
        if self.atomless:
            return np.asarray(self.prior(generator, n))
        return generator.choice(len(self.prior), n, p=self.prior)

    def sample_members(self, classes: Array, generator: Generator) -> Float64[np.ndarray, "n d"]:
        """One embedding f(x), x ~ D_c, for each class in a list."""
        if callable(self.samplers):
            return self._encode(self.samplers(generator, classes))
        order = np.argsort(classes, kind="stable")
        drawn = [
            self.samplers[c](generator, count)
            for c, count in zip(*np.unique(classes, return_counts=True), strict=True)
        ]
        points = np.concatenate(drawn)
        return self._encode(points[np.argsort(order)])

    def _encode(self, points: Array) -> Float64[np.ndarray, "n d"]:
        rows = _finite("encoder's output", self.encoder(points), 2)
        if len(rows) != len(points):
            raise ValueError(f"encoder must give {len(points)} rows, got {len(rows)}")
        return rows


def _finite(name: str, value: ArrayLike, axes: int) -> Array:
    array = np.array(value, np.float64)  # a copy: nobody changes a model from outside
    if array.ndim != axes or 0 in array.shape:
        shape = "a vector" if axes == 1 else "a matrix"
        raise ValueError(f"{name} must be {shape} and not empty, got shape {array.shape}")
    if not np.isfinite(array).all():
        at = ", ".join(map(str, np.argwhere(~np.isfinite(array))[0]))
        raise ValueError(f"{name}[{at}] is not finite")
    return array


def _checked_prior(prior: ArrayLike) -> Array:
    rho = _finite("prior", prior, 1)
    if len(rho) < 2:
        raise ValueError("prior must have at least two classes: one alone leaves no task")
    _check_law("prior", rho)
    if rho.min() == 0:
        raise ValueError(f"prior must be positive, class {rho.argmin()} has 0: leave it out")
    return rho


def _check_law(name: str, law: Array) -> None:
    if law.min() < 0:
        raise ValueError(f"{name} must not be negative, got {law.min()}")
    if abs(law.sum() - 1) > _ROUNDING:
        raise ValueError(f"{name} must sum to 1, got {law.sum()}: divide it by its sum")


def _check_count(name: str, value: int) -> None:
    if value < 1:
        raise ValueError(f"{name} must be at least 1, got {value}")

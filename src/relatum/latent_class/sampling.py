"""Drawing from latent classes in the order of the theory: the anchor's class comes first."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float64
from numpy.random import Generator
from numpy.typing import ArrayLike

from .checks import Array, check_count, checked_prior, finite_array

__all__ = ["Contrasts", "Pairs", "SampledModel", "Sampling"]


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


class Sampling(ABC):
    """The laws of the theory, given a law of classes and one of the members of a class."""

    @abstractmethod
    def sample_classes(self, n: int, generator: Generator) -> Array:
        """Draws n classes from the prior."""

    @abstractmethod
    def sample_members(self, classes: Array, generator: Generator) -> Float64[np.ndarray, "n d"]:
        """One embedding f(x), x ~ D_c, for each class in a list."""

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
        """Independent triplets: a similar pair, and a negative from a class drawn anew."""
        draws = self.sample_tuples(n, 1, generator)
        return draws._replace(
            negatives=draws.negatives[:, 0], negative_classes=draws.negative_classes[:, 0]
        )

    def sample_tuples(self, n: int, k: int, generator: Generator) -> Contrasts:
        """Independent similar pairs with k independent negatives each."""
        check_count("k", k)
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
        check_count("block", block)
        anchors, classes = self.sample_labelled(n, generator)
        others = self.sample_classes(n, generator)

        def members(of: Array) -> Array:
            rows = self.sample_members(np.repeat(of, block, axis=0), generator)
            return rows.reshape(n, block, anchors.shape[1])

        return Contrasts(anchors, members(classes), members(others), classes, others)


@dataclass(frozen=True, eq=False)
class SampledModel(Sampling):
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
        object.__setattr__(self, "prior", checked_prior(self.prior))
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
        rows = finite_array("encoder's output", self.encoder(points), 2)
        if len(rows) != len(points):
            raise ValueError(f"encoder must give {len(points)} rows, got {len(rows)}")
        return rows

r"""Rademacher complexity of encoder classes on a sample: exact, simulated, enclosed.

One-sided and unnormalised, with independent fair signs:

.. math:: R_S(F) = E_\epsilon \sup_{f \in F} \sum_{i=1}^n \sum_{t=1}^d \epsilon_{it} f_t(x_i)

The points are all inputs of the sample: 3 M of M triplets, M (k + 2) with k negatives. A class of
functions says what it needs to: its supremum for given signs, what one sign can change, and a
closed-form enclosure. Then :func:`exact_complexity` sums over all signs, where there are few, and
:func:`simulated_complexity` averages over drawn ones, with a band that holds at any sample size
(bounded differences). Linear classes are in :mod:`relatum.latent_class.complexity_linear`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np
from jaxtyping import Float64
from numpy.random import Generator
from numpy.typing import ArrayLike

from .checks import check_count, check_delta, check_positive
from .concentration import bounded_difference_tail

__all__ = [
    "Complexity",
    "FiniteClass",
    "SignedClass",
    "exact_complexity",
    "mlp_complexity",
    "simulated_complexity",
    "trivial_complexity",
]

_MOST_SIGNS = 20
_TABLES, _NUMBERS = 256, 2**20  # sign tables held at once, and the signs in them


@dataclass(frozen=True)
class Complexity:
    """A complexity between two numbers.

    Attributes:
        low: Not more than the complexity.
        high: Not less; what a bound should use.
        value: The exact value or its estimate; None of an enclosure in closed form.
        delta: The probability that the interval fails: 0 unless simulated.
    """

    low: float
    high: float
    value: float | None = None
    delta: float = 0.0


class SignedClass(Protocol):
    """A class of functions, as far as signed sums see it."""

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one table of signs."""
        ...

    def suprema(self, signs: Float64[np.ndarray, T * signs]) -> Float64[np.ndarray, " T"]:
        """The supremum over the class of the signed sum, for each of T tables of signs."""
        ...

    def sensitivities(self) -> Float64[np.ndarray, "*signs"]:
        """How much the supremum can change when one sign is flipped, sign by sign."""
        ...

    def enclosure(self) -> Complexity:
        """The complexity between two closed forms."""
        ...


@dataclass(frozen=True, eq=False)
class FiniteClass:
    r"""Finitely many functions, by their outputs on the sample.

    With the mean :math:`\bar f` of the class taken off, which changes no complexity, Massart's
    lemma and two functions of the class enclose it:

    .. math:: \frac{1}{2\sqrt2} \max_{f, g} \|f - g\| \le R_S \le
              \max_f \|f - \bar f\| \sqrt{2 \ln |F|}

    with norms over all n·d outputs. Outputs may be any numbers: of ℓ(q_f(z_j)), shape (F, M, 1), it
    is the complexity of the losses themselves.

    Args:
        outputs: f_t(x_i) for each function.

    Raises:
        ValueError: If there are no outputs or one is not finite.

    Example:
        >>> exact_complexity(FiniteClass(np.array([[[1.0]], [[-1.0]]]))).value  # E|eps|
        1.0
    """

    outputs: Float64[np.ndarray, "F n d"]

    def __post_init__(self) -> None:
        """Checks the outputs."""
        outputs = np.asarray(self.outputs, np.float64)
        if outputs.ndim != 3 or outputs.size == 0 or not np.isfinite(outputs).all():
            raise ValueError(
                f"outputs must be finite and (functions, points, dimensions), got the shape "
                f"{outputs.shape}"
            )
        object.__setattr__(self, "outputs", outputs)

    @property
    def shape(self) -> tuple[int, ...]:
        """(n, d)."""
        return self.outputs.shape[1:]

    def suprema(self, signs: Float64[np.ndarray, "T n d"]) -> Float64[np.ndarray, " T"]:
        """The largest signed sum, of the class with its midpoint taken off."""
        sums: Float64[np.ndarray, "T F"] = np.tensordot(signs, self._centred, axes=([1, 2], [1, 2]))
        largest: Float64[np.ndarray, " T"] = sums.max(axis=1)
        return largest

    def sensitivities(self) -> Float64[np.ndarray, "n d"]:
        """The range of f_t(x_i) over the class: 2 max |f_t(x_i)| without the midpoint."""
        spread: Float64[np.ndarray, "n d"] = np.ptp(self.outputs, axis=0)
        return spread

    @cached_property
    def _centred(self) -> Float64[np.ndarray, "F n d"]:
        middle = (self.outputs.max(axis=0) + self.outputs.min(axis=0)) / 2
        centred: Float64[np.ndarray, "F n d"] = self.outputs - middle
        return centred

    def enclosure(self) -> Complexity:
        """Between two functions and Massart's lemma."""
        flat = self.outputs.reshape(len(self.outputs), -1)
        radius = np.linalg.norm(flat - flat.mean(axis=0), axis=1).max()
        apart = max(float(np.linalg.norm(flat - one, axis=1).max()) for one in flat)
        high = float(radius) * math.sqrt(2 * math.log(len(flat)))
        return Complexity(apart / math.sqrt(8), high)


def exact_complexity(functions: SignedClass) -> Complexity:
    """The complexity by enumeration of all signs, of which there may be 20.

    Args:
        functions: The class.

    Raises:
        ValueError: If there are more signs.

    Example:
        >>> from relatum.latent_class.complexity_linear import FrobeniusBall
        >>> exact_complexity(FrobeniusBall(np.array([[3.0], [4.0]]), 1, 1.0)).value  # (7 + 1)/2
        4.0
    """
    count = math.prod(functions.shape)
    if count > _MOST_SIGNS:
        raise ValueError(
            f"exact enumeration takes up to {_MOST_SIGNS} signs, got {count}: simulate instead"
        )
    bits = np.arange(count)
    total = 0.0
    for start in range(0, 2**count, _TABLES):
        codes = np.arange(start, min(start + _TABLES, 2**count))
        signs = 1.0 - 2.0 * ((codes[:, None] >> bits) & 1)
        total += float(functions.suprema(signs.reshape(-1, *functions.shape)).sum())
    value = total / 2**count
    return Complexity(value, value, value)


def simulated_complexity(
    functions: SignedClass, generator: Generator, *, draws: int = 1000, delta: float = 0.05
) -> Complexity:
    r"""The complexity as a mean over drawn signs, with a band that is rigorous.

    .. math:: \Big| \frac1T \sum_{t=1}^T \sup - R_S \Big| \le
              \sqrt{\frac{\sum_i c_i^2 \, \ln(2/\delta)}{2 T}}

    with probability 1 − δ, where flipping sign i changes the supremum by at most c_i (McDiarmid).

    Args:
        functions: The class.
        generator: The source of chance.
        draws: The number T of sign tables.
        delta: The probability δ that the band fails.

    Raises:
        ValueError: If `draws` or `delta` is out of range.

    Example:
        >>> pair = FiniteClass(np.array([[[1.0]], [[-1.0]]]))
        >>> simulated_complexity(pair, np.random.default_rng(0), draws=100).value
        1.0
    """
    check_count("draws", draws)
    check_delta(delta)
    squares = float((functions.sensitivities() ** 2).sum())
    total = 0.0
    rows = max(1, min(_TABLES, _NUMBERS // math.prod(functions.shape)))
    for start in range(0, draws, rows):
        size = (min(rows, draws - start), *functions.shape)
        signs = generator.integers(0, 2, size).astype(np.float64) * 2 - 1
        total += float(functions.suprema(signs).sum())
    value = total / draws
    band = bounded_difference_tail(squares / draws, delta / 2)
    return Complexity(value - band, value + band, value, delta)


def trivial_complexity(points: int, dimension: int, radius: float) -> Complexity:
    r"""Of any encoders with |f(x)| <= R: :math:`0 \le R_S \le n \sqrt d R`.

    Example:
        >>> trivial_complexity(10, 4, 1.0).high
        20.0
    """
    check_count("points", points)
    check_count("dimension", dimension)
    check_positive(radius=radius)
    return Complexity(0.0, points * math.sqrt(dimension) * radius)


def mlp_complexity(x: ArrayLike, dimension: int, norms: Sequence[float]) -> Complexity:
    r"""ReLU networks without biases, each layer's weights in a Frobenius ball.

    .. math:: R_S \le \sqrt d\, \prod_{l=1}^L B_l \Big( \sum_i |x_i|^2 \Big)^{1/2}
              \Big( 1 + \sqrt{2 + 2 (L - 1) \ln 2} \Big)

    for L >= 2 layers, :math:`\|W_l\|_F \le B_l`; one layer is
    :class:`relatum.latent_class.complexity_linear.FrobeniusBall`. Any activation that is
    1-Lipschitz and positively homogeneous will do. The layers are peeled off inside an exponential
    moment, whose price is √L instead of 2^L. For trained networks the product of norms makes it
    vacuous.

    Args:
        x: The points, (n, p).
        dimension: The dimension d of the embedding.
        norms: B_1, ..., B_L, first layer first.

    Raises:
        ValueError: If there are fewer than two layers or a number is out of range.

    References:
        Size-Independent Sample Complexity of Neural Networks (Golowich et al., 2018), Theorem 1.
        https://arxiv.org/abs/1712.06541

    Example:
        >>> round(mlp_complexity([[1.0]], 1, [1.0, 1.0]).high, 3)
        2.84
    """
    check_count("dimension", dimension)
    if len(norms) < 2:
        raise ValueError(f"norms must hold two layers at least, got {len(norms)}")
    for norm in norms:
        check_positive(norms=norm)
    layers = len(norms)
    size = math.prod(norms) * float(np.linalg.norm(np.asarray(x, np.float64)))
    depth = 1 + math.sqrt(2 + 2 * (layers - 1) * math.log(2))
    return Complexity(0.0, math.sqrt(dimension) * size * depth)

r"""Rademacher complexity of linear encoders, :math:`f(x) = W x`, with bounded weights.

With the signs ε (n, d), points X (n, p) and :math:`E = \epsilon^\top X`, the signed sum is
:math:`\langle W, E \rangle`, so that its supremum over a ball is the dual norm of E. With
:math:`m_2 = E \|E\|_F^2 = d \sum_i |x_i|^2`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float64

from .checks import check_count, check_positive, finite_array
from .complexity import Complexity

__all__ = ["FrobeniusBall", "OperatorBall", "RowBalls", "ScoreBall"]


@dataclass(frozen=True, eq=False)
class _LinearBall:
    """What the three balls share.

    Attributes:
        x: The points, (n, p).
        dimension: The dimension d of the embedding.
        bound: The bound B on the norm of the weights.
    """

    x: Float64[np.ndarray, "n p"]
    dimension: int
    bound: float

    def __post_init__(self) -> None:
        """Checks the points and the numbers."""
        object.__setattr__(self, "x", finite_array("x", self.x, 2))
        check_count("dimension", self.dimension)
        check_positive(bound=self.bound)

    @property
    def shape(self) -> tuple[int, ...]:
        """(n, d)."""
        return len(self.x), self.dimension

    def sensitivities(self) -> Float64[np.ndarray, "n d"]:
        """2 B |x_i|: flipping a sign changes one row of E by 2 x_i, a matrix of rank one."""
        norms = np.linalg.norm(self.x, axis=1, keepdims=True)
        return np.asarray(2 * self.bound * np.repeat(norms, self.dimension, axis=1))

    def _dual(self, signs: Float64[np.ndarray, "T n d"]) -> Float64[np.ndarray, "T d p"]:
        """The matrices E."""
        product: Float64[np.ndarray, "T d p"] = np.swapaxes(signs, 1, 2) @ self.x
        return product


class FrobeniusBall(_LinearBall):
    r"""Linear encoders with :math:`\|W\|_F \le B`: the supremum is :math:`B \|E\|_F`.

    .. math:: B \sqrt{m_2}\, \max\Big( \tfrac{1}{\sqrt2}, 1 - \frac{V}{2 m_2^2} \Big)
              \le R_S \le B \sqrt{m_2}, \qquad
              V = 2 d \Big( \|X^\top X\|_F^2 - \sum_i |x_i|^4 \Big)

    with V the variance of :math:`\|E\|_F^2`. The upper end is Jensen's inequality, the lower ones
    Khintchine's and :math:`\sqrt z \ge (3 z - z^2)/2`.

    Args:
        x: The points, (n, p).
        dimension: The dimension d of the embedding.
        bound: B.

    Raises:
        ValueError: If the points are no finite matrix or a number is out of range.

    Example:
        >>> ball = FrobeniusBall(np.array([[3.0], [4.0]]), 1, 1.0)
        >>> ball.enclosure().high
        5.0
    """

    def suprema(self, signs: Float64[np.ndarray, "T n d"]) -> Float64[np.ndarray, " T"]:
        """B |E|_F."""
        norms = np.linalg.norm(self._dual(signs), axis=(1, 2))
        return np.asarray(self.bound * norms)

    def enclosure(self) -> Complexity:
        """Between Khintchine's inequality, or the variance, and Jensen's inequality."""
        high = self.bound * math.sqrt(self.dimension) * float(np.linalg.norm(self.x))
        return Complexity(high * _concentration(self.x, self.dimension), high)


class OperatorBall(_LinearBall):
    r"""Linear encoders with :math:`\|W\|_{op} \le B`: the supremum is :math:`B \|E\|_*` (nuclear).

    .. math:: R_S \le B \min\big( \sqrt d\, \|X\|_*,\; d\, \|X\|_F,\;
              \sqrt{\min(d, p)\, m_2} \big)

    and not less than that of the Frobenius ball inside it.

    Args:
        x: The points, (n, p).
        dimension: The dimension d of the embedding.
        bound: B.

    Raises:
        ValueError: If the points are no finite matrix or a number is out of range.

    Example:
        >>> OperatorBall(np.eye(2), 2, 1.0).enclosure().high
        2.8284271247461903
    """

    def suprema(self, signs: Float64[np.ndarray, "T n d"]) -> Float64[np.ndarray, " T"]:
        """B times the sum of the singular values of E."""
        values = np.linalg.svd(self._dual(signs), compute_uv=False)
        return np.asarray(self.bound * values.sum(axis=1))

    def enclosure(self) -> Complexity:
        """Between the Frobenius ball and the least of three norms."""
        d, p = self.dimension, self.x.shape[1]
        frobenius = float(np.linalg.norm(self.x))
        nuclear = float(np.linalg.svd(self.x, compute_uv=False).sum())
        least = min(math.sqrt(d) * nuclear, d * frobenius, math.sqrt(min(d, p) * d) * frobenius)
        low = FrobeniusBall(self.x, d, self.bound).enclosure().low
        return Complexity(low, self.bound * least)


class RowBalls(_LinearBall):
    r"""Linear encoders whose rows have :math:`|w_t| \le b`: the supremum is b Σ_t |E_t|.

    .. math:: R_S \le b\, d \Big( \sum_i |x_i|^2 \Big)^{1/2}

    and not less than d times the lower end of the Frobenius ball of one dimension.

    Args:
        x: The points, (n, p).
        dimension: The dimension d of the embedding.
        bound: b.

    Raises:
        ValueError: If the points are no finite matrix or a number is out of range.

    Example:
        >>> RowBalls(np.array([[3.0], [4.0]]), 2, 1.0).enclosure().high
        10.0
    """

    def suprema(self, signs: Float64[np.ndarray, "T n d"]) -> Float64[np.ndarray, " T"]:
        """B times the sum of the row norms of E."""
        norms = np.linalg.norm(self._dual(signs), axis=2)
        return np.asarray(self.bound * norms.sum(axis=1))

    def enclosure(self) -> Complexity:
        """D independent copies of one row."""
        one = FrobeniusBall(self.x, 1, self.bound).enclosure()
        return Complexity(self.dimension * one.low, self.dimension * one.high)


@dataclass(frozen=True, eq=False)
class ScoreBall:
    r"""The scores of linear encoders: one sign for each triplet, free of the dimension d.

    .. math:: R_S(q_F) = E \sup_{\|W\|_F \le B} \sum_j \epsilon_j\, q_W(z_j)
              = B^2\, E\, \lambda_{max}\big(\operatorname{sym} N\big)_+, \qquad
              N = \sum_j \epsilon_j u_j x_j^\top, \quad u_j = x_j^- - x_j^+

    with :math:`q_W(z) = (W x)^\top W u`. A W of rank one attains it. Enclosed by

    .. math:: \frac{B^2}{2 \sqrt 2} \max_t \Big( \sum_j u_{jt}^2 x_{jt}^2 \Big)^{1/2}
              \le R_S(q_F) \le B^2 \Big( \sum_j |x_j|^2 |u_j|^2 \Big)^{1/2}

    below by Khintchine's inequality along one axis. Much smaller than what
    :func:`relatum.latent_class.bounds.training.encoder_contraction` makes of the class of encoders.

    Args:
        anchors: x_j, (M, p).
        positives: x_j⁺, (M, p).
        negatives: x_j⁻, (M, p).
        bound: B.

    Raises:
        ValueError: If the shapes differ, a point is not finite, or B is out of range.

    Example:
        >>> one = np.array([[1.0]])
        >>> ScoreBall(one, one, -one, 1.0).suprema(np.array([[-1.0], [1.0]]))
        array([2., 0.])
    """

    anchors: Float64[np.ndarray, "M p"]
    positives: Float64[np.ndarray, "M p"]
    negatives: Float64[np.ndarray, "M p"]
    bound: float

    def __post_init__(self) -> None:
        """Checks the points."""
        for name in ("anchors", "positives", "negatives"):
            object.__setattr__(self, name, finite_array(name, getattr(self, name), 2))
        shapes = {a.shape for a in (self.anchors, self.positives, self.negatives)}
        if len(shapes) > 1:
            raise ValueError(f"anchors, positives and negatives must have one shape, got {shapes}")
        check_positive(bound=self.bound)

    @property
    def shape(self) -> tuple[int, ...]:
        """(M,)."""
        return (len(self.anchors),)

    def suprema(self, signs: Float64[np.ndarray, "T M"]) -> Float64[np.ndarray, " T"]:
        """B² times the largest eigenvalue of sym N, at least 0."""
        forms = np.einsum("tj,jp,jq->tpq", signs, self._differences, self.anchors, optimize=True)
        largest = np.linalg.eigvalsh(forms + np.swapaxes(forms, 1, 2))[:, -1] / 2
        return np.asarray(self.bound**2 * np.maximum(largest, 0))

    def sensitivities(self) -> Float64[np.ndarray, " M"]:
        """B² (|u·x| + |u| |x|): twice the largest score of one triplet."""
        u, x = self._differences, self.anchors
        inner = np.abs((u * x).sum(axis=1))
        return np.asarray(self.bound**2 * (inner + self._products))

    def enclosure(self) -> Complexity:
        """Between one axis and the Frobenius norm of N."""
        axes = ((self._differences * self.anchors) ** 2).sum(axis=0)
        low = math.sqrt(float(axes.max()) / 8)
        high = float(np.linalg.norm(self._products))
        return Complexity(self.bound**2 * low, self.bound**2 * high)

    @property
    def _differences(self) -> Float64[np.ndarray, "M p"]:
        return np.asarray(self.negatives - self.positives)

    @property
    def _products(self) -> Float64[np.ndarray, " M"]:
        lengths = np.linalg.norm(self._differences, axis=1)
        products: Float64[np.ndarray, " M"] = lengths * np.linalg.norm(self.anchors, axis=1)
        return products


def _concentration(x: Float64[np.ndarray, "n p"], dimension: int) -> float:
    """How near E|E|_F is to the root of its second moment, from below."""
    squares = (x**2).sum(axis=1)
    second = dimension * float(squares.sum())
    if second == 0:
        return 1.0
    variance = 2 * dimension * float(((x.T @ x) ** 2).sum() - (squares**2).sum())
    return max(1 / math.sqrt(2), 1 - variance / (2 * second**2))

r"""The sums of all triplet losses without visiting the triplets.

For one anchor :math:`i` with positives :math:`u_j = f_i \cdot f_j` of its class and negatives
:math:`v_l = f_i \cdot f_l` of class e, the loss :math:`\ell(v_l - u_j)` is summed over l for each
j, over j for each l, and over both. Each function here does so for a block of anchors of one class,
over the whole product of positives and negatives (the terms l = j of the own class, each
:math:`\ell(0) = 1`, are the caller's to subtract); the anchor itself takes no part.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float64, Int64
from torch import Tensor

from ..surrogates import HingeSurrogate, LogisticSurrogate

__all__ = ["AnchorBlock", "BlockSums", "Chebyshev", "direct_sums", "hinge_sums"]


@dataclass(frozen=True)
class AnchorBlock:
    """The scores of some anchors of one class with all points; points stand class by class.

    Attributes:
        scores: f_i · f_l.
        own: The column of each anchor.
        code: The class of the anchors.
        starts: The first column of each class, and n at the end.
    """

    scores: Float64[Tensor, "b n"]
    own: Int64[Tensor, " b"]
    code: int
    starts: Int64[np.ndarray, " K1"]

    @property
    def columns(self) -> slice:
        """The columns of the anchors' class."""
        return slice(int(self.starts[self.code]), int(self.starts[self.code + 1]))

    @property
    def classes(self) -> Int64[Tensor, " n"]:
        """The class of each column."""
        sizes = torch.from_numpy(np.diff(self.starts))
        return torch.arange(len(sizes)).repeat_interleave(sizes)

    def by_class(self, values: Float64[Tensor, "*a n"]) -> Float64[Tensor, "*a K"]:
        """Sums over the columns of each class."""
        return torch.from_numpy(np.add.reduceat(values.numpy(), self.starts[:-1], axis=-1))


class BlockSums(NamedTuple):
    """Sums of losses: for each anchor and each positive by class of the negative; each negative."""

    anchor: Float64[Tensor, "b K"]
    positive: Float64[Tensor, "m K"]
    negative: Float64[Tensor, " n"]


def hinge_sums(block: AnchorBlock) -> BlockSums:
    r"""Exact hinge sums by sorting: O(n log n) an anchor, all classes together.

    With the positives in descending order, :math:`u_{(0)} \ge u_{(1)} \ge \dots`, and :math:`p_l`
    the number of them at or above :math:`1 + v_l`,

    .. math:: \sum_j (1 + v_l - u_j)_+ = \sum_{r \ge p_l} (1 + v_l - u_{(r)}), \qquad
              \sum_l (1 + v_l - u_{(r)})_+ = \sum_{l :\, p_l \le r} (1 + v_l - u_{(r)})

    The first is a suffix sum of the positives. The second is a prefix sum over the bins
    :math:`p_l`, of their counts and of their sums of :math:`1 + v_l`: one search a negative serves
    both.
    """
    scores, own = block.scores, block.own
    b, m = len(scores), block.columns.stop - block.columns.start
    classes = len(block.starts) - 1
    lanes = torch.arange(b)
    # Everything is negated, for searches want ascending order.
    fall = scores[:, block.columns].neg()
    fall[lanes, own - block.columns.start] = torch.inf  # the anchor is no positive: sorted last
    ordered, order = fall.sort(dim=1)
    need = -1 - scores
    place = torch.searchsorted(ordered, need)
    place[lanes, own], need[lanes, own] = m - 1, 0  # nor is it a negative
    ordered[:, -1] = 0
    rest = ordered.flip(1).cumsum(1).flip(1)
    values = rest.gather(1, place).addcmul_(place - (m - 1), need)
    # Bins (place, class) of the negatives.
    bins = place.mul_(classes).add_(block.classes)
    counts, sums = (
        scores.new_zeros(b, m * classes).scatter_add_(1, bins, x).view(b, m, classes).cumsum(1)
        for x in (scores.new_ones(1).expand_as(need), need)
    )
    ranked = counts.mul_(ordered[:, :, None]).sub_(sums)
    ranked[:, -1] = 0
    rank = torch.empty_like(order).scatter_(1, order, torch.arange(m).expand(b, m))
    rank += lanes[:, None] * m
    positive = ranked.view(b * m, classes)[rank.flatten()].view(b, m, classes).sum(0)
    return BlockSums(block.by_class(values), positive, values.sum(0))


@dataclass(frozen=True)
class Chebyshev:
    r"""Sums of a smooth loss by its separable expansion: O(n D) an anchor, all classes together.

    .. math:: \ell(v - u) = \sum_{a, b < D} C_{ab}\, T_a(u / r)\, T_b(v / r), \qquad |u|, |v| \le r

    so that per anchor and class only the sums of :math:`T_a(u_j / r)` are needed. The logistic loss
    is analytic up to :math:`v - u = i\pi`, hence the error falls like :math:`q^{-D}` with
    :math:`q = w + \sqrt{1 + w^2}`, :math:`w = \pi / 2r`; ``of`` takes D for double precision: 32
    at r = 1, about 230 at r = 10.

    Attributes:
        radius: r, a bound on all scores.
        coefficients: C.

    References:
        Approximation Theory and Approximation Practice (Trefethen, 2013), Theorem 8.2.
    """

    radius: float
    coefficients: Float64[Tensor, "D D"]

    @staticmethod
    def order(radius: float) -> int:
        """D: terms for an error of about 1e-15."""
        w = math.pi / (2 * radius)
        return math.ceil(36 / math.asinh(w)) + 2

    @classmethod
    def of(cls, loss: LogisticSurrogate, radius: float) -> Chebyshev:
        """The expansion that meets the loss in the D x D Chebyshev points."""
        count = cls.order(radius)
        angles = (torch.arange(count, dtype=torch.float64) + 0.5) * math.pi / count
        nodes = radius * angles.cos()
        transform = (torch.arange(count)[:, None] * angles).cos() * (2 / count)
        transform[0] /= 2
        return cls(radius, transform @ loss(nodes - nodes[:, None]) @ transform.T)

    def __call__(self, block: AnchorBlock) -> BlockSums:
        """The sums of one block; holds b n D numbers."""
        basis = self._polynomials(block.scores / self.radius)
        basis[torch.arange(len(basis)), :, block.own] = 0
        sums = block.by_class(basis)
        positives = basis[:, :, block.columns]
        # Coefficients of the sum over l as a polynomial in u, one for each class; and the reverse.
        in_positive = self.coefficients @ sums
        in_negative = sums[:, None, :, block.code] @ self.coefficients
        positive = torch.einsum("bak,bam->mk", in_positive, positives)
        negative = torch.bmm(in_negative, basis)[:, 0]
        return BlockSums(block.by_class(negative), positive, negative.sum(0))

    def _polynomials(self, x: Float64[Tensor, "b n"]) -> Float64[Tensor, "b D n"]:
        """T_0 .. T_(D-1) by their recurrence."""
        count = len(self.coefficients)
        basis = x.new_empty(len(x), count, x.shape[1])
        basis[:, 0], basis[:, 1] = 1, x
        for a in range(2, count):
            torch.mul(x, basis[:, a - 1], out=basis[:, a]).mul_(2).sub_(basis[:, a - 2])
        return basis


def direct_sums(loss: HingeSurrogate | LogisticSurrogate, block: AnchorBlock) -> BlockSums:
    """The same sums over all pairs of positive and negative: O(n m) an anchor, for any loss."""
    negative = torch.zeros_like(block.scores)
    positive = block.scores.new_zeros(
        block.columns.stop - block.columns.start, len(block.starts) - 1
    )
    for lane, own in enumerate(block.own.tolist()):
        row = block.scores[lane]
        losses = loss(row - row[block.columns, None])
        losses[own - block.columns.start] = 0
        losses[:, own] = 0
        positive += block.by_class(losses)
        negative[lane] = losses.sum(0)
    return BlockSums(block.by_class(negative), positive, negative.sum(0))

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

    With the positives sorted, :math:`u_{(1)} \le u_{(2)} \le \dots`, and :math:`p_l` the number of
    them below :math:`1 + v_l`,

    .. math:: \sum_j (1 + v_l - u_j)_+ = p_l (1 + v_l) - \sum_{r \le p_l} u_{(r)}

    and from the other side :math:`\sum_l (1 + v_l - u_{(r)})_+ = \sum_{l: p_l \ge r} (1 + v_l -
    u_{(r)})`: counts and sums of :math:`1 + v_l` in the bins :math:`p_l`, accumulated from the top.
    One search a negative serves both.
    """
    scores, own = block.scores, block.own
    b, m = len(scores), block.columns.stop - block.columns.start
    classes = len(block.starts) - 1
    lanes = torch.arange(b)
    positives = scores[:, block.columns].clone()
    positives[lanes, own - block.columns.start] = torch.inf  # sorted last, and never reached
    ordered, order = positives.sort(dim=1)
    below = scores.new_zeros(b, m)
    torch.cumsum(ordered[:, :-1], dim=1, out=below[:, 1:])
    reach = 1 + scores
    place = torch.searchsorted(ordered, reach, out_int32=True).long()
    place[lanes, own] = 0
    values = (place * reach).sub_(below.gather(1, place))
    # Bin (class, p) of each negative; then the counts and sums of all bins from p = r on.
    sizes = torch.from_numpy(np.diff(block.starts))
    bins = (torch.arange(classes) * m).repeat_interleave(sizes) + place
    counts = scores.new_zeros(b, classes * m).scatter_add_(1, bins, torch.ones_like(reach))
    sums = scores.new_zeros(b, classes * m).scatter_add_(1, bins, reach)
    at_least, total = (
        x.view(b, classes, m)[:, :, 1:].flip(2).cumsum(2).flip(2) for x in (counts, sums)
    )
    from_positives = total - at_least * ordered[:, None, :-1]
    positive = scores.new_zeros(classes, m)
    where = order[:, None, :-1].expand(b, classes, m - 1).transpose(0, 1).reshape(classes, -1)
    positive.scatter_add_(1, where, from_positives.transpose(0, 1).reshape(classes, -1))
    return BlockSums(block.by_class(values), positive.T, values.sum(0))


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

r"""Moments of the negatives carried over from step to step.

A batch of N pairs estimates :math:`E_Q f` and :math:`E_Q f^2` without bias, but with a variance of
its own. Since both are inner products of moments of the two factors, those can be averaged over
past steps, whose rows are negatives of today's anchors too:

.. math:: m = (1 - \lambda)\, m_\mathrm{batch} + \lambda\, \tfrac12 \big(
    \langle A_u, \bar A_v \rangle + \langle \bar A_u, A_v \rangle \big)

with :math:`A = \frac1n \sum u u^\top` of this batch and :math:`\bar A` the average over past steps,
weighted by powers of the decay :math:`\lambda`; likewise for the means.

**Bias.** The gradient is taken of :math:`\langle A_u, \bar A_v \rangle + \langle \bar A_u, A_v
\rangle`, without the half: each side against the other's average. While the parameters stand still,
its expectation over independent batches and pasts is exactly that of the population's full product
of marginals, own pairs included: an image of an earlier batch meets its own earlier view as a
negative, which exact batches exclude. While they move, :math:`\bar A` is :math:`1 / (1 - \lambda)`
steps old on average.

**Measured** (``docs/results/streaming_cpu.md``: a small encoder, SGD, known population). The option
did not pay. With :math:`\lambda = 0.5` the mean objective after training was within 1 % of plain
training's wherever that did not diverge. With 0.9 it was clearly lower in 10 of 13 settings, by 3
to 27 %, with 0.99 in 10 as well, by 39 to 94 %, although single gradients were often nearer to the
population's: noise is new at every step and averages out, the age of a past is not and does not.
With raw dot products at a rate where plain training diverged, 0.9 did not, but stayed far below
plain training at a lower rate. No past made a small batch train like one four times as large, whose
statistics can be summed over parts and stay exact (:meth:`relatum.ContrastiveLoss.statistics`).
"""

from __future__ import annotations

from typing import final

import torch
from torch import Tensor, nn

from ..base import Moments
from ..distributed import Group
from .statistics import Factor, Statistics, pooled, product_sums

__all__ = ["MovingMoments"]


@final
class MovingMoments(nn.Module):
    """The factors' moments, averaged over past steps; its buffers belong into the checkpoint.

    Args:
        dim: Width of the critic's factors.
        decay: λ in [0, 1): the share of the past in the moments of the negatives. 0 is the plain
            loss of the batch.

    Raises:
        ValueError: If the decay is not in [0, 1).

    Example:
        >>> from relatum import RPC, ContrastiveLoss, Cosine
        >>> loss, past = ContrastiveLoss(RPC(), Cosine(0.5)), MovingMoments(3, decay=0.9)
        >>> for step in range(2):
        ...     total = loss.statistics(*torch.randn(2, 6, 3))
        ...     value = loss.from_statistics(total, past)   # then value.backward() and a step
        ...     past.update(total)
        >>> round(float(past.weight), 4)   # 1 − 0.9²
        0.19
    """

    weight: Tensor
    anchor_mean: Tensor
    anchor_gram: Tensor
    candidate_mean: Tensor
    candidate_gram: Tensor

    def __init__(self, dim: int, decay: float) -> None:
        super().__init__()
        if not 0 <= decay < 1:
            raise ValueError(f"decay must be in [0, 1), got {decay}")
        self.decay = decay
        self.register_buffer("weight", torch.zeros((), dtype=torch.float64))
        for side in ("anchor", "candidate"):
            self.register_buffer(f"{side}_mean", torch.zeros(dim, dtype=torch.float64))
            self.register_buffer(f"{side}_gram", torch.zeros(dim, dim, dtype=torch.float64))

    def extra_repr(self) -> str:
        """Shown by ``print``."""
        return f"dim={len(self.anchor_mean)}, decay={self.decay}"

    def blend(self, batch: Moments, total: Statistics, group: Group) -> Moments:
        """The moments of the negatives, the past included.

        Args:
            batch: The moments of this batch's negatives.
            total: Its statistics, those of this process.
            group: The processes.

        Raises:
            ValueError: If the critic's factors are not of the width `dim`.
        """
        self._check_width(total)
        if float(self.weight) == 0:
            return batch
        anchors = Factor(self.anchor_mean / self.weight, self.anchor_gram / self.weight)
        candidates = Factor(self.candidate_mean / self.weight, self.candidate_gram / self.weight)
        sums = product_sums(total.anchors, candidates).plus(product_sums(anchors, total.candidates))
        both_sides = group.sum(torch.stack([*sums])) / sum(group.rows(total.rows))
        # The value of half the sum with the gradient of the whole.
        past = both_sides - both_sides.detach() / 2
        now = torch.stack([*batch])
        return Moments(*((1 - self.decay) * now + self.decay * past))

    @torch.no_grad()
    def update(self, total: Statistics, group: Group | None = None) -> None:
        """Takes in a batch, after its step.

        Args:
            total: The statistics of the batch, those of this process.
            group: The processes, the same as the loss's; None is this process alone.

        Raises:
            ValueError: If the critic's factors are not of the width `dim`.
        """
        self._check_width(total)
        group = Group() if group is None else group
        rows = sum(group.rows(total.rows))
        same = total.candidates is total.anchors
        mine = [total.anchors] if same else [total.anchors, total.candidates]
        sides = pooled([Factor(f.sum.detach(), f.gram.detach()) for f in mine], group)
        for name, side in (("anchor", sides[0]), ("candidate", sides[-1])):
            getattr(self, f"{name}_mean").lerp_(side.sum.double() / rows, 1 - self.decay)
            getattr(self, f"{name}_gram").lerp_(side.gram.double() / rows, 1 - self.decay)
        self.weight.lerp_(torch.ones_like(self.weight), 1 - self.decay)

    def _check_width(self, total: Statistics) -> None:
        dim, width = len(self.anchor_mean), len(total.anchors.sum)
        if dim != width:
            raise ValueError(
                f"MovingMoments has dim={dim}, but the critic's factors have width {width}: "
                f"pass dim={width}"
            )

r"""Sums over rows from which the first two moments of all pairs follow, for separable scores.

.. math:: \sum_{ij} f_{ij} = \langle \textstyle\sum_i u_i, \sum_j v_j \rangle, \qquad
    \sum_{ij} f_{ij}^2 = \langle U^\top U, V^\top V \rangle_F

They *add up*: over parts of a batch, micro-batches and processes. A part costs O(n d²) time, its
statistics O(d²) memory, whatever the number of pairs.
"""

from __future__ import annotations

from functools import reduce
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from ..base import Moments, SeparableCritic
from ..distributed import Group
from ..products import row_sums
from .factors import factors_of_pairs
from .strategies import Sums

__all__ = [
    "Factor",
    "Statistics",
    "of_pairs",
    "of_views",
    "pair_sums",
    "pooled",
    "product_sums",
    "statistics_of_pairs",
]


class Factor(NamedTuple):
    """Sums over the rows of one factor u.

    Attributes:
        sum: Σ u.
        gram: Σ u uᵀ = uᵀu.
    """

    sum: Float[Tensor, " d"]
    gram: Float[Tensor, "d d"]

    @classmethod
    def of(cls, u: Float[Tensor, "n d"]) -> Factor:
        """The sums over the rows of u."""
        first, square = row_sums(u)
        return cls(first, square)

    def plus(self, other: Factor) -> Factor:
        """The sums over the rows of both."""
        return Factor(self.sum + other.sum, self.gram + other.gram)


class Statistics(NamedTuple):
    """All that a batch, or a part of one, says about the moments of its pairs.

    Attributes:
        anchors: Sums over the anchors' factor.
        candidates: The same for the candidates; for two views, all rows are both.
        positives: Σ f and Σ f² over the positive pairs.
        excluded: The same over the pairs that are neither: every anchor with itself and with its
            partner.
        rows: Number of anchors, and of candidates.
        pairs: Number of positive pairs.
        excluded_pairs: Number of excluded ones.
    """

    anchors: Factor
    candidates: Factor
    positives: Sums
    excluded: Sums
    rows: int
    pairs: int
    excluded_pairs: int

    def plus(self, other: Statistics) -> Statistics:
        """The statistics of both parts together."""
        anchors = self.anchors.plus(other.anchors)
        same = self.candidates is self.anchors
        return Statistics(
            anchors,
            anchors if same else self.candidates.plus(other.candidates),
            self.positives.plus(other.positives),
            self.excluded.plus(other.excluded),
            self.rows + other.rows,
            self.pairs + other.pairs,
            self.excluded_pairs + other.excluded_pairs,
        )

    def moments(self, group: Group, both: bool = False) -> tuple[Moments, Moments]:
        """E f and E f² of the positives and of the negatives, those of all processes.

        Raises:
            ValueError: If there are no negatives.
        """
        whole = self.both_ways() if both else self
        remaining, _ = whole.negatives(group, both)
        anchors = self.rows * (2 if both else 1)
        negatives = anchors * sum(group.rows(self.rows)) - whole.excluded_pairs
        counts = torch.tensor([self.pairs, negatives], device=self.anchors.sum.device)
        pairs, negatives = group.sum(counts).tolist()
        if negatives == 0:
            raise ValueError("no negatives: a contrastive loss needs at least two pairs")
        sums = group.sum(torch.stack([*self.positives, *remaining]))
        positive, negative = sums[:2] / pairs, sums[2:] / negatives
        return Moments(*positive), Moments(*negative)

    def both_ways(self) -> Statistics:
        """The same with every candidate an anchor too: what is excluded counts twice."""
        return self._replace(
            excluded=self.excluded.plus(self.excluded), excluded_pairs=2 * self.excluded_pairs
        )

    def negatives(self, group: Group, both: bool = False) -> tuple[Sums, Float[Tensor, ""]]:
        """Σ f and Σ f² over this process's anchors with the candidates of all processes.

        Args:
            group: The processes.
            both: Whether candidates are anchors too.

        Returns:
            The sums over the pairs that remain, and the size of what was added and subtracted for
            the second one, ‖UᵀU‖ ‖VᵀV‖.
        """
        same = self.candidates is self.anchors
        own = [self.anchors] if same else [self.anchors, self.candidates]
        everyone = pooled(own if both else own[-1:], group)
        met = [(own[0], everyone[-1]), *([(own[-1], everyone[0])] if both else [])]
        total = reduce(Sums.plus, [product_sums(*sides) for sides in met])
        with torch.no_grad():
            norm = torch.linalg.vector_norm
            size = torch.stack([norm(a.gram) * norm(b.gram) for a, b in met]).sum()
        first, second = self.excluded
        return Sums(total.first - first, total.second - second), size


def statistics_of_pairs(
    critic: SeparableCritic, x: Float[Tensor, "n dx"], y: Float[Tensor, "n *b dy"], views: bool
) -> Statistics:
    """The statistics of some pairs of a batch, in float64; each other pair is a negative."""
    us, vs = factors_of_pairs(critic, x, y, views)
    of = of_views if views else of_pairs
    return reduce(
        Statistics.plus, [of(u.double(), v.double()) for u, v in zip(us, vs, strict=True)]
    )


def of_pairs(
    u: Float[Tensor, "n d"], v: Float[Tensor, "n d"], scores: Float[Tensor, " n"] | None = None
) -> Statistics:
    """Statistics of pairs (u_i, v_i) whose negatives are all v_j, j ≠ i."""
    partners = pair_sums((u * v).sum(1) if scores is None else scores)
    n = len(u)
    return Statistics(Factor.of(u), Factor.of(v), partners, partners, n, n, n)


def of_views(
    u: Float[Tensor, "n d"], v: Float[Tensor, "n d"], scores: Float[Tensor, " n"] | None = None
) -> Statistics:
    """Statistics of two views: all 2n rows but the own and the partner's are negatives."""
    one, two = row_sums(u, norms=True), row_sums(v, norms=True)
    rows = Factor(*one[:2]).plus(Factor(*two[:2]))
    partners = pair_sums((u * v).sum(1) if scores is None else scores)
    selves = Sums(*one[2:]).plus(Sums(*two[2:]))  # f(z, z) is ‖u‖²
    excluded = selves.plus(partners).plus(partners)
    n = len(u)
    return Statistics(rows, rows, partners, excluded, 2 * n, n, 4 * n)


def pair_sums(scores: Float[Tensor, " n"]) -> Sums:
    """Σ f and Σ f² of given scores."""
    return Sums(scores.sum(), scores.square().sum())


def product_sums(anchors: Factor, candidates: Factor) -> Sums:
    """Σ f and Σ f² over every anchor with every candidate."""
    return Sums((anchors.sum * candidates.sum).sum(), (anchors.gram * candidates.gram).sum())


def pooled(factors: list[Factor], group: Group) -> list[Factor]:
    """The same sums over the rows of all processes, by one all-reduce of d² + d numbers each."""
    if group.size == 1:
        return factors
    flat = group.sum(torch.cat([part.flatten() for f in factors for part in (f.sum, f.gram)]))
    sizes = [part.numel() for f in factors for part in (f.sum, f.gram)]
    parts = iter(torch.split(flat, sizes))
    return [Factor(next(parts), next(parts).view_as(f.gram)) for f in factors]

r"""Exact moments of all-pair scores in linear time, for separable critics.

.. math:: \sum_{ij} f_{ij} = \langle \textstyle\sum_i u_i, \sum_j v_j \rangle, \qquad
    \sum_{ij} f_{ij}^2 = \langle U^\top U, V^\top V \rangle_F

minus the same sums over the excluded pairs: O(n d²) time and O(d²) memory, value and gradient.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from ..base import Elementwise
from .exclusions import Exclusions
from .strategies import Strategy, Sums

__all__ = ["LARGEST_AMPLIFICATION", "Gram", "GramStatistics"]

LARGEST_AMPLIFICATION = 100.0
"""Where (all pairs) / (all pairs − excluded pairs) exceeds this in float32, the subtraction has
cancelled: the relative error is about 6e-8 times the ratio. The sums are then redone in float64."""

_CHUNK = 1 << 16
"""Excluded pairs gathered at a time."""


class GramStatistics(NamedTuple):
    """Additive statistics from which the moments follow; parts of a batch add up."""

    sum_u: Float[Tensor, " d"]
    sum_v: Float[Tensor, " d"]
    gram_u: Float[Tensor, "d d"]
    gram_v: Float[Tensor, "d d"]
    excluded: Sums

    def totals(self) -> Sums:
        """Σ f and Σ f² over all pairs, excluded ones too."""
        return Sums(self.sum_u @ self.sum_v, (self.gram_u * self.gram_v).sum())

    def sums(self) -> Sums:
        """Σ f and Σ f² over the pairs that remain."""
        total = self.totals()
        return Sums(total.first - self.excluded.first, total.second - self.excluded.second)


class Gram:
    """Separable scores whose moments have a closed form.

    Args:
        u: Factors of the anchors.
        v: Factors of the candidates.
        exclusions: Which candidates are not negatives.
        both: Whether columns are anchors too; every pair is then a negative of two anchors.
        rest: Makes the strategy for every reduction but the moments; called when one is asked for.
    """

    def __init__(
        self,
        u: Float[Tensor, "n d"],
        v: Float[Tensor, "m d"],
        exclusions: Exclusions,
        both: bool,
        rest: Callable[[], Strategy],
    ) -> None:
        self.u, self.v, self.exclusions, self.both, self._rest = u, v, exclusions, both, rest
        counts = exclusions.counts
        self.counts = torch.cat([counts, counts]) if both else counts

    def __repr__(self) -> str:
        n, d = self.u.shape
        return f"Gram({n} x {len(self.v)} through {d} x {d})"

    @cached_property
    def rest(self) -> Strategy:
        """The strategy for every reduction but the moments."""
        return self._rest()

    def statistics(self) -> GramStatistics:
        """Sums and Gram matrices of both sides, and the sums over the excluded pairs."""
        return _statistics(self.u, self.v, self.exclusions)

    def sums(self) -> Sums:
        """Σ f and Σ f²."""
        with torch.autocast(self.u.device.type, enabled=False):
            statistics = self.statistics()
            sums = statistics.sums()
            if self.u.dtype == torch.float64 or not _cancelled(statistics.totals().second, sums):
                return self._twice(sums)
            exact = _statistics(self.u.double(), self.v.double(), self.exclusions).sums()
            return self._twice(Sums(*(s.to(self.u.dtype) for s in exact)))

    def sum(self, phi: Elementwise) -> Float[Tensor, ""]:
        """Σ φ(f), by the other strategy."""
        return self.rest.sum(phi)

    def logsumexp(self) -> Float[Tensor, " n"]:
        """Log Σ_j exp f_ij per anchor, by the other strategy."""
        return self.rest.logsumexp()

    def max(self) -> Float[Tensor, " n"]:
        """max_j f_ij per anchor, by the other strategy."""
        return self.rest.max()

    def _twice(self, sums: Sums) -> Sums:
        return Sums(2 * sums.first, 2 * sums.second) if self.both else sums


def _cancelled(total: Tensor, sums: Sums) -> bool:
    return bool(total.detach() > LARGEST_AMPLIFICATION * sums.second.detach().abs())


def _statistics(u: Tensor, v: Tensor, exclusions: Exclusions) -> GramStatistics:
    sum_u, gram_u = u.sum(0), u.T @ u
    sum_v, gram_v = (sum_u, gram_u) if u is v else (v.sum(0), v.T @ v)
    return GramStatistics(sum_u, sum_v, gram_u, gram_v, _excluded(u, v, exclusions))


def _excluded(u: Tensor, v: Tensor, exclusions: Exclusions) -> Sums:
    """Σ f and Σ f² over the excluded pairs."""
    if exclusions.shifts is not None:
        zero = u.new_zeros(())
        scores = [(u * v.roll(-shift, 0)).sum(1) for shift in exclusions.shifts]
        return Sums(
            sum((s.sum() for s in scores), zero), sum((s.square().sum() for s in scores), zero)
        )
    # A group of a anchors and b candidates costs a·b·d pair by pair and (a + b)·d² through its own
    # Gram matrices. Few groups can be large, so those are visited one by one.
    ids, anchors, candidates = exclusions.groups()
    large = ids[anchors * candidates > (anchors + candidates) * u.shape[1]]
    parts = [_by_group(u, v, exclusions, large), _by_pair(u, v, exclusions, large)]
    return Sums(parts[0].first + parts[1].first, parts[0].second + parts[1].second)


def _by_group(u: Tensor, v: Tensor, exclusions: Exclusions, ids: Tensor) -> Sums:
    first = second = u.new_zeros(())
    for group in ids:
        us, vs = u[exclusions.anchor_ids == group], v[exclusions.candidate_ids == group]
        first = first + us.sum(0) @ vs.sum(0)
        second = second + ((us.T @ us) * (vs.T @ vs)).sum()
    return Sums(first, second)


def _by_pair(u: Tensor, v: Tensor, exclusions: Exclusions, large: Tensor) -> Sums:
    kept = ~torch.isin(exclusions.anchor_ids, large)
    u, small = u[kept], Exclusions(exclusions.anchor_ids[kept], exclusions.candidate_ids)
    first = second = u.new_zeros(())
    for rows in small.chunks(_CHUNK):
        i, j = small.pairs(rows)
        scores = (u[i] * v[j]).sum(1)
        first, second = first + scores.sum(), second + scores.square().sum()
    return Sums(first, second)

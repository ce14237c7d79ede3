r"""Exact moments of all-pair scores in linear time, for separable critics.

.. math:: \sum_{ij} f_{ij} = \langle \textstyle\sum_i u_i, \sum_j v_j \rangle, \qquad
    \sum_{ij} f_{ij}^2 = \langle U^\top U, V^\top V \rangle_F

minus the same sums over the excluded pairs: O(n d²) time and O(d²) memory beyond the factors, value
and gradient.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cached_property

import torch
from jaxtyping import Float
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from ..base import Elementwise
from .exclusions import Exclusions, Groups
from .strategies import Strategy, Sums

__all__ = ["LARGEST_AMPLIFICATION", "Gram"]

LARGEST_AMPLIFICATION = 100.0
"""Where (all pairs) / (all pairs − excluded pairs) exceeds this in float32, the subtraction has
cancelled: the relative error is about 6e-8 times the ratio. The sums are then redone in float64."""

_CHUNK = 1 << 16
"""Excluded pairs scored at a time."""


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

    def sums(self) -> Sums:
        """Σ f and Σ f²."""
        with torch.autocast(self.u.device.type, enabled=False):
            sums, reliable = _sums(self.u, self.v, self.exclusions)
            if not reliable and self.u.dtype != torch.float64:
                exact, _ = _sums(self.u.double(), self.v.double(), self.exclusions)
                sums = Sums(*(s.to(self.u.dtype) for s in exact))
        return Sums(2 * sums.first, 2 * sums.second) if self.both else sums

    def sum(self, phi: Elementwise) -> Float[Tensor, ""]:
        """Σ φ(f), by the other strategy."""
        return self.rest.sum(phi)

    def logsumexp(self) -> Float[Tensor, " n"]:
        """Log Σ_j exp f_ij per anchor, by the other strategy."""
        return self.rest.logsumexp()

    def max(self) -> Float[Tensor, " n"]:
        """max_j f_ij per anchor, by the other strategy."""
        return self.rest.max()


def _sums(u: Tensor, v: Tensor, exclusions: Exclusions) -> tuple[Sums, bool]:
    """The sums over the pairs that remain, and whether the subtraction kept their precision."""
    sum_u, gram_u = u.sum(0), u.T @ u
    sum_v, gram_v = (sum_u, gram_u) if u is v else (v.sum(0), v.T @ v)
    total = (gram_u * gram_v).sum()
    excluded = _excluded(u, v, exclusions)
    sums = Sums(sum_u @ sum_v - excluded.first, total - excluded.second)
    # Written so that an overflow, where nothing compares, counts as unreliable too.
    return sums, bool(total.detach() <= LARGEST_AMPLIFICATION * sums.second.detach().abs())


def _excluded(u: Tensor, v: Tensor, exclusions: Exclusions) -> Sums:
    """Σ f and Σ f² over the excluded pairs."""
    zero = u.new_zeros(())
    parts = [Sums(zero, zero)]
    if exclusions.shifts is not None:
        for shift in exclusions.shifts:
            scores = (u * v.roll(-shift, 0)).sum(1)
            parts.append(Sums(scores.sum(), scores.square().sum()))
    else:
        parts += _by_group(u, v, exclusions.groups())
    first, second = zip(*parts, strict=True)
    return Sums(torch.stack(first).sum(), torch.stack(second).sum())


def _by_group(u: Tensor, v: Tensor, groups: Groups) -> Iterator[Sums]:
    """The excluded pairs of ids, in chunks of consecutive groups.

    A group of a anchors and b candidates costs a·b·d pair by pair and (a + b)·d² through its own
    Gram matrices; the few groups that are large enough for the second are chunks of their own.
    """
    a, b = groups.anchor_sizes, groups.candidate_sizes
    if len(a) == 0:
        return
    large = a * b > (a + b) * u.shape[1]
    reached = (a * b).masked_fill(large, 0).cumsum(0) // _CHUNK
    starts = large | large.roll(1) | (reached != reached.roll(1))
    _, lengths = torch.unique_consecutive(starts.cumsum(0), return_counts=True)
    sizes, alone = lengths.tolist(), large[lengths.cumsum(0) - 1].tolist()
    parts_a, parts_b = torch.split(a, sizes), torch.split(b, sizes)
    us = torch.split(u[groups.anchors], [int(part.sum()) for part in parts_a])
    vs = torch.split(v[groups.candidates], [int(part.sum()) for part in parts_b])
    for size_a, size_b, u_part, v_part, gram in zip(parts_a, parts_b, us, vs, alone, strict=True):
        if gram:
            first = u_part.sum(0) @ v_part.sum(0)
            yield Sums(first, ((u_part.T @ u_part) * (v_part.T @ v_part)).sum())
        else:
            # Recomputed in the backward pass: the gathered rows are many times the batch.
            out = checkpoint(_pair_sums, u_part, v_part, size_a, size_b, use_reentrant=False)
            yield Sums(*out)


def _pair_sums(u: Tensor, v: Tensor, a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """Σ f and Σ f² over the pairs inside each of some consecutive groups of a x b rows."""
    partners = b.repeat_interleave(a)
    first = (b.cumsum(0) - b).repeat_interleave(a)
    i = torch.arange(len(u), device=u.device).repeat_interleave(partners)
    within = torch.arange(len(i), device=u.device) - (partners.cumsum(0) - partners)[i]
    scores = (u[i] * v[first[i] + within]).sum(1)
    return scores.sum(), scores.square().sum()

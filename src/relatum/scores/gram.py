"""Exact moments of all-pair scores in linear time, for separable critics.

Whether float32 was enough is decided by the numbers themselves, so ``torch.compile`` leaves this,
as all of the loss, out of its graphs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cached_property, partial, reduce

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from ..base import Elementwise
from ..distributed import Group
from ..products import matmul
from .exclusions import Exclusions, Groups
from .statistics import Factor, Statistics, pair_sums, product_sums
from .strategies import Strategy, Sums

__all__ = ["LARGEST_AMPLIFICATION", "Gram", "excluded_by_ids"]

LARGEST_AMPLIFICATION = 100.0
"""Where ‖UᵀU‖ ‖VᵀV‖ / Σ f² exceeds this in float32, digits have cancelled: in the subtraction of
excluded pairs that dwarf the others, or among the entries of the two matrices if anchors are nearly
orthogonal to candidates. The relative error is about 6e-8 times the ratio. The sums are then redone
in float64."""

_CHUNK = 1 << 22
"""Numbers of one side that are gathered at a time for excluded pairs of small groups."""

_ALONE = 1 << 18
"""The same of one group, from which on it is a product of its own."""


class Gram:
    """Separable scores whose moments have a closed form: all pairs minus the excluded ones.

    Args:
        statistics: Makes the statistics of this process's rows; if asked, in float64.
        counts: The number of negatives of each anchor.
        both: Whether candidates are anchors too; every pair is then a negative of two anchors.
        group: The processes whose candidates count as well.
        rest: Makes the strategy for every reduction but the moments; called when one is asked for.
        otherwise: What that will be, in a word.
    """

    def __init__(
        self,
        statistics: Callable[[bool], Statistics],
        counts: Int[Tensor, " n"],
        both: bool,
        group: Group,
        rest: Callable[[], Strategy],
        otherwise: str,
    ) -> None:
        self.counts, self._otherwise = counts, otherwise
        self._statistics, self._both, self._group, self._rest = statistics, both, group, rest

    def __repr__(self) -> str:
        shared = "" if self._group.size == 1 else f", summed over {self._group.size} processes"
        n = len(self.counts)
        return f"Gram(moments of {n} anchors in linear time{shared}; else {self._otherwise})"

    @cached_property
    def rest(self) -> Strategy:
        """The strategy for every reduction but the moments."""
        return self._rest()

    def sums(self) -> Sums:
        """Σ f and Σ f²."""
        sums, size = self._statistics(False).negatives(self._group, self._both)
        # Written so that an overflow, where nothing compares, counts as unreliable too.
        bound = LARGEST_AMPLIFICATION * sums.second.detach().abs()
        reliable = bool(size <= bound)
        # All processes decide alike: the second way has sums over processes of its own.
        if sums.second.dtype == torch.float64 or self._group.everywhere(reliable):
            return sums
        exact, _ = self._statistics(True).negatives(self._group, self._both)
        return Sums(*(s.to(sums.second.dtype) for s in exact))

    def sum(self, phi: Elementwise) -> Float[Tensor, ""]:
        """Σ φ(f), by the other strategy."""
        return self.rest.sum(phi)

    def logsumexp(self) -> Float[Tensor, " n"]:
        """Log Σ_j exp f_ij per anchor, by the other strategy."""
        return self.rest.logsumexp()

    def max(self) -> Float[Tensor, " n"]:
        """max_j f_ij per anchor, by the other strategy."""
        return self.rest.max()


def excluded_by_ids(
    u: Float[Tensor, "n d"], v: Float[Tensor, "m d"], exclusions: Exclusions
) -> Sums:
    """Σ f and Σ f² over the pairs that ids exclude."""
    zero = u.new_zeros(())
    return reduce(Sums.plus, _by_group(u, v, exclusions.groups()), Sums(zero, zero))


def _by_group(u: Tensor, v: Tensor, groups: Groups) -> Iterator[Sums]:
    """The excluded pairs of ids, in chunks of consecutive groups.

    A group of a anchors and b candidates costs a·b·d pair by pair and (a + b)·d² through its own
    Gram matrices; groups that are not small are chunks of their own.
    """
    a, b = groups.anchor_sizes, groups.candidate_sizes
    if len(a) == 0:
        return
    alone = a * b * u.shape[1] >= _ALONE
    reached = (a * b).masked_fill(alone, 0).cumsum(0) // max(1, _CHUNK // u.shape[1])
    starts = alone | alone.roll(1) | (reached != reached.roll(1))
    _, lengths = torch.unique_consecutive(starts.cumsum(0), return_counts=True)
    sizes, kinds = lengths.tolist(), alone[lengths.cumsum(0) - 1].tolist()
    parts_a, parts_b = torch.split(a, sizes), torch.split(b, sizes)
    us = torch.split(u[groups.anchors], [int(part.sum()) for part in parts_a])
    vs = torch.split(v[groups.candidates], [int(part.sum()) for part in parts_b])
    for size_a, size_b, u_part, v_part, single in zip(parts_a, parts_b, us, vs, kinds, strict=True):
        n, m = len(u_part), len(v_part)
        if single and n * m > (n + m) * u.shape[1]:
            yield product_sums(Factor.of(u_part), Factor.of(v_part))
            continue
        # Recomputed in the backward pass: gathered rows are many times the batch.
        run = _group_sums if single else partial(_pair_sums, a=size_a, b=size_b)
        yield Sums(*checkpoint(run, u_part, v_part, use_reentrant=False, preserve_rng_state=False))


def _group_sums(u: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    """Σ f and Σ f² over all pairs of one group."""
    return pair_sums(matmul(u, v.T).flatten())


def _pair_sums(u: Tensor, v: Tensor, a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """Σ f and Σ f² over the pairs inside each of some consecutive groups of a x b rows."""
    partners = b.repeat_interleave(a)
    first = (b.cumsum(0) - b).repeat_interleave(a)
    i = torch.arange(len(u), device=u.device).repeat_interleave(partners)
    within = torch.arange(len(i), device=u.device) - (partners.cumsum(0) - partners)[i]
    return pair_sums((u[i] * v[first[i] + within]).sum(1))

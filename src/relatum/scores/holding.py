"""How the scores of a batch are held: the one place that chooses a strategy, by cost alone."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce
from typing import Literal

import torch
from torch import Tensor

from ..base import Critic
from ..distributed import Group
from ..products import matmul
from .exclusions import Exclusions, occurrences
from .factors import Parts, joined
from .gram import Gram, excluded_by_ids
from .negatives import BothDirections
from .statistics import Factor, Statistics, of_pairs, of_views
from .strategies import Checkpointed, Dense, Strategy, Sums
from .tiled import Tiled

__all__ = ["Batch", "hold_blocks", "hold_joint", "hold_separable"]

_DENSE = 1 << 16
"""Scores held at once where no block size is given; beyond, tiles are recomputed, which is faster
where one score serves two anchors, and never much slower. Held scores have second derivatives."""

_JOINT = 1 << 16
"""The same for joint critics, whose hidden layers are held for every pair as well."""

_TILE = 512
"""Default side of a tile on the CPU: 1 MiB of scores, which stays in the cache between passes."""


@dataclass(frozen=True)
class Batch:
    """Which anchors of this process meet which candidates of all.

    Attributes:
        pattern: Where candidates come from: all rows of both views, the partners of all pairs, or
            elsewhere.
        exclusions: Ids of this process's anchors and of all candidates; a mask, where there is one,
            has no closed form.
        rows: Candidates of each process.
        group: The processes whose candidates count.
        block_size: Side of tiles, or rows of a block; None decides here.
        numbered: Whether ids are mere numbers of pairs, so that it is known without comparing
            what is excluded: the own row and the partner.
        both: Whether candidates are anchors too.
    """

    pattern: Literal["views", "pairs", "elsewhere"]
    exclusions: Exclusions
    rows: list[int]
    group: Group
    block_size: int | None
    numbered: bool
    both: bool = False

    @property
    def counts(self) -> Tensor:
        """The number of negatives of each anchor; rows first, then columns if both."""
        if self.numbered:
            excluded = {"views": 2, "pairs": 1, "elsewhere": 0}[self.pattern]
            counts = torch.full_like(self.exclusions.anchor_ids, sum(self.rows) - excluded)
        else:
            counts = self.exclusions.counts
        return counts.repeat(2) if self.both else counts


def gram_pays(n: int, m: int, d: int) -> bool:
    """Whether (n + m) d² of Gram matrices beat n m d of scores; measured on the CPU."""
    return m >= 256 and n * m >= (n + m) * d


def tile_side(device: torch.device) -> int:
    """Side of a tile, a power of two: what stays in the cache of a CPU, or what a GPU has room for.

    A tile and what is computed from it are about four times its scores, here in a sixteenth of the
    memory that is free, and not above 1 GiB.
    """
    if device.type != "cuda":
        return _TILE
    free, _ = torch.cuda.mem_get_info(device)
    fitting = math.isqrt(free // 16 // (4 * 4))
    return min(8192, max(_TILE, 1 << fitting.bit_length() >> 1))


def hold_separable(us: Parts, vs: Parts, positives: Tensor, batch: Batch) -> Strategy:
    """Chooses how separable scores are reduced; a question of cost, never of the result.

    Args:
        us: Factor of the first sides.
        vs: Factor of the second sides.
        positives: Scores of the pairs.
        batch: Who meets whom.
    """
    anchors = [*us, *vs] if batch.pattern == "views" else us
    candidates = anchors if batch.pattern == "views" else vs

    def pair_by_pair() -> Strategy:
        u = joined(anchors)
        return _scored(u, u if candidates is anchors else joined(candidates), batch)

    def statistics(exact: bool) -> Statistics:
        if not exact:
            return _statistics(us, vs, positives, batch)
        return _statistics([u.double() for u in us], [v.double() for v in vs], None, batch)

    # All processes choose alike, whatever their shares of the rows.
    total, n = sum(batch.rows), len(batch.exclusions.anchor_ids)
    n = n if batch.pattern == "elsewhere" else total
    if batch.exclusions.kept is None and gram_pays(n, total, us[0].shape[1]):
        otherwise = "tiled" if _in_tiles(sum(map(len, anchors)), total, batch) else "dense"
        return Gram(statistics, batch.counts, batch.both, batch.group, pair_by_pair, otherwise)
    return pair_by_pair()


def _scored(u: Tensor, v: Tensor, batch: Batch) -> Strategy:
    """Scores of this process's anchors with the candidates of all, tiled or dense."""
    group = batch.group
    if group.size == 1:
        return _one_way(u, v, batch, batch.both)
    forward = _one_way(u, group.gather(v, batch.rows), batch)
    if not batch.both:
        return forward
    return BothDirections(forward, _one_way(v, group.gather(u, batch.rows), batch))


def _one_way(u: Tensor, v: Tensor, batch: Batch, both: bool = False) -> Strategy:
    n, m, exclusions = len(u), len(v), batch.exclusions
    if _in_tiles(n, m, batch):
        return Tiled(u, v, exclusions, batch.block_size or tile_side(u.device), both)
    scores, excluded = matmul(u, v.T), exclusions.mask(slice(0, n), slice(0, m))
    return _both(scores, excluded) if both else Dense(scores, excluded)


def _in_tiles(n: int, m: int, batch: Batch) -> bool:
    return batch.block_size is not None or n * m > _DENSE


def _both(scores: Tensor, excluded: Tensor | None) -> Strategy:
    across = None if excluded is None else excluded.T
    return BothDirections(Dense(scores, excluded), Dense(scores.T, across))


def _statistics(us: Parts, vs: Parts, positives: Tensor | None, batch: Batch) -> Statistics:
    """What the parts add up to, and the excluded pairs; scores of the pairs if they are known."""
    if batch.numbered and batch.pattern != "elsewhere":
        of = of_views if batch.pattern == "views" else of_pairs
        known = (
            [None] * len(us) if positives is None else torch.split(positives, [len(u) for u in us])
        )
        total = reduce(Statistics.plus, map(of, us, vs, known))
        return total.both_ways() if batch.both else total
    anchors = reduce(Factor.plus, map(Factor.of, us))
    others = reduce(Factor.plus, map(Factor.of, vs))
    if batch.pattern == "views":
        anchors = others = anchors.plus(others)
        us = vs = [*us, *vs]
    nothing = Sums(anchors.sum.new_zeros(()), anchors.sum.new_zeros(()))
    excluded = nothing
    if not batch.numbered:
        u = joined(us)
        excluded = _by_ids(u, u if vs is us else joined(vs), batch)
    return Statistics(anchors, others, nothing, excluded, 0, 0, 0)


def _by_ids(u: Tensor, v: Tensor, batch: Batch) -> Sums:
    """Σ f and Σ f² over the pairs that ids exclude, members on other processes included."""
    own = batch.exclusions.anchor_ids
    forward = excluded_by_ids(u, *_members(v, batch, own))
    if not batch.both:
        return forward
    if batch.group.size == 1:
        return forward.plus(forward)
    return forward.plus(excluded_by_ids(v, *_members(u, batch, own)))


def _members(v: Tensor, batch: Batch, anchor_ids: Tensor) -> tuple[Tensor, Exclusions]:
    """Candidates of this process and those of others that share an id with one of its rows."""
    group, everyone = batch.group, batch.exclusions.candidate_ids
    if group.size == 1:
        return v, batch.exclusions
    mine = torch.split(everyone, batch.rows)[group.rank]
    elsewhere = occurrences(mine, everyone) > occurrences(mine, mine)
    counts = group.rows(int(elsewhere.sum()))
    rows = [*torch.split(group.gather(v[elsewhere], counts), counts)]
    ids = [*torch.split(group.gather(mine[elsewhere], counts), counts)]
    rows[group.rank], ids[group.rank] = v, mine
    return torch.cat(rows), Exclusions(anchor_ids, torch.cat(ids))


def hold_joint(critic: Critic, x: Tensor, y: Tensor, batch: Batch) -> Strategy:
    """All pairs of a critic that must see both sides of each."""
    group, exclusions = batch.group, batch.exclusions
    n, m = len(x), sum(batch.rows)
    if batch.both and group.size == 1 and batch.block_size is None and n * m <= _JOINT:
        return _both(_matrix(critic, x, y[None]), exclusions.mask(slice(0, n), slice(0, m)))

    def excluded(rows: slice) -> Tensor | None:
        return exclusions.mask(rows, slice(0, m))

    counts = exclusions.counts

    def one_way(critic: Critic, x: Tensor, y: Tensor) -> Strategy:
        others = group.gather(y, batch.rows)[None]
        return hold_blocks(critic, x, others, counts, excluded, batch.block_size)

    forward = one_way(critic, x, y)
    return BothDirections(forward, one_way(_Transposed(critic), y, x)) if batch.both else forward


def hold_blocks(
    critic: Critic,
    x: Tensor,
    y: Tensor,
    counts: Tensor,
    excluded: Callable[[slice], Tensor | None],
    block_size: int | None,
) -> Strategy:
    """Scores of x_i with y (1, m, d) or (n, k, d), held or scored again block by block."""
    n, m = len(x), y.shape[1]
    if block_size is None and n * m <= _JOINT:
        return Dense(_matrix(critic, x, y), excluded(slice(0, n)))
    if x.dtype.itemsize < 4:
        # Every block adds to the gradient of y: that sum of many is not kept in half. Nor are its
        # terms, unless the critic's own weights are: in float16 they would be 0.
        narrow = all(w.dtype.itemsize < 4 for w in getattr(critic, "parameters", tuple)())
        critic = _Narrowed(critic, x.dtype) if narrow else critic
        x, y = x.float(), y.float()
    rows = block_size or max(1, _JOINT // max(1, m))
    return Checkpointed(critic, x, y, rows, counts, excluded)


def _matrix(critic: Critic, x: Tensor, y: Tensor) -> Tensor:
    scores = critic(x[:, None], y)
    if scores.shape != (len(x), y.shape[1]):
        raise ValueError(
            f"the critic must score all pairs of {len(x)} anchors and {y.shape[1]} candidates, got "
            f"shape {tuple(scores.shape)}: it sums over the last axis and broadcasts over the rest"
        )
    return scores


class _Narrowed:
    """The critic on half-precision inputs that arrive widened."""

    symmetric = False

    def __init__(self, critic: Critic, dtype: torch.dtype) -> None:
        self.critic, self.dtype = critic, dtype

    def __call__(self, x: Tensor, y: Tensor) -> Tensor:
        return self.critic(x.to(self.dtype), y.to(self.dtype))


class _Transposed:
    """The critic with its sides exchanged, so that y can be the anchor."""

    symmetric = False

    def __init__(self, critic: Critic) -> None:
        self.critic = critic
        self.parameters = getattr(critic, "parameters", tuple)

    def __call__(self, x: Tensor, y: Tensor) -> Tensor:
        return self.critic(y, x)

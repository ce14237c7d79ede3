r"""Who is positive and who is negative: the one place that says which pairs count.

============================ =================== ======================= =====================
pairing                      positives           negatives of an anchor  candidates K (CPC)
============================ =================== ======================= =====================
``two_view`` (SimCLR's 2N)   the 2N (z_i, its    all other rows but      2N − 1
                             partner)            itself and its partner
``in_batch``                 the N (x_i, y_i)    all y_j, j ≠ i          N
``in_batch_symmetric``       the N, twice        y_j for x_i and x_j     N
                                                 for y_i, j ≠ i
``block`` (CURL) (n, b, d)   the N (x_i, y_i·)   all blocks y_j·, j ≠ i  N
``explicit`` (n, k, d)       the N (x_i, y_i)    its own k               1 + k
``bank`` (m, d)              the N (x_i, y_i)    all m                   1 + m
============================ =================== ======================= =====================

A block is scored by the mean over its b rows, class mates of one another.

**Ids** (one integer per pair) remove every candidate that shares the anchor's id from its
negatives; the own positive always stays a positive. A negative id belongs to nobody else. **Masks**
remove single negatives (padding). What remains is averaged over all remaining pairs together; CPC
uses each anchor's own number of candidates. An anchor left without negatives is not contrasted
(:attr:`~relatum.base.Scores.uncontrasted` counts such anchors); no negatives at all is an error.

**Processes.** With a group, each process passes its own rows, and candidates from the batch are the
rows of all. A bank, and an anchor's own negatives, are what each process passes.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from ..base import Critic, Scores, SeparableCritic
from ..distributed import ALONE, Group
from ..products import matmul
from .class_blocks import over_blocks
from .exclusions import Exclusions, either
from .factors import factors_of_pairs, rowwise, stacked, wide_factors
from .holding import Batch, hold_blocks, hold_joint, hold_separable
from .negatives import PooledNegatives
from .strategies import Dense, Strategy

__all__ = [
    "PAIRINGS",
    "bank",
    "block",
    "explicit",
    "from_matrix",
    "in_batch",
    "in_batch_symmetric",
    "sampled",
    "two_view",
]


def two_view(
    critic: Critic,
    x: Float[Tensor, "n d"],
    y: Float[Tensor, "n d"],
    *,
    ids: Int[Tensor, " n"] | None = None,
    block_size: int | None = None,
    group: Group = ALONE,
) -> Scores:
    """All 2N rows against each other, self entries removed (SimCLR).

    The critic must be symmetric: both views of a pair are anchors of the same kind.
    """
    rows = group.rows(len(x))
    own, everyone = _numbered(ids, rows, group, x.device)
    # Candidates stand as processes hand them over: the first views of one, its second, the next.
    twice = torch.cat([part.repeat(2) for part in torch.split(everyone, rows)])
    exclusions = Exclusions(own.repeat(2), twice)
    batch = Batch(
        "views", exclusions, [2 * n for n in rows], group, block_size, numbered=ids is None
    )
    if isinstance(critic, SeparableCritic):
        us, vs = factors_of_pairs(critic, x, y, views=True)
        positives = rowwise(us, vs)
        strategy = hold_separable(us, vs, positives, batch)
    else:
        positives = _pair_scores(critic, x, y)
        z = stacked(x, y)
        strategy = hold_joint(critic, z, z, batch)
    return _scores(positives.repeat(2), strategy, group)


def in_batch(
    critic: Critic,
    x: Float[Tensor, "n dx"],
    y: Float[Tensor, "n dy"],
    *,
    ids: Int[Tensor, " n"] | None = None,
    block_size: int | None = None,
    group: Group = ALONE,
) -> Scores:
    """Each x_i against all y_j: S[i, j] = f(x_i, y_j)."""
    return _square(critic, x, y, ids, block_size, group, both=False)


def in_batch_symmetric(
    critic: Critic,
    x: Float[Tensor, "n dx"],
    y: Float[Tensor, "n dy"],
    *,
    ids: Int[Tensor, " n"] | None = None,
    block_size: int | None = None,
    group: Group = ALONE,
) -> Scores:
    """Rows and columns of S[i, j] = f(x_i, y_j), averaged: both sides are anchors."""
    return _square(critic, x, y, ids, block_size, group, both=True)


def block(
    critic: Critic,
    x: Float[Tensor, "n dx"],
    y: Float[Tensor, "n b dy"],
    *,
    ids: Int[Tensor, " n"] | None = None,
    block_size: int | None = None,
    group: Group = ALONE,
) -> Scores:
    """Each x_i against all blocks of b class mates, by their mean scores (CURL)."""
    return _square(over_blocks(critic), x, y, ids, block_size, group, both=False)


def explicit(
    critic: Critic,
    x: Float[Tensor, "n dx"],
    y: Float[Tensor, "n *b dy"],
    negatives: Float[Tensor, "n k *b dy"],
    *,
    ids: Int[Tensor, " n"] | None = None,
    negative_ids: Int[Tensor, "n k"] | None = None,
    mask: Bool[Tensor, "n k"] | None = None,
    block_size: int | None = None,
    group: Group = ALONE,
) -> Scores:
    """Each x_i against its own k candidates (triplets, sampled negatives).

    ``mask`` is True where a candidate counts, False for padding.
    """
    same = None
    if negative_ids is not None:
        same = _owned(ids, len(x), x.device, negative_ids)[:, None] == negative_ids
    excluded = either(same, mask)
    n, k = negatives.shape[:2]
    if isinstance(critic, SeparableCritic):
        u, v = wide_factors(critic, x, stacked(y[:, None], negatives, axis=1))
        scores = matmul(v, u.unsqueeze(-1)).squeeze(-1)
        return _scores(scores[:, 0], Dense(scores[:, 1:], excluded), group)
    counts = torch.full((n,), k, device=x.device) if excluded is None else (~excluded).sum(1)
    strategy = hold_blocks(
        critic,
        x,
        negatives,
        counts,
        lambda at: None if excluded is None else excluded[at],
        block_size,
    )
    return _scores(_pair_scores(critic, x, y), strategy, group)


def bank(
    critic: Critic,
    x: Float[Tensor, "n dx"],
    y: Float[Tensor, "n *b dy"],
    candidates: Float[Tensor, "m *b dy"],
    *,
    ids: Int[Tensor, " n"] | None = None,
    candidate_ids: Int[Tensor, " m"] | None = None,
    mask: Bool[Tensor, "n m"] | None = None,
    block_size: int | None = None,
    group: Group = ALONE,
) -> Scores:
    """Each x_i against one shared bank of candidates (a queue of past embeddings)."""
    n, m = len(x), len(candidates)
    exclusions = Exclusions.none(n, m, x.device, mask)
    if candidate_ids is not None:
        exclusions = Exclusions(_owned(ids, n, x.device, candidate_ids), candidate_ids, mask)
    numbered = candidate_ids is None and mask is None
    batch = Batch("elsewhere", exclusions, [m], ALONE, block_size, numbered)
    if isinstance(critic, SeparableCritic):
        u, v, others = _bank_factors(critic, x, y, candidates)
        positives = rowwise([u], [v])
        return _scores(positives, hold_separable([u], [others], positives, batch), group)
    strategy = hold_joint(critic, x, candidates, batch)
    return _scores(_pair_scores(critic, x, y), strategy, group)


def from_matrix(scores: Float[Tensor, "n m"]) -> Scores:
    """Scores given as a matrix: the diagonal is positive, all else is negative.

    Raises:
        ValueError: If the matrix is not square.

    Example:
        >>> from_matrix(torch.tensor([[2.0, 0.0], [1.0, 2.0]])).negatives.moments().mean
        tensor(0.5000)
    """
    if scores.shape[0] != scores.shape[1]:
        raise ValueError(f"scores must be a square matrix, got shape {tuple(scores.shape)}")
    diagonal = torch.eye(len(scores), dtype=torch.bool, device=scores.device)
    dense = Dense(scores, diagonal)
    return Scores(dense.scores.diagonal(), PooledNegatives(dense))


def sampled(positives: Float[Tensor, " n"], negatives: Float[Tensor, "n k"]) -> Scores:
    """Scores given outright: those of n positives, and of k sampled negatives of each anchor.

    Example:
        >>> sampled(torch.ones(2), torch.zeros(2, 3)).negatives.moments().mean
        tensor(0.)
    """
    return Scores(positives, PooledNegatives(Dense(negatives)))


PAIRINGS: dict[str, Callable[..., Scores]] = {
    "two_view": two_view,
    "in_batch": in_batch,
    "in_batch_symmetric": in_batch_symmetric,
    "block": block,
}
"""The pairings whose negatives come from the batch, by name."""


def _square(
    critic: Critic,
    x: Tensor,
    y: Tensor,
    ids: Tensor | None,
    block_size: int | None,
    group: Group,
    both: bool,
) -> Scores:
    rows = group.rows(len(x))
    own, everyone = _numbered(ids, rows, group, x.device)
    batch = Batch("pairs", Exclusions(own, everyone), rows, group, block_size, ids is None, both)
    if isinstance(critic, SeparableCritic):
        us, vs = factors_of_pairs(critic, x, y)
        positives = rowwise(us, vs)
        strategy = hold_separable(us, vs, positives, batch)
    else:
        positives = _pair_scores(critic, x, y)
        strategy = hold_joint(critic, x, y, batch)
    return _scores(positives.repeat(2) if both else positives, strategy, group)


def _scores(positives: Tensor, strategy: Strategy, group: Group) -> Scores:
    return Scores(positives, PooledNegatives(strategy, group), group.sum)


def _bank_factors(
    critic: SeparableCritic, x: Tensor, y: Tensor, candidates: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Factors of anchors, partners and candidates.

    One call for partners and candidates lets a critic that normalises over rows see both; where
    rows do not meet, two calls keep a bank without gradient out of the graph.
    """
    if getattr(critic, "rowwise", False):
        u, v = wide_factors(critic, x, y)
        return u, v, wide_factors(critic, x[:1], candidates)[1]
    u, v = wide_factors(critic, x, stacked(y, candidates))
    return u, v[: len(y)], v[len(y) :]


def _numbered(
    ids: Tensor | None, rows: list[int], group: Group, device: torch.device
) -> tuple[Int[Tensor, " n"], Int[Tensor, " total"]]:
    """The ids of this process's pairs and of all; without given ones, pairs are numbered."""
    everyone = None if ids is None else group.gather(ids, rows)
    owned = _owned(everyone, sum(rows), device)
    return torch.split(owned, rows)[group.rank], owned


def _owned(
    ids: Tensor | None, n: int, device: torch.device, others: Tensor | None = None
) -> Int[Tensor, " n"]:
    """Ids in which those that belong to nobody are made unique, so that own partners stay known."""
    own = torch.arange(n, device=device)
    if ids is None:
        return own
    taken = ids if others is None else torch.cat([ids, others.flatten()])
    # Numbers below every id in use, so that no sum can overflow: ids of 2**63 - 1 are allowed.
    lowest = taken.amin().clamp(max=0)
    if int(lowest) < torch.iinfo(torch.int64).min + n:
        raise ValueError(
            f"ids must be at least -(2**63) + {n}, got {int(lowest)}: any negative number means "
            "'belongs to nobody', so -1 will do"
        )
    return torch.where(ids < 0, lowest - 1 - own, ids)


def _pair_scores(critic: Critic, x: Tensor, y: Tensor) -> Tensor:
    scores = critic(x, y)
    if scores.shape != (len(x),):
        raise ValueError(
            f"the critic must score {len(x)} pairs with shape ({len(x)},), got "
            f"{tuple(scores.shape)}: it sums over the last axis and broadcasts over the others"
        )
    return scores.float() if scores.dtype.itemsize < 4 else scores

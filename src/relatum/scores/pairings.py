r"""Who is positive and who is negative: the one place that says which pairs count.

============================ =================== ======================= =====================
pairing                      positives           negatives of an anchor  candidates K (CPC)
============================ =================== ======================= =====================
``two_view`` (SimCLR's 2N)   the 2N (z_i, its    all other rows but      2N − 1
                             partner)            itself and its partner
``in_batch``                 the N (x_i, y_i)    all y_j, j ≠ i          N
``in_batch_symmetric``       the N, twice        y_j for x_i and x_j     N
                                                 for y_i, j ≠ i
``explicit`` (n, k, d)       the N (x_i, y_i)    its own k               1 + k
``bank`` (m, d)              the N (x_i, y_i)    all m                   1 + m
============================ =================== ======================= =====================

**Ids** (one integer per pair) remove every candidate that shares the anchor's id from its
negatives; the own positive always stays a positive. A negative id belongs to nobody else. **Masks**
remove single negatives (padding). What remains is averaged over all remaining pairs together; CPC
uses each anchor's own number of candidates. An anchor left without negatives is not contrasted
(:attr:`~relatum.base.Scores.uncontrasted` counts such anchors); no negatives at all is an error.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from ..base import Critic, Scores, SeparableCritic
from .exclusions import Exclusions
from .gram import Gram
from .negatives import BothDirections, PooledNegatives
from .strategies import Checkpointed, Dense, Strategy
from .tiled import Tiled

__all__ = [
    "PAIRINGS",
    "bank",
    "explicit",
    "from_matrix",
    "in_batch",
    "in_batch_symmetric",
    "two_view",
]

_DENSE = 1 << 20
"""Scores held at once where no block size is given; beyond, tiles are recomputed."""

_JOINT = 1 << 16
"""The same for joint critics, whose hidden layers are held for every pair as well."""

_TILE = 512
"""Default side of a tile: 1 MiB of scores, which stays in the cache between its passes."""


def two_view(
    critic: Critic,
    x: Float[Tensor, "n d"],
    y: Float[Tensor, "n d"],
    *,
    ids: Int[Tensor, " n"] | None = None,
    block_size: int | None = None,
) -> Scores:
    """All 2N rows against each other, self entries removed (SimCLR).

    The critic must be symmetric: both views of a pair are anchors of the same kind.
    """
    n = len(x)
    z = _stacked(x, y)
    own = _owned(ids, n, x.device).repeat(2)
    exclusions = Exclusions(own, own, shifts=(0, n) if ids is None else None)
    if isinstance(critic, SeparableCritic):
        u, v = critic.factors(z, z)
        positives = _rowwise(u[:n], v[n:])
        strategy = _separable(u, v, exclusions, block_size)
    else:
        positives = _pair_scores(critic, x, y)
        strategy = _joint(critic, z, z, exclusions, block_size)
    return Scores(positives.repeat(2), PooledNegatives(strategy))


def in_batch(
    critic: Critic,
    x: Float[Tensor, "n dx"],
    y: Float[Tensor, "n dy"],
    *,
    ids: Int[Tensor, " n"] | None = None,
    block_size: int | None = None,
) -> Scores:
    """Each x_i against all y_j: S[i, j] = f(x_i, y_j)."""
    return _square(critic, x, y, ids, block_size, both=False)


def in_batch_symmetric(
    critic: Critic,
    x: Float[Tensor, "n dx"],
    y: Float[Tensor, "n dy"],
    *,
    ids: Int[Tensor, " n"] | None = None,
    block_size: int | None = None,
) -> Scores:
    """Rows and columns of S[i, j] = f(x_i, y_j), averaged: both sides are anchors."""
    return _square(critic, x, y, ids, block_size, both=True)


def explicit(
    critic: Critic,
    x: Float[Tensor, "n dx"],
    y: Float[Tensor, "n dy"],
    negatives: Float[Tensor, "n k dy"],
    *,
    ids: Int[Tensor, " n"] | None = None,
    negative_ids: Int[Tensor, "n k"] | None = None,
    mask: Bool[Tensor, "n k"] | None = None,
    block_size: int | None = None,
) -> Scores:
    """Each x_i against its own k candidates (triplets, sampled negatives).

    ``mask`` is True where a candidate counts, False for padding.
    """
    same = None
    if negative_ids is not None:
        same = _owned(ids, len(x), x.device, negative_ids)[:, None] == negative_ids
    excluded = _either(same, mask)
    n, k = negatives.shape[:2]
    if isinstance(critic, SeparableCritic):
        u, v = critic.factors(x, _stacked(y[:, None], negatives, axis=1))
        with torch.autocast(u.device.type, enabled=False):
            scores = torch.einsum("nd,nkd->nk", u, v)
        return Scores(scores[:, 0], PooledNegatives(Dense(scores[:, 1:], excluded)))
    counts = torch.full((n,), k, device=x.device) if excluded is None else (~excluded).sum(1)
    strategy = _blocks(
        critic,
        x,
        negatives,
        counts,
        lambda at: None if excluded is None else excluded[at],
        block_size,
    )
    return Scores(_pair_scores(critic, x, y), PooledNegatives(strategy))


def bank(
    critic: Critic,
    x: Float[Tensor, "n dx"],
    y: Float[Tensor, "n dy"],
    candidates: Float[Tensor, "m dy"],
    *,
    ids: Int[Tensor, " n"] | None = None,
    candidate_ids: Int[Tensor, " m"] | None = None,
    mask: Bool[Tensor, "n m"] | None = None,
    block_size: int | None = None,
) -> Scores:
    """Each x_i against one shared bank of candidates (a queue of past embeddings)."""
    n, m = len(x), len(candidates)
    exclusions = Exclusions.none(n, m, x.device)
    if candidate_ids is not None:
        exclusions = Exclusions(_owned(ids, n, x.device, candidate_ids), candidate_ids)
    if isinstance(critic, SeparableCritic):
        u, v = critic.factors(x, _stacked(y, candidates))
        positives, v = _rowwise(u, v[:n]), v[n:]
        strategy: Strategy
        if mask is None:
            strategy = _separable(u, v, exclusions, block_size)
        else:  # a mask of its own for every pair has no short form: the scores are held
            whole = exclusions.mask(slice(0, n), slice(0, m))
            strategy = Dense(_product(u, v), _either(whole, mask))
        return Scores(positives, PooledNegatives(strategy))
    strategy = _joint(critic, x, candidates, exclusions, block_size, mask=mask)
    return Scores(_pair_scores(critic, x, y), PooledNegatives(strategy))


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


PAIRINGS: dict[str, Callable[..., Scores]] = {
    "two_view": two_view,
    "in_batch": in_batch,
    "in_batch_symmetric": in_batch_symmetric,
}
"""The pairings whose negatives come from the batch, by name."""


def _square(
    critic: Critic,
    x: Tensor,
    y: Tensor,
    ids: Tensor | None,
    block_size: int | None,
    both: bool,
) -> Scores:
    own = _owned(ids, len(x), x.device)
    exclusions = Exclusions(own, own, shifts=(0,) if ids is None else None)
    if isinstance(critic, SeparableCritic):
        u, v = critic.factors(x, y)
        positives = _rowwise(u, v)
        strategy = _separable(u, v, exclusions, block_size, both)
    else:
        positives = _pair_scores(critic, x, y)
        strategy = _joint(critic, x, y, exclusions, block_size, both)
    return Scores(positives.repeat(2) if both else positives, PooledNegatives(strategy))


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


def _either(same: Tensor | None, mask: Tensor | None) -> Tensor | None:
    """Excluded pairs from equal ids and from a mask of what counts."""
    if mask is None:
        return same
    return ~mask if same is None else same | ~mask


def _stacked(x: Tensor, y: Tensor, axis: int = 0) -> Tensor:
    # Autocast would refuse to stack the two half-precision types.
    with torch.autocast(x.device.type, enabled=False):
        return torch.cat([x, y], axis)


def _rowwise(u: Tensor, v: Tensor) -> Tensor:
    with torch.autocast(u.device.type, enabled=False):
        return (u * v).sum(-1)


def _product(u: Tensor, v: Tensor) -> Tensor:
    with torch.autocast(u.device.type, enabled=False):
        return u @ v.T


def _pair_scores(critic: Critic, x: Tensor, y: Tensor) -> Tensor:
    scores = critic(x, y)
    if scores.shape != (len(x),):
        raise ValueError(
            f"the critic must score {len(x)} pairs with shape ({len(x)},), got "
            f"{tuple(scores.shape)}: it sums over the last axis and broadcasts over the others"
        )
    return scores.float() if scores.dtype.itemsize < 4 else scores


def _gram_pays(n: int, m: int, d: int) -> bool:
    """Whether (n + m) d² of Gram matrices beat n m d of scores; measured on the CPU."""
    return m >= 256 and n * m >= (n + m) * d


def _separable(
    u: Tensor, v: Tensor, exclusions: Exclusions, block_size: int | None, both: bool = False
) -> Strategy:
    """Chooses how separable scores are reduced; a question of cost, never of the result."""
    (n, d), m = u.shape, len(v)

    def pair_by_pair() -> Strategy:
        if block_size is not None or n * m > _DENSE:
            return Tiled(u, v, exclusions, block_size or _TILE, both)
        scores, excluded = _product(u, v), exclusions.mask(slice(0, n), slice(0, m))
        return _both(scores, excluded) if both else Dense(scores, excluded)

    if _gram_pays(n, m, d):
        return Gram(u, v, exclusions, both, pair_by_pair)
    return pair_by_pair()


def _both(scores: Tensor, excluded: Tensor | None) -> Strategy:
    across = None if excluded is None else excluded.T
    return BothDirections(Dense(scores, excluded), Dense(scores.T, across))


def _joint(
    critic: Critic,
    x: Tensor,
    y: Tensor,
    exclusions: Exclusions,
    block_size: int | None,
    both: bool = False,
    mask: Tensor | None = None,
) -> Strategy:
    """All pairs of a critic that must see both sides of each."""
    n, m = len(x), len(y)

    def excluded(rows: slice) -> Tensor | None:
        own = None if mask is None else mask[rows]
        return _either(exclusions.mask(rows, slice(0, m)), own)

    if both and block_size is None and n * m <= _JOINT:
        return _both(_matrix(critic, x, y[None]), excluded(slice(0, n)))
    counts = exclusions.counts
    if mask is not None:
        whole = excluded(slice(0, n))
        counts = counts if whole is None else (~whole).sum(1)
    blocks = _blocks(critic, x, y[None], counts, excluded, block_size)
    if not both:
        return blocks

    def across(columns: slice) -> Tensor | None:
        found = exclusions.mask(slice(0, n), columns)
        return None if found is None else found.T

    transposed = _Transposed(critic)
    return BothDirections(blocks, _blocks(transposed, y, x[None], counts, across, block_size))


def _blocks(
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


class _Transposed:
    """The critic with its sides exchanged, so that y can be the anchor."""

    symmetric = False

    def __init__(self, critic: Critic) -> None:
        self.critic = critic

    def __call__(self, x: Tensor, y: Tensor) -> Tensor:
        return self.critic(y, x)

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
"""Scores held at once where no block size is given; beyond, tiles or blocks are recomputed."""

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
        positives = critic(x, y)
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
    exclusions = _partners(ids, len(x), x.device)
    if isinstance(critic, SeparableCritic):
        u, v = critic.factors(x, y)
        return Scores(_rowwise(u, v), PooledNegatives(_separable(u, v, exclusions, block_size)))
    strategy = _joint(critic, x, y, exclusions, block_size)
    return Scores(critic(x, y), PooledNegatives(strategy))


def in_batch_symmetric(
    critic: Critic,
    x: Float[Tensor, "n dx"],
    y: Float[Tensor, "n dy"],
    *,
    ids: Int[Tensor, " n"] | None = None,
    block_size: int | None = None,
) -> Scores:
    """Rows and columns of S[i, j] = f(x_i, y_j), averaged: both sides are anchors."""
    exclusions = _partners(ids, len(x), x.device)
    if isinstance(critic, SeparableCritic):
        u, v = critic.factors(x, y)
        positives = _rowwise(u, v)
        strategy = _separable(u, v, exclusions, block_size, both=True)
    else:
        positives = critic(x, y)
        strategy = _joint(critic, x, y, exclusions, block_size, both=True)
    return Scores(positives.repeat(2), PooledNegatives(strategy))


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
    excluded = None if mask is None else ~mask
    if negative_ids is not None:
        same = _owned(ids, len(x), x.device, negative_ids)[:, None] == negative_ids
        excluded = same if excluded is None else excluded | same
    if isinstance(critic, SeparableCritic):
        u, v = critic.factors(x, _stacked(y[:, None], negatives, axis=1))
        with torch.autocast(u.device.type, enabled=False):
            scores = torch.einsum("nd,nkd->nk", u, v)
        strategy: Strategy = Dense(scores[:, 1:], excluded)
        return Scores(scores[:, 0], PooledNegatives(strategy))
    if block_size is None and negatives.shape[0] * negatives.shape[1] <= _DENSE:
        strategy = Dense(critic(x[:, None], negatives), excluded)
    else:
        rows = block_size or max(1, _DENSE // max(1, negatives.shape[1]))
        strategy = Checkpointed(critic, x, negatives, rows, excluded=excluded)
    return Scores(critic(x, y), PooledNegatives(strategy))


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
    if candidate_ids is None:
        exclusions = Exclusions.none(n, m, x.device)
    else:
        exclusions = Exclusions(_owned(ids, n, x.device, candidate_ids), candidate_ids)
    if isinstance(critic, SeparableCritic):
        u, v = critic.factors(x, _stacked(y, candidates))
        positives, v = _rowwise(u, v[:n]), v[n:]
        if mask is None:
            return Scores(positives, PooledNegatives(_separable(u, v, exclusions, block_size)))
        scores = _product(u, v)
    else:
        positives = critic(x, y)
        if mask is None:
            strategy = _joint(critic, x, candidates, exclusions, block_size)
            return Scores(positives, PooledNegatives(strategy))
        scores = critic(x[:, None], candidates[None])
    same = exclusions.mask(slice(0, n), slice(0, m))
    # A mask of its own for every pair has no short form: the scores are held.
    return Scores(
        positives, PooledNegatives(Dense(scores, ~mask if same is None else same | ~mask))
    )


def from_matrix(scores: Float[Tensor, "n n"]) -> Scores:
    """Scores given as a matrix: the diagonal is positive, all else is negative.

    Example:
        >>> from_matrix(torch.tensor([[2.0, 0.0], [1.0, 2.0]])).negatives.moments().mean
        tensor(0.5000)
    """
    if scores.ndim != 2 or scores.shape[0] != scores.shape[1]:
        raise ValueError(f"scores must be a square matrix, got shape {tuple(scores.shape)}")
    diagonal = torch.eye(len(scores), dtype=torch.bool, device=scores.device)
    return Scores(scores.diagonal(), PooledNegatives(Dense(scores, diagonal)))


PAIRINGS: dict[str, Callable[..., Scores]] = {
    "two_view": two_view,
    "in_batch": in_batch,
    "in_batch_symmetric": in_batch_symmetric,
}
"""The pairings whose negatives come from the batch, by name."""


def _owned(
    ids: Tensor | None, n: int, device: torch.device, others: Tensor | None = None
) -> Int[Tensor, " n"]:
    """Ids in which those that belong to nobody are made unique, so that own partners stay known."""
    if ids is None:
        return torch.arange(n, device=device)
    top = (
        int(ids.max())
        if others is None or others.numel() == 0
        else max(int(ids.max()), int(others.max()))
    )
    return torch.where(ids < 0, max(top, -1) + 1 + torch.arange(n, device=device), ids)


def _partners(ids: Tensor | None, n: int, device: torch.device) -> Exclusions:
    own = _owned(ids, n, device)
    return Exclusions(own, own, shifts=(0,) if ids is None else None)


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

    # Measured: the Gram matrices pay from about twice as many candidates as dimensions.
    if m >= max(2 * d, 256):
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
) -> Strategy:
    n, m = len(x), len(y)
    if block_size is None and n * m <= _DENSE:
        scores = critic(x[:, None], y[None])
        excluded = exclusions.mask(slice(0, n), slice(0, m))
        return _both(scores, excluded) if both else Dense(scores, excluded)
    rows = block_size or max(1, _DENSE // m)
    blocks = Checkpointed(critic, x, y, rows, exclusions)
    if not both:
        return blocks
    return BothDirections(blocks, Checkpointed(_Transposed(critic), y, x, rows, exclusions))


class _Transposed:
    """The critic with its sides exchanged, so that y can be the anchor."""

    symmetric = False

    def __init__(self, critic: Critic) -> None:
        self.critic = critic

    def __call__(self, x: Tensor, y: Tensor) -> Tensor:
        return self.critic(y, x)

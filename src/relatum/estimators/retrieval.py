"""Finding the partner of a row on the other side, and how well that goes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float64, Int64

__all__ = ["Retrieved", "partner_ranks", "recall_at", "retrieve"]

_BLOCK = 1 << 22  # scores held at a time

Scores = Callable[[slice], Float64[np.ndarray, "b m"]]
"""The scores of some queries against all candidates."""

Matrix = Callable[[Any, Any], Float64[np.ndarray, "n m"]]
"""The scores of all rows of x and of y."""


class Retrieved(NamedTuple):
    """The candidates with the highest scores, best first; ties in the order of the candidates.

    Attributes:
        indices: Rows of the candidates, (n, k).
        scores: Their scores.
    """

    indices: Int64[np.ndarray, "n k"]
    scores: Float64[np.ndarray, "n k"]


def retrieve(matrix: Matrix, queries: Any, candidates: Any, k: int, side: str) -> Retrieved:
    """The k best candidates of each query.

    Args:
        matrix: The scores of all rows of x and of y.
        queries: Rows of `side`.
        candidates: Rows of the other.
        k: How many.
        side: "x" or "y".

    Raises:
        ValueError: If k is not between 1 and the number of candidates.
    """
    if not 1 <= k <= len(candidates):
        raise ValueError(f"k must be between 1 and the {len(candidates)} candidates, got {k}")
    found = []
    for rows in _blocks(len(queries), len(candidates)):
        part = queries[rows]
        block = matrix(part, candidates) if side == "x" else matrix(candidates, part).T
        order = np.argsort(-block, axis=1, kind="stable")[:, :k]
        found.append((order, np.take_along_axis(block, order, 1)))
    indices, best = (np.concatenate(part) for part in zip(*found, strict=True))
    return Retrieved(indices.astype(np.int64), best)


def partner_ranks(scores: Scores, pairs: int) -> Float64[np.ndarray, " n"]:
    """The rank of candidate i for query i, 1 the best; equal scores share the mean of their ranks.

    Example:
        >>> matrix = np.array([[3.0, 1.0], [2.0, 2.0]])
        >>> partner_ranks(lambda rows: matrix[rows], 2)
        array([1. , 1.5])
    """
    ranks = []
    for rows in _blocks(pairs, pairs):
        block = scores(rows)
        own = block[np.arange(len(block)), np.arange(pairs)[rows]][:, None]
        ranks.append((block > own).sum(axis=1) + ((block == own).sum(axis=1) + 1) / 2)
    return np.concatenate(ranks)


def recall_at(ranks: Float64[np.ndarray, " n"], k: Sequence[int] = (1, 5, 10)) -> dict[str, float]:
    """The share of queries whose partner is among the best k, and its mean rank.

    Example:
        >>> recall_at(np.array([1.0, 7.0]), (1, 5))
        {'recall@1': 0.5, 'recall@5': 0.5, 'mean_rank': 4.0}
    """
    found = {f"recall@{most}": float((ranks <= most).mean()) for most in k}
    return found | {"mean_rank": float(ranks.mean())}


def _blocks(queries: int, candidates: int) -> Iterator[slice]:
    step = max(1, _BLOCK // candidates)
    for start in range(0, queries, step):
        yield slice(start, min(start + step, queries))

"""Which rows train, which choose, and which are read: every row is read once."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from jaxtyping import Int64

__all__ = ["Split", "cross_fit", "numbered"]

Rows = Int64[np.ndarray, " k"]


class Split(NamedTuple):
    """Row numbers of the three parts of one fit."""

    train: Rows
    valid: Rows
    test: Rows


def cross_fit(
    n: int,
    folds: int = 5,
    *,
    valid_fraction: float = 0.2,
    seed: int = 0,
    groups: Sequence[object] | np.ndarray | None = None,
    block_length: int | None = None,
) -> list[Split]:
    """Splits of n rows such that each row is in the test part of exactly one.

    Without more, rows go to folds at random. Rows of one group stay together in every part. With a
    block length, rows are a time series: test parts are stretches, the validation part is a stretch
    of the rest, and rows closer than the block length to a stretch of another part are left out of
    training (and of validation, next to the test stretch).

    Args:
        n: Number of rows.
        folds: Number of splits, at least 2.
        valid_fraction: Share of the rows outside the test part, in (0, 1), for validation.
        seed: Of the draw.
        groups: A label for each row.
        block_length: Rows over which a time series depends on itself.

    Raises:
        ValueError: If a part would hold fewer than 2 rows, there are fewer groups than folds + 1,
            a test part would be shorter than two blocks, or groups and block length are both given.

    Example:
        >>> split = cross_fit(10, folds=5)[0]
        >>> [len(part) for part in split]
        [6, 2, 2]
    """
    if folds < 2:
        raise ValueError(f"folds must be at least 2, got {folds}")
    if not 0 < valid_fraction < 1:
        raise ValueError(f"valid_fraction must be between 0 and 1, got {valid_fraction}")
    if groups is not None and block_length is not None:
        raise ValueError("groups and block_length exclude each other: give one of them")
    if block_length is not None:
        splits = _stretches(n, folds, valid_fraction, block_length)
    else:
        what = "rows" if groups is None else "groups"
        splits = _clusters(numbered(n, groups), folds, valid_fraction, seed, what)
    for split in splits:
        short = [name for name, part in split._asdict().items() if len(part) < 2]
        if short:
            raise ValueError(
                f"{n} rows in {folds} folds leave fewer than 2 rows for {' and '.join(short)}: "
                "give more rows or groups, another number of folds, or a shorter block_length"
            )
    return splits


def numbered(n: int, groups: Sequence[object] | np.ndarray | None) -> Rows:
    """Labels as 0, 1, ...; each row its own without groups."""
    if groups is None:
        return np.arange(n)
    labels = np.asarray(groups)
    if labels.shape != (n,):
        raise ValueError(f"groups must have one label for each of {n} rows, got {labels.shape}")
    return np.unique(labels, return_inverse=True)[1].astype(np.int64).reshape(-1)


def _clusters(labels: Rows, folds: int, valid_fraction: float, seed: int, what: str) -> list[Split]:
    sizes = np.bincount(labels)
    if len(sizes) < folds + 1:
        raise ValueError(
            f"{len(sizes)} {what} are too few for {folds} folds: give at least {folds + 1}, or "
            "fewer folds"
        )
    order = np.random.default_rng(seed).permutation(len(sizes))
    # Large groups first, each to the fold that has fewest rows: parts of like size.
    fold_of, filled = np.empty(len(sizes), int), np.zeros(folds)
    for group in order[np.argsort(-sizes[order], kind="stable")]:
        fold_of[group] = int(filled.argmin())
        filled[fold_of[group]] += sizes[group]
    splits = []
    for fold in range(folds):
        others = order[fold_of[order] != fold]
        # A group is in where more than half of it is below the share of rows.
        middle = np.cumsum(sizes[others]) - sizes[others] / 2
        share = middle <= valid_fraction * sizes[others].sum()
        share[0], share[-1] = True, False
        chosen = np.isin(labels, others[share])
        test = fold_of[labels] == fold
        splits.append(Split(*(np.flatnonzero(p) for p in (~chosen & ~test, chosen, test))))
    return splits


def _stretches(n: int, folds: int, valid_fraction: float, gap: int) -> list[Split]:
    if gap < 1:
        raise ValueError(f"block_length must be at least 1, got {gap}")
    if n // folds < 2 * gap:
        raise ValueError(
            f"{n} rows in {folds} folds are stretches of {n // folds}, shorter than two blocks of "
            f"block_length={gap}: give more rows, fewer folds or a shorter block_length"
        )
    ends = np.linspace(0, n, folds + 1).round().astype(int)
    splits = []
    for first, last in pairwise(ends.tolist()):
        rows = np.arange(n)
        rest = rows[(rows < first - gap) | (rows >= last + gap)]
        count = round(valid_fraction * len(rest))
        # The stretch at the far end of the rest from the test part's side of the middle.
        valid = rest[:count] if first >= n - last else rest[len(rest) - count :]
        away = (rest < valid.min(initial=n) - gap) | (rest > valid.max(initial=-1) + gap)
        splits.append(Split(rest[away], valid, rows[first:last]))
    return splits

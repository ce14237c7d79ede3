r"""ABX discriminability: is a sound nearer to one of its kind than to one of another?

For categories a and b, with A and X two items of a and B one of b,

.. math:: e(a, b) = P\big(d(X, A) > d(X, B)\big) + \tfrac12 P\big(d(X, A) = d(X, B)\big)

averaged over both directions, all pairs of categories and all speakers: 0 is perfect, 1/2 is
chance. No classifier is fitted. Items are sequences of frames; their distance d is the least mean
angle between frames along a path that aligns them (dynamic time warping).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Float64

from .labels import Label

__all__ = ["ABXResult", "abx", "warped_distances"]

_PAIRS = 4096  # aligned at once


@dataclass(frozen=True)
class ABXResult:
    """What the comparison found.

    Attributes:
        error: Mean over groups and pairs of categories, in [0, 1].
        groups: Groups (speakers) that had two categories.
        comparisons: Pairs of categories behind the mean, both directions counted.
        items: Items used.
    """

    error: float
    groups: int
    comparisons: int
    items: int


def abx(
    items: Sequence[Float[np.ndarray, "t d"]],
    categories: Sequence[Label],
    groups: Sequence[Label],
    *,
    most: int = 10,
    seed: int = 0,
) -> ABXResult:
    """The ABX error within groups.

    Args:
        items: Sequences of frames, none empty.
        categories: Of each item, such as its phone.
        groups: Of each item, such as its speaker: A, B and X are always of one group.
        most: Items of a category in a group at most; more are drawn with `seed`.
        seed: Of that draw.

    Raises:
        ValueError: If lengths differ, an item is empty or not finite, or no group has two
            categories of which one has two items.

    Example:
        >>> near, far = np.array([[1.0, 0.0]]), np.array([[0.0, 1.0]])
        >>> abx([near, near, far, far], "aabb", "ssss").error
        0.0
    """
    if not len(items) == len(categories) == len(groups):
        raise ValueError(
            f"items, categories and groups must be as many, got {len(items)}, {len(categories)} "
            f"and {len(groups)}"
        )
    for i, item in enumerate(items):
        if not len(item) or not np.isfinite(item).all():
            raise ValueError(f"item {i} is empty or not finite")
    generator = np.random.default_rng(seed)
    places: dict[Label, dict[Label, list[int]]] = {}
    for i, (category, group) in enumerate(zip(categories, groups, strict=True)):
        places.setdefault(group, {}).setdefault(category, []).append(i)
    errors, used, counted = [], 0, 0
    for kinds in places.values():
        chosen = [sorted(generator.permutation(rows)[:most].tolist()) for rows in kinds.values()]
        found = _errors([[items[i] for i in rows] for rows in chosen])
        if found:
            errors += found
            used += sum(map(len, chosen))
            counted += 1
    if not errors:
        raise ValueError("no group has two categories of which one has two items")
    return ABXResult(float(np.mean(errors)), counted, len(errors), used)


def warped_distances(
    a: Sequence[Float[np.ndarray, "t d"]], b: Sequence[Float[np.ndarray, "u d"]]
) -> Float64[np.ndarray, " n"]:
    """d(a_i, b_i): mean angle, in units of π, along the best path from both starts to both ends.

    A path steps by one frame in either or both; the mean is over its cells, taken of the path of
    the least sum.

    Example:
        >>> x = np.eye(2)
        >>> warped_distances([x], [np.repeat(x, 3, 0)]), warped_distances([x[:1]], [-x[:1]])
        (array([0.]), array([1.]))
    """
    found = [
        _warped(a[start : start + _PAIRS], b[start : start + _PAIRS])
        for start in range(0, len(a), _PAIRS)
    ]
    return np.concatenate(found) if found else np.zeros(0)


def _warped(
    a: Sequence[Float[np.ndarray, "t d"]], b: Sequence[Float[np.ndarray, "u d"]]
) -> Float64[np.ndarray, " n"]:
    n, d = len(a), a[0].shape[1]
    rows, columns = np.array([len(x) for x in a]), np.array([len(x) for x in b])
    left, right = np.zeros((n, rows.max(), d)), np.zeros((n, columns.max(), d))
    for i in range(n):
        left[i, : rows[i]], right[i, : columns[i]] = _directions(a[i]), _directions(b[i])
    cost = np.arccos(np.clip(left @ right.transpose(0, 2, 1), -1, 1)) / np.pi
    # One row and column of walls, so that each cell has its three predecessors.
    total = np.full((n, cost.shape[1] + 1, cost.shape[2] + 1), np.inf)
    steps = np.zeros(total.shape)
    total[:, 0, 0] = 0
    everyone = np.arange(n)
    for i in range(cost.shape[1]):
        for j in range(cost.shape[2]):
            before = np.stack([total[:, i, j], total[:, i, j + 1], total[:, i + 1, j]])
            best = before.argmin(0)
            came = np.stack([steps[:, i, j], steps[:, i, j + 1], steps[:, i + 1, j]])
            total[:, i + 1, j + 1] = before[best, everyone] + cost[:, i, j]
            steps[:, i + 1, j + 1] = came[best, everyone] + 1
    ends: Float64[np.ndarray, " n"] = (
        total[everyone, rows, columns] / steps[everyone, rows, columns]
    )
    return ends


def _directions(x: Float[np.ndarray, "t d"]) -> Float64[np.ndarray, "t d"]:
    """Frames of length 1; a frame of zeros stays, at a right angle to all."""
    wide = np.asarray(x, np.float64)
    length = np.linalg.norm(wide, axis=1, keepdims=True)
    return wide / np.where(length == 0, 1, length)


def _errors(kinds: list[list[Float[np.ndarray, "t d"]]]) -> list[float]:
    """E(a, b) of all ordered pairs of categories of one group."""
    everything = [item for items in kinds for item in items]
    ends = np.cumsum([0, *map(len, kinds)])
    upper, lower = np.triu_indices(len(everything), 1)
    distance = np.zeros((len(everything), len(everything)))
    pairs = warped_distances([everything[i] for i in upper], [everything[j] for j in lower])
    distance[upper, lower] = distance[lower, upper] = pairs
    found = []
    for a in range(len(kinds)):
        own = slice(ends[a], ends[a + 1])
        k = len(kinds[a])
        for b in range(len(kinds)):
            if a == b or k < 2:
                continue
            near = distance[own, own][:, :, None]  # X, A
            far = distance[own, ends[b] : ends[b + 1]][:, None]  # X, B
            wins = (near > far) + 0.5 * (near == far)
            found.append(float(wins[~np.eye(k, dtype=bool)].mean()))
    return found

"""Distances to nearest neighbours and counts within them, in the largest difference of columns.

A neighbour on the edge of a ball is outside of it, exactly as distances round; a ball of radius 0
holds the copies of its centre. Counts include the row itself.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from jaxtyping import Float64, Int64
from scipy.spatial import cKDTree
from scipy.spatial.distance import cdist

__all__ = ["copies", "inside", "joint_neighbours", "kth_distance", "remarks"]

Points = Float64[np.ndarray, "n d"]
Radii = Float64[np.ndarray, " n"]
Counts = Int64[np.ndarray, " n"]

# Above so many columns a tree visits almost every pair, and slower than a plain table does.
_TREE_UP_TO = 8
_TABLE_ROWS = 256
_LOCAL = 0.5


def kth_distance(points: Points, k: int) -> Radii:
    """The distance of each row to its k-th nearest other row."""
    if points.shape[1] <= _TREE_UP_TO:
        return np.asarray(cKDTree(points).query(points, k + 1, p=np.inf)[0][:, k])
    return np.concatenate([_kth(table, k) for _, table in _tables(points)])


def inside(points: Points, radius: Radii) -> Counts:
    """How many rows are nearer to each row than its radius."""
    if points.shape[1] == 1:
        column = points[:, 0]
        up = _reached(np.sort(column), column, radius)
        down = _reached(np.sort(-column), -column, radius)
        return np.asarray(up + down - len(points))
    edge = np.nextafter(radius, 0)
    if points.shape[1] <= _TREE_UP_TO:
        tree = cKDTree(points)
        return np.asarray(tree.query_ball_point(points, edge, p=np.inf, return_length=True))
    return np.concatenate([_within(table, edge[rows]) for rows, table in _tables(points)])


def joint_neighbours(x: Points, y: Points, k: int) -> tuple[Radii, Counts, Counts]:
    """The k-th distance of each pair of rows, and the counts inside of it on each side."""
    if x.shape[1] + y.shape[1] <= _TREE_UP_TO:
        radius = kth_distance(np.column_stack([x, y]), k)
        return radius, inside(x, radius), inside(y, radius)
    parts = []
    for (_, of_x), (_, of_y) in zip(_tables(x), _tables(y), strict=True):
        radius = _kth(np.maximum(of_x, of_y), k)
        edge = np.nextafter(radius, 0)
        parts.append((radius, _within(of_x, edge), _within(of_y, edge)))
    radius, n_x, n_y = (np.concatenate(part) for part in zip(*parts, strict=True))
    return radius, n_x, n_y


def copies(points: Points) -> Counts:
    """How many other rows are equal to each row."""
    _, which, counts = np.unique(points, axis=0, return_inverse=True, return_counts=True)
    return np.asarray(counts[which.reshape(-1)] - 1)


def remarks(radius: Radii, columns: str, deviation: float = 1.0) -> Iterator[str]:
    """What should be noted: balls too wide to be local, by the widest column, and copies."""
    n, median, copied = len(radius), float(np.median(radius)), int((radius == 0).sum())
    if median > _LOCAL * deviation:
        yield (
            f"too many columns for so few rows: with {columns} columns and {n} rows the nearest "
            f"neighbours are {median / deviation:.2g} deviations away, and the density changes in "
            "between; the value is most likely too low"
        )
    if copied:
        yield f"{copied} of {n} rows have so many exact copies that their nearest distance is 0"


def _tables(points: np.ndarray) -> Iterator[tuple[slice, np.ndarray]]:
    """All distances, some rows at a time."""
    for start in range(0, len(points), _TABLE_ROWS):
        rows = slice(start, start + _TABLE_ROWS)
        yield rows, cdist(points[rows], points, "chebyshev")


def _kth(table: np.ndarray, k: int) -> np.ndarray:
    return np.asarray(np.partition(table, k, axis=1)[:, k])


def _within(table: np.ndarray, edge: np.ndarray) -> np.ndarray:
    return np.asarray((table <= edge[:, None]).sum(axis=1))


def _reached(ordered: np.ndarray, start: np.ndarray, radius: np.ndarray) -> np.ndarray:
    """How many values lie below start + radius: a bisection on the rounded distances themselves.

    ``searchsorted(ordered, start + radius)`` rounds otherwise than the distance that gave the
    radius, and would now and then count the very neighbour that lies on the edge.
    """
    low, high = np.searchsorted(ordered, start, side="right"), np.full(len(start), len(ordered))
    for _ in range(len(ordered).bit_length()):
        middle = (low + high) // 2
        nearer = (middle < high) & (ordered[np.minimum(middle, len(ordered) - 1)] - start < radius)
        low, high = np.where(nearer, middle + 1, low), np.where(nearer, high, middle)
    return low

"""The best bilinear critic of some pairs, from their rows or from their moments alone."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from .bilinear import frames, maximise
from .critic import BilinearForm, Map, value
from .moments import PairMoments

__all__ = ["Problem", "Solution", "solve", "solve_moments"]


class Problem(NamedTuple):
    """What is maximised, over which critics, and how long; see :class:`LinearRPC`.

    Attributes:
        relative: (α, β, γ).
        ridge: In units of the mean variance of a column.
        rank: Directions kept, or None.
        intercept: Whether the sides get a column of ones.
        tolerance: Of conjugate gradients.
        max_iter: Of conjugate gradients.
    """

    relative: tuple[float, float, float]
    ridge: float
    rank: int | None
    intercept: bool
    tolerance: float
    max_iter: int


class Solution(NamedTuple):
    """The best critic.

    Attributes:
        form: It.
        value: J at it on these pairs.
        moments: Of the pairs; None where they were not formed.
        iterations: Of conjugate gradients; 0 for the closed form.
        residual: What they left of the equation.
    """

    form: BilinearForm
    value: float
    moments: PairMoments | None
    iterations: int
    residual: float


def solve(problem: Problem, x: np.ndarray, y: np.ndarray) -> Solution:
    """From the rows.

    Sides with more columns than rows are solved in the space that their rows span: the optimum lies
    there, and n coordinates take n² numbers where d columns would take d².
    """
    maps = [_span(side, problem.intercept) for side in (x, y)]
    if maps[0] is None and maps[1] is None:
        return solve_moments(problem, PairMoments.of(x, y), (x, y))
    whole = [m or _whole(side.shape[1]) for m, side in zip(maps, (x, y), strict=True)]
    small = [(side - c) @ p for side, (p, c) in zip((x, y), whole, strict=True)]
    # The ridge is in units of the variance of a column, of which there are fewer now.
    shares = whole[0][0].shape[1] / len(whole[0][0]), whole[1][0].shape[1] / len(whole[1][0])
    found = solve_moments(problem, PairMoments.of(*small), (small[0], small[1]), shares)
    return found._replace(form=found.form.lifted(*whole), moments=None)


def solve_moments(
    problem: Problem,
    moments: PairMoments,
    data: tuple[Any, Any] | None = None,
    shares: tuple[float, float] = (1.0, 1.0),
) -> Solution:
    """From the moments; with β > 0 from the rows as well.

    Args:
        problem: What is maximised.
        moments: Of the rows.
        data: The rows.
        shares: Of the ridge, by side.
    """
    sides = frames(
        moments, (problem.ridge * shares[0], problem.ridge * shares[1]), problem.intercept
    )
    found = maximise(moments, sides, problem.relative, data, problem.tolerance, problem.max_iter)
    form = BilinearForm.of(found.weights, sides, problem.rank)
    reached = value(form, moments.mapped(*form.maps), problem.relative, data)
    return Solution(form, reached, moments, found.iterations, found.residual)


def _span(side: np.ndarray, centred: bool) -> Map | None:
    """Orthonormal coordinates of the space of the rows; None if they are no fewer than columns."""
    if side.shape[1] <= len(side):
        return None
    centre = side.mean(axis=0, dtype=np.float64) if centred else np.zeros(side.shape[1])
    return np.linalg.qr((side - centre).T).Q, centre


def _whole(columns: int) -> Map:
    return np.eye(columns), np.zeros(columns)

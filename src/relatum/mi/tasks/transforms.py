r"""Invertible maps of one side, which keep the mutual information: I(g(X); h(Y)) = I(X; Y).

They bend the margins (cube, half cube, asinh, uniform) or the space (spiral, Swiss roll), so that
a method that trusts the Gaussian shape, or distances, is put to the test with the truth unmoved.

References:
    Beyond normal: on the evaluation of mutual information estimators (Czyż et al., 2023), theorem
    2.1 (and the half-cube, asinh, normal CDF, spiral, Swiss roll).
    https://arxiv.org/abs/2306.11078
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Final, NamedTuple

import numpy as np
from jaxtyping import Float64
from scipy.special import ndtr, ndtri

from .task import Rows, Task

__all__ = [
    "ASINH",
    "CUBE",
    "HALF_CUBE",
    "IDENTITY",
    "SWISS_ROLL",
    "UNIFORM",
    "Map",
    "spiral",
    "transformed",
]


class Map(NamedTuple):
    """An injective map of rows, (n, d) to (n, d + more), and its inverse."""

    forward: Callable[[Rows], Rows]
    inverse: Callable[[Rows], Rows]
    more: int = 0


def transformed(task: Task, name: str, x: Map, y: Map, family: str) -> Task:
    """The task with both sides mapped; value and log ratio (of the inverses) stay what they are.

    Example:
        >>> from .gaussian import pairwise
        >>> plain = pairwise("plain", dim=1, information=0.5)
        >>> transformed(plain, "cubed", IDENTITY, CUBE, "cubic").mutual_information
        0.5
    """

    def draw(generator: np.random.Generator, n: int) -> tuple[Rows, Rows]:
        first, second = task.draw(generator, n)
        return x.forward(first), y.forward(second)

    def log_ratio(first: Rows, second: Rows) -> Float64[np.ndarray, " n"]:
        return task.log_ratio(x.inverse(first), y.inverse(second))

    return replace(
        task,
        name=name,
        dim_x=task.dim_x + x.more,
        dim_y=task.dim_y + y.more,
        draw=draw,
        log_ratio=log_ratio,
        family=family,
        note=f"invertible maps keep it; {task.note}",
    )


def _spread(rows: Rows) -> Rows:
    return np.asarray(rows * np.sqrt(np.abs(rows)))


def _unspread(rows: Rows) -> Rows:
    return np.asarray(np.sign(rows) * np.abs(rows) ** (2 / 3))


IDENTITY: Final = Map(np.array, np.array)
CUBE: Final = Map(lambda rows: rows**3, np.cbrt)
HALF_CUBE: Final = Map(_spread, _unspread)
"""x √|x|: longer tails."""
ASINH: Final = Map(np.arcsinh, np.sinh)
"""log(x + √(x² + 1)): shorter tails."""
UNIFORM: Final = Map(ndtr, ndtri)
"""The normal distribution function: uniform margins from standard normal ones."""


def spiral(speed: float) -> Map:
    r"""Turns columns 1 and 2, 3 and 4, ... by the angle :math:`v \|x\|^2` of each row.

    A turn keeps the length, so turning back by the same angle undoes it.

    Args:
        speed: v, in radians.
    """

    def turned(rows: Rows, rate: float) -> Rows:
        angle = rate * (rows**2).sum(axis=1, keepdims=True)
        cos, sin = np.cos(angle), np.sin(angle)
        out = rows.copy()
        pairs = rows.shape[1] // 2
        first, second = rows[:, 0 : 2 * pairs : 2], rows[:, 1 : 2 * pairs : 2]
        out[:, 0 : 2 * pairs : 2] = cos * first - sin * second
        out[:, 1 : 2 * pairs : 2] = sin * first + cos * second
        return out

    return Map(lambda rows: turned(rows, speed), lambda rows: turned(rows, -speed))


_ROLL_START = 1.5 * math.pi


def _roll(rows: Rows) -> Rows:
    angle = _ROLL_START * (1 + 2 * ndtr(rows))
    return np.hstack([angle * np.cos(angle), angle * np.sin(angle)]) / (3 * _ROLL_START)


def _unroll(rows: Rows) -> Rows:
    angle = 3 * _ROLL_START * np.hypot(rows[:, :1], rows[:, 1:])
    return np.asarray(ndtri((angle / _ROLL_START - 1) / 2))


SWISS_ROLL: Final = Map(_roll, _unroll, more=1)
r"""One standard normal column to a curve in the plane: :math:`t (\cos t, \sin t) / \frac{9\pi}2`
with :math:`t = \frac{3\pi}2 (1 + 2 \Phi(x))`."""

"""Tasks made of a task, for what must hold between estimates whatever the truth is."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Final

import numpy as np
from jaxtyping import Float64

from .task import Rows, Task

__all__ = ["VARIANTS", "independent", "part", "twice"]


def independent(task: Task) -> Task:
    """The product of the marginals: x of one row beside y of another, and no information.

    Example:
        >>> from .gaussian import dense
        >>> independent(dense("dense", 5)).mutual_information
        0.0
    """

    def draw(generator: np.random.Generator, n: int) -> tuple[Rows, Rows]:
        return task.draw(generator, n)[0], task.draw(generator, n)[1]

    def log_ratio(x: Rows, y: Rows) -> Float64[np.ndarray, " n"]:
        return np.zeros(len(x))

    note = "0: the rows of x and y are drawn apart"
    name = f"independent-{task.name}"
    return replace(
        task, name=name, mutual_information=0.0, draw=draw, log_ratio=log_ratio, note=note
    )


def twice(task: Task) -> Task:
    """Two independent copies side by side, the second of other rows: 2 I.

    Example:
        >>> from .gaussian import pairwise
        >>> twice(pairwise("pairs", dim=3, information=0.5)).mutual_information
        1.0
    """

    def draw(generator: np.random.Generator, n: int) -> tuple[Rows, Rows]:
        # The first copy is what the task itself draws with this generator.
        (x, y), (more_x, more_y) = task.draw(generator, n), task.draw(generator, n)
        return np.hstack([x, more_x]), np.hstack([y, more_y])

    def log_ratio(x: Rows, y: Rows) -> Float64[np.ndarray, " n"]:
        a, b = task.dim_x, task.dim_y
        return task.log_ratio(x[:, :a], y[:, :b]) + task.log_ratio(x[:, a:], y[:, b:])

    return replace(
        task,
        name=f"twice-{task.name}",
        mutual_information=2 * task.mutual_information,
        dim_x=2 * task.dim_x,
        dim_y=2 * task.dim_y,
        draw=draw,
        log_ratio=log_ratio,
        note=f"two independent copies: twice {task.note}",
    )


def part(task: Task) -> Task:
    """The first half of the columns of y (rounded up) beside x: at most I, by data processing.

    Its own value is not known in general: NaN, and so is its log ratio.

    Raises:
        ValueError: If y has one column.
    """
    if task.dim_y < 2:
        raise ValueError(f"{task.name}: y has one column, and no part of it can be taken")
    kept = (task.dim_y + 1) // 2

    def draw(generator: np.random.Generator, n: int) -> tuple[Rows, Rows]:
        x, y = task.draw(generator, n)
        return x, y[:, :kept]

    def log_ratio(x: Rows, y: Rows) -> Float64[np.ndarray, " n"]:
        return np.full(len(x), math.nan)

    return replace(
        task,
        name=f"part-{task.name}",
        mutual_information=math.nan,
        dim_y=kept,
        draw=draw,
        log_ratio=log_ratio,
        note=f"at most the whole: {task.note}",
    )


VARIANTS: Final[dict[str, Callable[[Task], Task]]] = {
    "whole": lambda task: task,
    "independent": independent,
    "part": part,
    "twice": twice,
}
"""What the self-consistency tests compare, by name; "whole" is the task itself."""

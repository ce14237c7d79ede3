"""The tasks by name: low, middle and high information, 1 to 100 columns a side."""

from __future__ import annotations

from typing import Final

import numpy as np
from jaxtyping import Float64

from .additive import additive_uniform
from .discrete import class_and_gaussian, table
from .gaussian import dense, gaussian, paired, pairwise
from .mixtures import mixture
from .student import student
from .task import Task
from .transforms import (
    ASINH,
    CUBE,
    HALF_CUBE,
    IDENTITY,
    SWISS_ROLL,
    UNIFORM,
    spiral,
    transformed,
)

__all__ = ["CORE", "TASKS", "THREE"]

_PAIRS = "−½ Σ log(1 − ρ²) over the pairs"


def _sparse(name: str, correlations: list[float], dim: int) -> Task:
    """A few pairs of columns correlate, the others are noise; one pair is the 1-d Gaussian."""
    matrix = paired(correlations, dim)
    return gaussian(name, matrix, dim, f"{_PAIRS}, ρ = {', '.join(map(str, correlations))}")


def _gaussians() -> list[Task]:
    return [
        pairwise("independent-1x1", 1, 0.0),
        pairwise("independent-10x10", 10, 0.0),
        pairwise("independent-50x50", 50, 0.0),
        _sparse("gaussian-1x1", [0.75], 1),
        _sparse("gaussian-strong-1x1", [0.99], 1),
        dense("gaussian-dense-2x2", 2),
        dense("gaussian-dense-5x5", 5),
        dense("gaussian-dense-50x50", 50),
        _sparse("gaussian-sparse-5x5", [0.8, 0.8], 5),
        _sparse("gaussian-sparse-25x25", [0.8, 0.8], 25),
        pairwise("gaussian-pairwise-20x20-2", 20, 2.0),
        pairwise("gaussian-pairwise-20x20-10", 20, 10.0),
        pairwise("gaussian-pairwise-100x100-5", 100, 5.0),
    ]


def _students() -> list[Task]:
    sparse = paired([0.8, 0.8], 5)
    heavy = student("student-2-5x5", sparse, 5, 2.0)
    return [
        student("student-1-1x1", np.eye(2), 1, 1.0),
        student("student-3-2x2", paired([0.8, 0.4], 2), 2, 3.0),
        heavy,
        transformed(heavy, "asinh-student-2-5x5", ASINH, ASINH, "asinh of Student"),
        transformed(
            student("plain", paired([0.5], 1), 1, 1.0),
            "asinh-student-1-1x1",
            ASINH,
            ASINH,
            "asinh of Student",
        ),
    ]


def _bent() -> list[Task]:
    one, two = _sparse("plain", [0.75], 1), _sparse("plain", [0.75, 0.75], 2)
    three, twenty = _sparse("plain", [0.8, 0.8], 3), pairwise("plain", 20, 4.0)
    turn = spiral(1 / 3)
    return [
        transformed(two, "cubic-2x2", IDENTITY, CUBE, "cubic"),
        transformed(twenty, "cubic-20x20-4", IDENTITY, CUBE, "cubic"),
        transformed(one, "halfcube-1x1", HALF_CUBE, HALF_CUBE, "half cube"),
        transformed(dense("plain", 25), "halfcube-25x25", HALF_CUBE, HALF_CUBE, "half cube"),
        transformed(one, "uniform-1x1", UNIFORM, UNIFORM, "uniform margins"),
        transformed(three, "spiral-3x3", turn, turn, "spiral"),
        transformed(one, "swissroll-2x1", SWISS_ROLL, UNIFORM, "Swiss roll"),
    ]


def _mixtures() -> list[Task]:
    tilted = np.array([[[1.0, 0.7], [0.7, 1.0]], [[1.0, -0.5], [-0.5, 1.0]]])
    plane = np.array([_correlated(0.6, 0.0, 0.3), _correlated(-0.4, 0.3, 0.0)])
    weights, means = np.array([0.4, 0.6]), np.array([[-1.5, -1.0], [1.5, 1.0]])
    far = np.array([[-1.5, 1.0, -1.0], [1.5, -1.0, 1.0]])
    return [
        mixture("bimodal-1x1", weights, means, tilted, 1),
        mixture("bimodal-2x1", weights, far, plane, 2, step=0.3),
    ]


def _correlated(xy: float, xz: float, yz: float) -> Float64[np.ndarray, "3 3"]:
    return np.array([[1.0, xy, xz], [xy, 1.0, yz], [xz, yz, 1.0]])


def _counted() -> list[Task]:
    diagonal = np.full((4, 4), 0.4 / 12) + np.eye(4) * (0.15 - 0.4 / 12)
    ten = np.arange(10)
    band = np.exp(-0.5 * (ten[:, None] - ten) ** 2 - 0.1 * ten)
    half = np.array([0.5, 0.5])
    return [
        table("table-2x2", np.array([[0.4, 0.1], [0.1, 0.4]])),
        table("table-4x4", diagonal),
        table("table-10x10", band / band.sum()),
        table("table-independent-3x5", np.outer([0.2, 0.3, 0.5], [0.1, 0.15, 0.2, 0.25, 0.3])),
        class_and_gaussian("bit-gaussian-1", half, np.array([-1.0, 1.0])),
        class_and_gaussian("bit-gaussian-2", half, np.array([-2.0, 2.0])),
        class_and_gaussian(
            "classes-gaussian-4", np.array([0.1, 0.2, 0.3, 0.4]), np.array([-3.0, 0.0, 1.0, 4.0])
        ),
    ]


_NOISY = [
    additive_uniform("additive-uniform-0.1", 0.1),
    additive_uniform("additive-uniform-0.75", 0.75),
]

TASKS: Final[dict[str, Task]] = {
    task.name: task
    for task in [*_gaussians(), *_students(), *_bent(), *_NOISY, *_mixtures(), *_counted()]
}
"""Every task, by its name."""

CORE: Final = (
    "independent-1x1",
    "gaussian-1x1",
    "gaussian-dense-5x5",
    "cubic-2x2",
    "asinh-student-1-1x1",
    "additive-uniform-0.75",
    "swissroll-2x1",
    "bimodal-1x1",
)
"""The eight tasks that interval coverage is measured on."""

THREE: Final = ("gaussian-1x1", "gaussian-dense-5x5", "bimodal-1x1")
"""Three of them, for methods that take long."""

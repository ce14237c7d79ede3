"""Which estimator meets which task how often."""

from __future__ import annotations

import zlib
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np

from ...mi.methods import METHODS, READERS
from ...mi.tasks import CORE, TASKS, THREE, VARIANTS, Task

__all__ = ["PRESETS", "Cell", "plan"]

# Three tasks of the kind that a counting method is made for.
_OWN_THREE: Final = {
    "histogram": ("independent-1x1", "gaussian-1x1", "bimodal-1x1"),
    "discrete": ("table-2x2", "table-4x4", "table-independent-3x5"),
    "mixed": ("bit-gaussian-1", "bit-gaussian-2", "classes-gaussian-4"),
}
_INDEPENDENT: Final = ("independent-1x1", "independent-10x10", "independent-50x50")
_SIZES: Final = (200, 1000, 5000)
_SEVERAL_COLUMNS: Final = ("gaussian-dense-5x5", "cubic-2x2")

PRESETS: Final[dict[str, tuple[str, ...]]] = {
    "quick": ("ksg", "gaussian", "rpc"),
    "coverage": tuple(METHODS),
    "full": tuple(METHODS),
    "self-consistency": ("ksg", "gaussian", "rpc"),
    "independence": tuple(name for name in METHODS if name != "mixed"),
}
"""The presets, and the methods that each runs."""


class Cell(NamedTuple):
    """One estimate: a method on one sample of a task, or of what a task is made into."""

    method: str
    task: str
    rows: int
    seed: int
    variant: str = "whole"

    @property
    def law(self) -> Task:
        """The task that is sampled."""
        return VARIANTS[self.variant](TASKS[self.task])

    @property
    def sample_seed(self) -> int:
        """Of the rows: the same for every method and variant, unlike from task to task."""
        words = [self.seed, zlib.crc32(self.task.encode())]
        return int(np.random.SeedSequence(words).generate_state(1)[0])

    def file(self, folder: Path) -> Path:
        """Where the finished cell is kept."""
        task = self.task if self.variant == "whole" else f"{self.variant}-{self.task}"
        return folder / "cells" / self.method / task / f"rows{self.rows}-seed{self.seed}.json"


def plan(
    preset: str,
    methods: tuple[str, ...] | None,
    tasks: tuple[str, ...] | None,
    rows: int | None,
    repeats: int | None,
    seed: int,
) -> list[Cell]:
    """The cells of a preset; what is given takes the place of what the preset says.

    Raises:
        ValueError: If a task cannot take part in the self-consistency tests.
    """
    consistency = preset == "self-consistency"
    variants = tuple(VARIANTS) if consistency else ("whole",)
    if consistency:
        flat = [name for name in tasks or () if TASKS[name].dim_y < 2]
        if flat:
            raise ValueError(
                f"self-consistency takes a part of y, and y has one column in {', '.join(flat)}"
            )
    many = _SIZES if preset == "independence" else (1000,)
    return [
        Cell(method, task, size, seed + repeat, variant)
        for method in methods or PRESETS[preset]
        for task in tasks or _tasks(preset, method)
        for size in ((rows,) if rows else many)
        for variant in variants
        for repeat in range(repeats or _repeats(preset, method))
    ]


def _tasks(preset: str, method: str) -> tuple[str, ...]:
    if preset == "full":
        return tuple(name for name, task in TASKS.items() if _suits(method, task))
    if preset == "self-consistency":
        return _SEVERAL_COLUMNS
    if preset == "independence":
        return ("table-independent-3x5",) if method == "discrete" else _INDEPENDENT
    if preset == "coverage" and method in ("ksg", "gaussian", "rpc"):
        return CORE
    return _OWN_THREE.get(method, THREE)


def _suits(method: str, task: Task) -> bool:
    """Whether the method is made for this kind of columns."""
    counted = sum(task.discrete)
    if method == "histogram":
        return counted == 0 and task.dim_x == task.dim_y == 1
    return counted == {"discrete": 2, "mixed": 1}.get(method, 0)


def _repeats(preset: str, method: str) -> int:
    if preset in ("coverage", "full"):
        return 100 if method in READERS else 40 if method == "rpc" else 10
    return 10 if method in READERS else 2

"""Accuracy over alpha, beta and gamma as heat maps, a row a head."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from ..experiments.figure import panels, save_svg
from .grid import GRID, TITLES, Point

__all__ = ["parameters_svg"]


def parameters_svg(accuracies: Mapping[Point, float | None], path: Path) -> None:
    """Three maps a head, one for each alpha: beta downwards, gamma to the right."""
    figure, axes = panels(len(GRID), rows=len(TITLES), width=2.4, height=2.0)
    known = [value for value in accuracies.values() if value is not None]
    low, high = (min(known), max(known)) if known else (0.0, 1.0)
    for row, (head, title) in zip(axes, TITLES.items(), strict=True):
        for axis, alpha in zip(row, GRID, strict=True):
            image = np.array([
                [accuracies.get(Point(head, alpha, beta, gamma)) for gamma in GRID]
                for beta in GRID
            ], dtype=float)  # fmt: skip
            axis.imshow(image, vmin=low, vmax=high, cmap="cividis", aspect="auto")
            for i, j in np.argwhere(np.isfinite(image)):
                bright = image[i, j] > (low + high) / 2
                axis.text(j, i, f"{100 * image[i, j]:.1f}", ha="center", va="center", fontsize=8,
                          color="black" if bright else "white")  # fmt: skip
            labels = [f"{value:g}" for value in GRID]
            axis.set_xticks(range(3), labels)
            axis.set_yticks(range(3), labels)
            axis.set_title(f"alpha = {alpha:g}", fontsize=8)
        row[0].set_ylabel(f"{title.split(',')[0]}\nbeta", fontsize=8)
    for axis in axes[-1]:
        axis.set_xlabel("gamma")
    save_svg(figure, path)

"""The picture of ``transfer.py``: learning curves, predicted and measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np

mpl.use("svg")
mpl.rcParams["svg.hashsalt"] = "relatum"
from matplotlib import pyplot as plt  # noqa: E402 - after the choice of how to draw

__all__ = ["draw"]

SHOWN = ("rpc", "cpc", "hinge", "chi2", "untrained")
KINDS = {"top1_error": "top-1 error", "pairwise_error": "pairwise error"}


def draw(groups: Mapping[str, Sequence[Mapping[str, Any]]], path: Path) -> None:
    """A row a kind of error, a column a data set; lines are predicted, points measured."""
    figure, axes = plt.subplots(
        len(KINDS), len(groups), figsize=(4.6 * len(groups), 6.4), squeeze=False, sharex=True
    )
    for column, (source, cells) in enumerate(groups.items()):
        for row, (name, words) in enumerate(KINDS.items()):
            panel(axes[row, column], cells, name)
            axes[row, column].set_ylabel(words)
        axes[0, column].set_title(source)
        axes[-1, column].set_xlabel("labels a class")
    axes[0, 0].legend(frameon=False, fontsize=8, title="lines predicted, points measured")
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})


def panel(axes: Any, cells: Sequence[Mapping[str, Any]], name: str) -> None:
    """One data set and one kind of error."""
    for number, objective in enumerate(SHOWN):
        cell = next((cell for cell in cells if cell["objective"] == objective), None)
        if cell is None:
            continue
        colour = f"C{number}"
        predicted = cell["certificate"]["few_shot"]
        line = [(shot["shots"], shot[name]) for shot in predicted]
        axes.plot(*np.transpose(line), color=colour, label=objective)
        measured = cell["few_shot"]
        axes.errorbar(
            [entry["shots"] for entry in measured],
            [entry[name] for entry in measured],
            yerr=[entry["deviations"][name] for entry in measured],
            fmt="o",
            markersize=3,
            linewidth=0.8,
            color=colour,
        )
    shots = [entry["shots"] for entry in cells[0]["few_shot"]]
    axes.set_xscale("log")
    axes.set_xticks(shots, [str(b) for b in shots])
    axes.minorticks_off()
    axes.spines[["top", "right"]].set_visible(False)

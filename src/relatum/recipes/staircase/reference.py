"""The curves that the paper's authors published, where a reader has them."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
from jaxtyping import Float

__all__ = ["AUTHORS", "CREDIT", "Reference", "read_reference"]

# Our name of a reading -> theirs.
AUTHORS: Final = {
    "cpc": "infonce",
    "nwj": "nwj",
    "js": "js",
    "smile": "smile",
    "rpc-published": "gen-chi",
}
CREDIT: Final = (
    "Authors' numbers: curves published with the code of Tsai et al., Self-supervised "
    "Representation Learning with Relative Predictive Coding (2021), MIT licence, "
    "copyright of the authors."
)


@dataclass(frozen=True)
class Reference:
    """The authors' curves and levels, by task and our name of the reading.

    Attributes:
        curves: Estimates along the schedule, each a mean of 20 steps.
        levels: By level (mean, sd, median) of the last 2,000 of its 4,000 steps; one run each.
    """

    curves: dict[tuple[str, str], Float[np.ndarray, " points"]]
    levels: dict[tuple[str, str, float], tuple[float, float, float]]


def read_reference(folder: Path) -> Reference:
    """Reads ``rpc_gaussian_curves.npz`` and ``rpc_gaussian_reference.csv``.

    Raises:
        FileNotFoundError: If one of them is not there.
    """
    theirs = {value: name for name, value in AUTHORS.items()}
    with np.load(folder / "rpc_gaussian_curves.npz", allow_pickle=False) as file:
        curves = {
            (task, theirs[key]): file[name]
            for name in file.files
            for task, _, key in [name.partition("/")]
            if key in theirs
        }
    levels = {}
    with (folder / "rpc_gaussian_reference.csv").open(encoding="utf-8", newline="") as text:
        for row in csv.DictReader(text):
            if row["source_key"] in theirs:
                place = (row["task"], theirs[row["source_key"]], float(row["true_mi"]))
                levels[place] = (float(row["mean"]), float(row["std"]), float(row["median"]))
    return Reference(curves, levels)

"""``relatum reproduce relative-parameters``: the paper's figure 2, for three heads."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import Any, Final

from rich.console import Console

from ..settings import choice
from .experiments.cells import Cell, Record
from .experiments.data import found_data
from .experiments.running import reproduce
from .experiments.settings import Experiment
from .vision.alpha import train_alpha_cell
from .vision.grid import DECIDING, GRID, HEADS
from .vision.parameters_page import write_parameters_page
from .vision.presets import PRESETS, cell, settings_of

__all__ = ["RelativeParameters", "main"]

_CHANGED: Final[dict[str, dict[str, Any]]] = {"cpu": {"epochs": 6.0}, "gpu": {}, "paper": {}}


@dataclass(frozen=True)
class RelativeParameters(Experiment):
    """The paper's figure 2: accuracy over alpha, beta and gamma of {0, 0.001, 1}, for three heads.

    The paper says that alpha above 0 is better. With the released projection head alpha has next to
    no effect on the gradient; so the grid is run for that head, for one with an offset, and for
    cosines. One seed a cell, and all seeds where beta = 0.001 and gamma = 1.

    Example: relatum reproduce relative-parameters --preset cpu --page relative_parameters.md
    """

    preset: str = choice("cpu", PRESETS)
    """cpu: CIFAR-10, 5,000 images at 16 x 16 pixels, 6 epochs, about 95 core-minutes
    beside other work. gpu: ResNet-18, 100 epochs. paper: 1,000 epochs, days."""


def main(settings: RelativeParameters, console: Console | None = None) -> dict[str, Record]:
    """Runs what is missing, prints the tables, writes the page with its figure.

    Returns:
        The records of the finished cells, by name.

    Raises:
        SettingsError: If the data are not there.
        RunError: If the folder holds cells with other settings.
        ValueError: If no cell has such a name.
    """
    work = partial(train_alpha_cell, data=found_data(settings.data, "cifar10"))
    every = cells_of(settings)
    return reproduce(settings, "relative-parameters", every, work, write_parameters_page, console)


def cells_of(settings: RelativeParameters) -> list[Cell]:
    """The whole grid with seed 0, then the deciding cells with the other seeds."""
    found = []
    for seed in range(settings.seeds):
        for head, (beta, gamma, alpha) in product(HEADS, product(GRID, repeat=3)):
            if seed and (beta, gamma) != DECIDING:
                continue
            training = settings_of(
                settings.preset, objective="rpc", alpha=alpha, beta=beta, gamma=gamma, seed=seed,
                **HEADS[head], **_CHANGED[settings.preset], **settings.given(),
            )  # fmt: skip
            name = f"{head}_{alpha:g}_{beta:g}_{gamma:g}_{seed}"
            found.append(cell(name, training, head=head))
    return found

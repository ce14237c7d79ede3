"""``relatum reproduce stability``: which objectives run away, and why."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from rich.console import Console

from ..settings import choice
from .experiments.cells import Cell, Record
from .experiments.data import found_data
from .experiments.running import reproduce
from .experiments.settings import Experiment
from .vision.cells import train_cell
from .vision.presets import PRESETS, cell, settings_of
from .vision.stability_page import write_stability_page

__all__ = ["Stability", "main"]

OBJECTIVES: Final = ("dv", "nwj", "js", "cpc", "rpc")

# The optimiser is the paper's, at its rate 1.0 · batch / 256: what a step does to the scale of the
# scores decides whether an unbounded objective runs away.
_CHANGED: Final[dict[str, dict[str, Any]]] = {
    "cpu": {"batch_size": 512, "optimizer": "lars", "learning_rate": 2.0, "epochs": 10.0},
    "gpu": {},
    "paper": {},
}
_EVERY: Final = 5  # steps between checkpoints: the last before a loss that is not finite counts
_RAW: Final = 8.0
_GENTLER: Final = (32.0, 128.0)  # for the two objectives that run away
_COSINE: Final = 0.5


@dataclass(frozen=True)
class Stability(Experiment):
    """The paper's figure 1a: train by each objective until a loss is not finite.

    Every objective sees the same raw scores (dot / 8), then the same cosines / 0.5; DV and NWJ also
    dot / 32 and dot / 128. A loss that is not finite ends a training, and the last checkpoint
    before is measured.

    Example: relatum reproduce stability --preset cpu --page stability.md
    """

    preset: str = choice("cpu", PRESETS)
    """cpu: 5,000 images of CIFAR-10 at 16 x 16 pixels, a small network, about 13 core-minutes
    beside other work. gpu: ResNet-18, 100 epochs. paper: 1,000 epochs, days."""

    seeds: int = 1
    """Seeds 0, 1, ..."""


def main(settings: Stability, console: Console | None = None) -> dict[str, Record]:
    """Runs what is missing, prints the table, writes the page with its figure.

    Returns:
        The records of the finished cells, by name.

    Raises:
        SettingsError: If the data are not there.
        RunError: If the folder holds cells with other settings.
        ValueError: If no cell has such a name.
    """
    work = partial(train_cell, data=found_data(settings.data, "cifar10"))
    every = cells_of(settings)
    return reproduce(settings, "stability", every, work, write_stability_page, console)


def cells_of(settings: Stability) -> list[Cell]:
    """All cells, seeds outermost."""
    critics: list[tuple[str, float, tuple[str, ...]]] = [
        ("dot", _RAW, OBJECTIVES),
        ("cosine", _COSINE, OBJECTIVES),
        *(("dot", temperature, ("dv", "nwj")) for temperature in _GENTLER),
    ]
    return [
        cell(
            f"{objective}-{critic}-{temperature:g}-{seed}",
            settings_of(
                settings.preset, objective=objective, critic=critic, temperature=temperature,
                seed=seed, checkpoint_every=_EVERY, **_CHANGED[settings.preset], **settings.given(),
            ),
        )
        for seed in range(settings.seeds)
        for critic, temperature, objectives in critics
        for objective in objectives
    ]  # fmt: skip

"""``relatum reproduce vision-table``: the paper's table 2 on CIFAR and STL-10."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Final

from rich.console import Console

from ..settings import choice
from .experiments.cells import Cell, Record
from .experiments.data import found_data
from .experiments.running import reproduce
from .experiments.settings import Experiment
from .finetuning import FineTunePlan, fine_tune
from .images.build import untrained_encoder
from .images.resolve import resolve
from .vision.cells import images_of, measure, train_cell
from .vision.presets import PAPER_CRITIC, PRESETS, cell, settings_of, training_of
from .vision.table_page import write_vision_page

__all__ = ["VisionTable", "main"]

OBJECTIVES: Final = ("dv", "nwj", "js", "cpc", "rpc", "wpc")

# Data set and network of each row; None is the preset's own network.
ROWS: Final[dict[str, tuple[tuple[str, str | None], ...]]] = {
    "cpu": (("cifar10", None), ("cifar100", None)),
    "gpu": (("cifar10", None), ("cifar100", None)),
    "paper": (
        ("cifar10", None), ("cifar10", "resnet50"), ("cifar100", None), ("cifar100", "resnet50"),
        ("stl10", "resnet50"),
    ),
}  # fmt: skip

# Where the paper's settings of a data set differ.
_OF_DATA: Final[dict[str, dict[str, Any]]] = {
    "stl10": {"image_size": 96, "augmentation": "simclr"},
}
_BETA: Final = {"stl10": 0.001}


@dataclass(frozen=True)
class VisionTable(Experiment):
    """The paper's table 2: every objective and the supervised network, by linear evaluation.

    ImageNet's rows need many GPUs: see the presets configs/vision/imagenet-*.

    Example: relatum reproduce vision-table --preset cpu --page vision_table.md
    """

    preset: str = choice("cpu", PRESETS)
    """cpu: CIFAR-10 and CIFAR-100, 5,000 images at 16 x 16 pixels, 8 epochs, about 53
    core-minutes on a quiet machine, 70 beside other work. gpu: ResNet-18, 100 epochs. paper:
    ResNet-18 and ResNet-50, STL-10 too, 1,000 epochs, days."""

    data: Path | None = None
    """Folder that holds cifar10/, cifar100/ and stl10/. Default: $RELATUM_DATA, else data or
    ../shared/data."""


def main(settings: VisionTable, console: Console | None = None) -> dict[str, Record]:
    """Runs what is missing, prints the table, writes the page.

    Returns:
        The records of the finished cells, by name.

    Raises:
        SettingsError: If data are not there.
        RunError: If the folder holds cells with other settings.
        ValueError: If no cell has such a name.
    """
    every = cells_of(settings)
    needed = {str(each.plan["set"]) for each in settings.chosen(every)}
    places = {
        name: found_data(None if settings.data is None else settings.data / name, name)
        for name in sorted(needed)
    }
    work = partial(run_cell, places=places)
    return reproduce(settings, "vision-table", every, work, write_vision_page, console)


def cells_of(settings: VisionTable) -> list[Cell]:
    """All cells, seeds outermost; WPC, which takes longest, last of a seed."""
    found = []
    for seed in range(settings.seeds):
        for kind in ("supervised", "untrained", *OBJECTIVES):
            for data, encoder in ROWS[settings.preset]:
                objective = kind if kind in OBJECTIVES else "cpc"
                own = {**_OF_DATA.get(data, {}), **PAPER_CRITIC[objective], **settings.given()}
                if encoder is not None:
                    own["encoder"] = encoder
                if objective == "rpc" and data in _BETA:
                    own["beta"] = _BETA[data]
                training = settings_of(settings.preset, objective=objective, seed=seed, **own)
                name = f"{data}_{training.encoder}_{kind}_{seed}"
                made = cell(name, training, set=data, kind=kind)
                found.append(replace(made, steps=0) if kind == "untrained" else made)
    return found


def run_cell(cell: Cell, folder: Path, console: Console, *, places: Mapping[str, Path]) -> Record:
    """Trains by the objective of the cell, or with labels, or not at all; and measures."""
    data, kind = places[str(cell.plan["set"])], cell.plan["kind"]
    if kind in OBJECTIVES:
        return train_cell(cell, folder, console, data=data)
    settings = training_of(cell.plan, data, cell.run(folder))
    splits = images_of(settings)
    encoder = untrained_encoder(resolve(settings, len(splits.train)))
    images = {"images": splits.train.checksum}
    if kind == "untrained":
        return {"measures": measure(encoder, splits, settings.seed), **images}
    epochs = settings.epochs
    if settings.steps is not None:
        labelled = int((splits.train.labels >= 0).sum())
        epochs = settings.steps * min(settings.batch_size, labelled) / labelled
    plan = FineTunePlan(
        tune="all", epochs=epochs, batch_size=settings.batch_size, seed=settings.seed,
        autocast=settings.autocast,
    )  # fmt: skip
    tuned = fine_tune(
        encoder, None, splits.train, splits.test, plan, device=settings.device,
        folder=cell.run(folder), console=console,
    )  # fmt: skip
    return {
        "measures": {"linear": tuned.accuracy},
        "training": {"seconds": tuned.seconds, "nonfinite_step": None, "plan": asdict(plan)},
        **images,
    }

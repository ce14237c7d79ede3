"""``relatum reproduce batch-size``: does CPC need large batches more than RPC does?"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from rich.console import Console

from ..settings import choice
from .experiments.batch_page import write_batch_page
from .experiments.cells import Cell, Record
from .experiments.data import found_data
from .experiments.page import length
from .experiments.running import reproduce
from .experiments.settings import Experiment
from .vision.cells import train_cell
from .vision.presets import PAPER_CRITIC, PRESETS, cell, settings_of

__all__ = ["BatchSize", "main"]

SIZES: Final = (32, 64, 128, 256, 512)
OBJECTIVES: Final = ("rpc", "cpc")

_PROTOCOL: Final = """\
CIFAR-10, {images} training images at {side} x {side} pixels, `{encoder}`, {length}: the \
same number at every size, LARS at the paper's linear rule 1.0 · batch / 256 with {warmup:g} \
epochs of warm-up, so that a small batch takes more and smaller steps. RPC: (1, \
0.005, 1) on raw dot products / 128. CPC: cosines / 0.5. Both as published. Linear classifier on \
frozen features, its penalty chosen on training images, judged on all test images."""


@dataclass(frozen=True)
class BatchSize(Experiment):
    """The paper's figure 1b: accuracy of RPC and CPC against the size of the batch, on CIFAR-10.

    Example: relatum reproduce batch-size --preset cpu --page batch_size.md
    """

    preset: str = choice("cpu", PRESETS)
    """cpu: 5,000 images at 16 x 16 pixels, 8 epochs, about 25 core-minutes on a quiet machine
    and an hour beside other work. gpu: ResNet-18, 100 epochs. paper: 1,000 epochs, days."""


def main(settings: BatchSize, console: Console | None = None) -> dict[str, Record]:
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
    write = partial(
        write_batch_page,
        title="Batch size: the paper's figure 1b, measured again",
        protocol=_protocol(every[0].plan),
        measure="linear",
    )
    return reproduce(settings, "batch-size", every, work, write, console)


def _protocol(plan: Mapping[str, Any]) -> str:
    return _PROTOCOL.format(
        images=f"{plan['limit'] or 50_000:,}",
        side=plan["image_size"] or 32,
        encoder=plan["encoder"],
        length=length(plan),
        warmup=plan["epochs"] / 10 if plan["warmup_epochs"] is None else plan["warmup_epochs"],
    )


def cells_of(settings: BatchSize) -> list[Cell]:
    """All cells, seeds outermost, large batches first: they are the quickest."""
    return [
        cell(
            f"{objective}-{size}-{seed}",
            settings_of(
                settings.preset,
                objective=objective,
                seed=seed,
                **PAPER_CRITIC[objective],
                optimizer="lars",
                batch_size=size,
                learning_rate=size / 256,
                **settings.given(),
            ),
        )
        for seed in range(settings.seeds)
        for size in sorted(SIZES, reverse=True)
        for objective in OBJECTIVES
    ]

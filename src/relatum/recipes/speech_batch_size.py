"""``relatum reproduce speech-batch-size``: the paper's figure 1c."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

from rich.console import Console

from ..settings import choice
from .experiments.batch_page import write_batch_page
from .experiments.cells import Cell, Record
from .experiments.data import found_data
from .experiments.running import reproduce
from .experiments.settings import Experiment
from .images.resolve import found_device
from .speech.experiment import (
    PRESETS,
    SpeechFolder,
    length_text,
    network_text,
    settings_of,
    training_of,
)
from .speech_table import DEFAULTS, FREE, run_cell

__all__ = ["SpeechBatchSize", "main"]

SIZES: Final = (4, 8, 16)
OBJECTIVES: Final = ("rpc", "cpc")
_OF_PRESET: Final = {"cpu": 8, "gpu": 32, "paper": 8}  # windows that the preset's rate is for

_PROTOCOL: Final = """\
Windows of {seconds:g} s in a batch{whose}; {negatives} negatives for each anchor at every size, \
drawn from the batch. So the size changes how many windows negatives come from{epochs}. Each \
training has {length}, the rate follows the square root of the size (Adam). One network \
({network}), trained on the training utterances without labels; phones of every frame by a linear \
classifier on frozen contexts, judged on held-out utterances."""


@dataclass(frozen=True)
class SpeechBatchSize(Experiment):
    """The paper's figure 1c: phone accuracy of RPC and CPC against the size of the batch.

    Example: relatum reproduce speech-batch-size --preset cpu --page speech_batch_size.md
    """

    preset: str = choice("cpu", PRESETS)
    """cpu: 64 channels, linear predictors, half an hour of sound, about 34 core-minutes. gpu:
    the published network with linear predictors. paper: the published sizes."""

    seeds: int = 2
    """Seeds 0, 1, ..."""

    epochs: float | None = None
    """Epochs of each training. Default: 5 for cpu, else the preset's."""

    data: Path | None = None
    """Folder with LibriSpeech/, converted_aligned_phones.txt, train_split.txt and test_split.txt.
    Default: speech in the folder $RELATUM_DATA, else in data or ../shared/data."""


def main(settings: SpeechBatchSize, console: Console | None = None) -> dict[str, Record]:
    """Runs what is missing, prints the table, writes the page with its figure.

    Returns:
        The records of the finished cells, by name.

    Raises:
        SettingsError: If the data are not there.
        RunError: If the folder holds cells with other settings.
        ValueError: If no cell has such a name.
    """
    folder = SpeechFolder(found_data(settings.data, "speech"))
    every = cells_of(settings, folder)
    work = partial(run_cell, data=folder.path, only=("phones",))
    write = partial(
        write_batch_page,
        title="Speech: accuracy against the size of the batch",
        protocol=protocol_text(every[0].plan),
        measure="phones",
    )
    return reproduce(settings, "speech-batch-size", every, work, write, console)


def protocol_text(plan: Mapping[str, Any]) -> str:
    """What was trained and measured, of the plan of any cell."""
    settings = training_of(plan)
    return _PROTOCOL.format(
        seconds=settings.window / settings.rate,
        whose=", all of one speaker" if settings.batches == "same_speaker" else "",
        negatives=settings.negatives,
        epochs="" if settings.steps else ", and how many updates an epoch has",
        length=length_text(settings),
        network=network_text(settings),
    )


def cells_of(settings: SpeechBatchSize, folder: SpeechFolder) -> list[Cell]:
    """All cells, seeds outermost."""
    preset: dict[str, Any] = {"device": found_device("auto"), **PRESETS[settings.preset]}
    epochs = settings.epochs or (5.0 if settings.preset == "cpu" else None)
    given = {**settings.given(), **({} if epochs is None else {"epochs": epochs})}
    usual, base = _OF_PRESET[settings.preset], preset.get("learning_rate", 2e-4)
    found = []
    for seed in range(settings.seeds):
        for size in SIZES if settings.preset == "cpu" else [usual * size // 8 for size in SIZES]:
            for objective in OBJECTIVES:
                changed = {"batch_size": size, "learning_rate": base * (size / usual) ** 0.5}
                resolved = settings_of({**preset, **changed}, objective, seed, folder, **given)
                plan = {key: v for key, v in asdict(resolved).items() if key not in FREE}
                steps = resolved.steps or round(1260 / size * resolved.epochs)
                name = f"{objective}-{size}-{seed}"
                found.append(Cell(name, {"kind": objective, **plan}, steps, DEFAULTS))
    return found

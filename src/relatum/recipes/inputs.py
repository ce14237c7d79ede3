"""What evaluations read of a run: its images, wherever they lie, their labels, its encoder."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

import numpy as np
from jaxtyping import Float

from ..data import DataError, ImageTable, Splits
from ..models import Encoder
from ..runs import Run, RunError
from ..settings import SettingsError
from .images import TrainImages, load_images, read_settings, trained_encoder
from .images.build import check_same_images

__all__ = [
    "WHOLE_SQUARE",
    "check_alone",
    "check_moved",
    "check_run_images",
    "images_key",
    "labelled_rows",
    "load_run_images",
    "open_runs",
    "remark_on",
    "run_encoder",
]


WHOLE_SQUARE: Final = (
    "the whole centre square, resized (SimCLR above 32 pixels: its central 87.5 %)"
)
"""What an encoder is shown of an image in evaluation, as cards say it."""


def check_alone(command: str) -> None:
    """Raises SettingsError if a launcher started this command several times: all would write alike.

    Args:
        command: Such as "probe".
    """
    count = os.environ.get("WORLD_SIZE", "1")
    if count != "1":
        raise SettingsError(
            f"relatum {command} is for one process, but WORLD_SIZE is {count}: start it without "
            "torchrun (and without that variable, where a cluster sets it)"
        )


def open_runs(paths: Sequence[Path], data: str | None, what: str) -> list[Run]:
    """The runs, with all that can be said against them said before work begins.

    Args:
        paths: Their folders.
        data: Where their images lie now; None: where their settings say.
        what: What is to be done with them: "probed".

    Raises:
        RunError: If a run is missing, given twice, has no checkpoint, or cannot tell its images.
    """
    runs = [Run.open(path) for path in paths]
    places = [run.path.resolve() for run in runs]
    for i, run in enumerate(runs):
        if places[i] in places[:i]:
            raise RunError(f"{run.path} is given twice; name each run once")
        read_settings(run)
        check_moved(run, data)
        if not run.checkpoint.is_file():
            raise RunError(
                f"{run.path} cannot be {what}: there is no checkpoint {run.checkpoint}; start "
                "training, or leave this run out"
            )
    return runs


def remark_on(run: Run) -> str:
    """What keeps the checkpoint of a run from being that of a whole training; "" if nothing."""
    if not (run.path / "results" / "training.json").exists():
        return "has not finished training"
    step = run.read_json("results/training.json")["payload"].get("nonfinite_step")
    return "" if step is None else f"diverged at step {step}"


def run_encoder(run: Run, device: str) -> Encoder:
    """The trained encoder of a run, on a device.

    Raises:
        RunError: If the checkpoint is missing, damaged, or not that of the run's settings.
    """
    try:
        encoder = trained_encoder(run)
    except (RuntimeError, KeyError, TypeError) as error:
        raise RunError(
            f"{run.checkpoint} does not fit {run.path / 'config.yaml'}: one of the two was changed "
            f"or comes from another run ({' '.join(str(error).split())})"
        ) from error
    return encoder.to(device)


def images_key(trained: TrainImages, place: str | None) -> tuple[object, ...]:
    """Equal for runs that see the same images, which need loading but once."""
    return (
        *(place or trained.data, trained.image_size, trained.limit, trained.test_fraction),
        *(trained.split_seed, trained.on_bad_file, trained.stream, trained.label_column),
    )


def load_run_images(trained: TrainImages, data: str | None) -> Splits:
    """The images that the settings of a run name.

    Args:
        trained: The run's settings.
        data: Where those images lie now; None: where the settings say.

    Raises:
        DataError: If they cannot be read; where the place is gone, the message says what to do.
    """
    try:
        return load_images(trained if data is None else replace(trained, data=data))
    except DataError as error:
        places = {trained.data, trained.data.rpartition(":")[2]}  # a path, or NAME:DIR
        embedded = trained.data in ("mnist5k", "digits")
        found = any(Path(place).exists() or "{" in place for place in places)  # or a pattern
        if data is not None or embedded or found:
            raise
        raise DataError(
            f"the images of the run, {trained.data!r}, are not there (seen from {Path.cwd()}); "
            "say where they lie now with --data"
        ) from error


def check_run_images(run: Run, splits: Splits, data: str | None) -> None:
    """Raises RunError if these are not the images that the run was trained on."""
    try:
        check_same_images(run, splits)
    except RunError as error:
        if data is None:
            raise
        raise RunError(
            f"--data {data} does not hold the images of {run.path}, or they have changed ({error})"
        ) from error


def check_moved(run: Run, data: str | None) -> None:
    """Raises RunError if another place is given but the run does not say what images it saw."""
    if data is not None and not (run.path / "data.json").is_file():
        raise RunError(
            f"{run.path} has no data.json, so whether --data {data} holds its images cannot be "
            "checked; leave out --data and run the command where the run was started"
        )


def labelled_rows(
    features: Float[np.ndarray, "n d"], images: ImageTable
) -> tuple[Float[np.ndarray, "m d"], list[str]]:
    """The labelled rows, and their labels by the names that a reader of the result knows."""
    labelled = (images.labels >= 0).numpy()
    names = [images.classes[label] for label in images.labels[labelled].tolist()]
    return features[labelled], names

"""What ``probe`` and ``embed`` read of a run: its images, wherever they lie, and its encoder."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from ..data import DataError, Splits
from ..models import Encoder
from ..runs import Run, RunError
from .images import TrainImages, load_images, trained_encoder
from .images.build import check_same_images

__all__ = ["check_moved", "check_run_images", "load_run_images", "run_encoder"]


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
        if data is not None or embedded or any(Path(place).exists() for place in places):
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

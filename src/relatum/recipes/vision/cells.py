"""The work of a vision cell: train, freeze, measure."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

import numpy as np
from rich.console import Console
from torch import nn

from ...data import Splits
from ...probes import (
    NonFiniteFeatures,
    class_means_probe,
    extract_features,
    knn_probe,
    linear_probe,
)
from ...runs import Run, RunError
from ..experiments.cells import Cell, Record
from ..images import TrainImages
from ..images.build import load_images, trained_encoder
from ..train_images import main as train_images
from .presets import training_of

__all__ = ["images_of", "measure", "train_cell"]

_CURVE: Final = 200  # points of a curve that a record keeps at most


@lru_cache(maxsize=2)
def _loaded(settings: TrainImages) -> Splits:
    return load_images(settings)


def images_of(settings: TrainImages) -> Splits:
    """The images of these settings, decoded once in a process."""
    return _loaded(
        TrainImages(data=settings.data, image_size=settings.image_size, limit=settings.limit)
    )


def train_cell(cell: Cell, folder: Path, console: Console, *, data: Path) -> Record:
    """Trains and measures; a loss that is not finite ends the training and is part of the record.

    The encoder that is measured is then that of the last checkpoint before.
    """
    settings = training_of(cell.plan, data, cell.run(folder))
    splits = images_of(settings)
    begun = (settings.out / "config.yaml").exists()
    run = train_images(replace(settings, resume=begun), console, splits=splits)
    if run is None:
        raise RunError(f"{settings.out} was not trained")
    return {
        "measures": measure(trained_encoder(run), splits, settings.seed),
        "training": _training(run),
        "images": splits.train.checksum,
    }


def measure(encoder: nn.Module, splits: Splits, seed: int) -> dict[str, float | None]:
    """Test accuracy of three classifiers on frozen features; None where a feature is not finite.

    ``linear``: multinomial logistic regression on all training labels, its penalty chosen on
    training rows. ``knn``: 20 neighbours. ``class means``: the nearest mean.
    """
    names: tuple[str, ...] = ("linear", "knn", "class means")
    try:
        train, test = (
            extract_features(encoder, table.pixels) for table in (splits.train, splits.test)
        )
    except NonFiniteFeatures:  # exploded weights
        return dict.fromkeys(names)
    y, truth = (np.asarray(table.labels) for table in (splits.train, splits.test))
    return {
        "linear": linear_probe(train, y, test, truth, seed=seed, tolerance=1e-3).accuracy,
        "knn": knn_probe(train, y, test, truth).accuracy,
        "class means": class_means_probe(train, y, test, truth).accuracy,
    }


def _training(run: Run) -> dict[str, Any]:
    outcome = run.read_json("results/training.json")["payload"]
    lines = run.metrics()
    every = max(1, -(-len(lines) // _CURVE))
    kept = ("seconds", "steps", "nonfinite_step", "final_loss", "parameters")
    return {
        **{name: outcome[name] for name in kept},
        "nonfinite_terms": outcome["nonfinite_terms"],
        "curve": [[line["step"], line["loss"], line.get("grad_norm")] for line in lines[::every]],
    }

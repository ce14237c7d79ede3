"""``relatum embed``: features of images by a trained encoder, with their ids, to files."""

from __future__ import annotations

import io
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as untyped_arrow
import pyarrow.parquet as untyped_parquet
import torch
from jaxtyping import Float
from rich.console import Console
from rich.progress import track

from ..data import ImageTable, Splits
from ..probes import extract_features
from ..runs import Run, atomic_write
from ..settings import POSITIONAL, check_choices, check_seed, choice
from .images import TrainImages, load_images, read_settings
from .images.resolve import found_device
from .inputs import check_alone, check_run_images, load_run_images, run_encoder

__all__ = ["Embed", "main"]

ENDINGS = (".npz", ".parquet")

# pyarrow has no types.
arrow: Any = untyped_arrow
parquet: Any = untyped_parquet


@dataclass(frozen=True)
class Embed:
    """Write the representation of every image, with ids and labels, to npz and parquet."""

    run: Path = field(metadata=POSITIONAL)
    """Run directory of `relatum train`."""

    data: str | None = None
    """Which images, as in `relatum train images --data`. Default: those of the run."""

    part: str = choice("all", ("all", "train", "test"))
    """Which part of them."""

    test_fraction: float | None = None
    """Share of test images for data without a test split of its own. Default: as in the run."""

    split_seed: int | None = None
    """Seed of that split. Default: as in the run."""

    limit: int | None = None
    """Use only so many training images of --data. Default: all, or as in the run."""

    on_bad_file: str | None = choice(None, ("error", "skip"))
    """What to do with a file that cannot be decoded: stop with its name, or skip and count it."""

    out: Path | None = None
    """Path of the two files; .npz and .parquet are added where missing. Default:
    RUN/embeddings/PART."""

    workers: int | None = None
    """Processes that decode images; 0 decodes in this one. Does not change the result. For a folder
    of many images take as many as there are processors. Default: as in the run."""

    stream: bool = False
    """Of other images than the run's: decode them as they are encoded, instead of holding all in
    memory. Each is looked at once before, so that a damaged one is found at once. The run's own
    images are read as in training."""

    batch_size: int = 512
    """Images that go through the encoder at a time: bounds the memory."""

    device: str = "cpu"
    """Where features are computed: auto (cuda where there is one, else cpu), cpu, cuda or cuda:1.
    """

    def __post_init__(self) -> None:
        check_choices(self)
        if self.test_fraction is not None and not 0 < self.test_fraction < 1:
            raise ValueError(f"test_fraction must be between 0 and 1, got {self.test_fraction}")
        if self.limit is not None and self.limit < 1:
            raise ValueError(f"limit must be at least 1, got {self.limit}")
        if self.batch_size < 1:
            raise ValueError(f"batch_size must be at least 1, got {self.batch_size}")
        if self.workers is not None and self.workers < 0:
            raise ValueError(f"workers must be 0 or more, got {self.workers}")
        if self.split_seed is not None:
            check_seed("split_seed", self.split_seed)


def main(settings: Embed, console: Console | None = None) -> list[Path]:
    """Writes ``OUT.npz`` and ``OUT.parquet``; row i of every array belongs to one image.

    The npz holds ``features`` (n, d) float32, ``ids`` and ``split`` (text), ``labels`` (-1 =
    unlabelled), ``rows`` (numbers in the source) and ``classes``; no pickling is needed to read it.

    Raises:
        RunError: If the run is missing or has no checkpoint, or if its images have changed and no
            option says which others to take.
        ValueError: If the data are not readable.
    """
    check_alone("embed")
    console = console or Console()
    settings = replace(settings, device=found_device(settings.device))
    if settings.out is not None and settings.out.is_dir():
        raise ValueError(
            f"--out {settings.out} is a folder; name the files in it, such as "
            f"{settings.out / 'features'}"
        )
    run = Run.open(settings.run)
    trained = read_settings(run)
    if settings.workers is not None:
        trained = replace(trained, workers=settings.workers)
    began = time.perf_counter()
    with console.status("reading the images"):
        splits = _images(run, trained, settings)
    read = time.perf_counter()
    parts = {"train": splits.train, "test": splits.test}
    if settings.part != "all":
        parts = {settings.part: parts[settings.part]}
    encoder = run_encoder(run, settings.device)
    features = _features(encoder, list(parts.values()), trained.workers, settings, console)
    paces = (
        f"{sum(map(len, splits[:2])) / (read - began):.0f} images a second read, "
        f"{len(features) / (time.perf_counter() - read):.0f} encoded"
    )
    columns = _columns(parts)
    base = settings.out or run.path / "embeddings" / settings.part
    if base.suffix in ENDINGS:
        base = base.with_suffix("")
    files = [base.with_name(base.name + ending) for ending in ENDINGS]
    classes = next(iter(parts.values())).classes
    atomic_write(files[0], _npz(features, columns, classes))
    atomic_write(files[1], _parquet(features, columns, classes))
    for file in files:
        said = f"{len(features)} images, {features.shape[1]} features: {file}"
        console.out(said, highlight=False)
    console.out(paces, highlight=False)
    return files


def _images(run: Run, trained: TrainImages, settings: Embed) -> Splits:
    """The images of the run, checked to be those; or others, where an option says so."""
    names = ("data", "test_fraction", "split_seed", "limit", "on_bad_file")
    given = {name: value for name in names if (value := getattr(settings, name)) is not None}
    if not given:
        if settings.stream and not trained.stream:
            raise ValueError(
                f"{run.path} had its images in memory, so they are read into memory here, too; "
                "--stream is for other images, named by --data"
            )
        splits = load_run_images(trained, None)
        check_run_images(run, splits, None)
        return splits
    if settings.data not in (None, trained.data):
        given.setdefault("limit", None)
    return load_images(replace(trained, **given, stream=settings.stream or trained.stream))


def _features(
    encoder: torch.nn.Module,
    tables: Sequence[ImageTable],
    workers: int,
    settings: Embed,
    console: Console,
) -> Float[np.ndarray, "n d"]:
    size = settings.batch_size
    batches = track(
        chain.from_iterable(table.batches(size, workers) for table in tables if len(table)),
        "features",
        total=sum(-(-len(table) // size) for table in tables),
        console=console,
        disable=not console.is_terminal,
    )
    return extract_features(encoder, batches, device=settings.device).astype(np.float32)


def _columns(parts: dict[str, ImageTable]) -> dict[str, np.ndarray]:
    return {
        "ids": np.array([name for table in parts.values() for name in table.ids], dtype=np.str_),
        "split": np.array([part for part, table in parts.items() for _ in range(len(table))]),
        "labels": torch.cat([table.labels for table in parts.values()]).numpy(),
        "rows": torch.cat([table.rows for table in parts.values()]).numpy(),
    }


def _npz(
    features: Float[np.ndarray, "n d"], columns: dict[str, np.ndarray], classes: tuple[str, ...]
) -> bytes:
    buffer = io.BytesIO()
    names = np.array(classes, dtype=np.str_)
    arrays: dict[str, Any] = {"features": features, **columns, "classes": names}
    # Not compressed: measured on 4,000 images of conv-medium, that saves a fifth of the floats and
    # takes 0.28 s, 40 % of the time that the network takes to make them.
    np.savez(buffer, **arrays)
    return buffer.getvalue()


def _parquet(
    features: Float[np.ndarray, "n d"], columns: dict[str, np.ndarray], classes: tuple[str, ...]
) -> bytes:
    """One row an image; class names instead of numbers, which mean nothing outside the npz."""
    names = [classes[label] if label >= 0 else None for label in columns["labels"].tolist()]
    flat = arrow.array(features.ravel())
    table = arrow.table(
        {
            "id": columns["ids"].tolist(),
            "split": columns["split"].tolist(),
            "label": columns["labels"],
            "class": names,
            "row": columns["rows"],
            "features": arrow.FixedSizeListArray.from_arrays(flat, features.shape[1]),
        }
    )
    buffer = io.BytesIO()
    parquet.write_table(table, buffer)
    return buffer.getvalue()

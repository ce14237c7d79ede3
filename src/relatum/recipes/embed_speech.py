"""``relatum embed speech``: a feature for each 10 ms of recordings, to npz and parquet."""

from __future__ import annotations

import io
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as untyped_arrow
import pyarrow.parquet as untyped_parquet
from rich.console import Console

from ..runs import Run, atomic_write
from ..settings import POSITIONAL
from .images.resolve import found_device
from .speech import load_corpus, read_settings, trained_network
from .speech.features import context_features
from .speech.labels import fitted, labels_of

__all__ = ["EmbedSpeech", "main"]

# pyarrow has no types.
arrow: Any = untyped_arrow
parquet: Any = untyped_parquet


@dataclass(frozen=True)
class EmbedSpeech:
    """Write the representation of every 10 ms of recordings to npz and parquet.

    In the npz: features (frames, width) float32; utterance, the number of each frame's recording in
    ids; seconds, where it begins; ids; speakers; and labels (-1: none) where they are given. In the
    parquet a row is a frame, with the same by name.

    Example: relatum embed speech runs/rpc --data LibriSpeech/test-clean
    """

    run: Path = field(metadata=POSITIONAL)
    """Run directory of `relatum train speech`."""

    data: str | None = None
    """Which recordings, as in `relatum train speech --data`. Default: those of the run."""

    labels: Path | None = None
    """Phone labels to write beside the features, one utterance a line."""

    out: Path | None = None
    """Path of the two files without ending. Default: RUN/embeddings/frames."""

    device: str = "cpu"
    """Where features are computed: auto (cuda where there is one, else cpu), cpu, cuda or cuda:1.
    """


def main(settings: EmbedSpeech, console: Console | None = None) -> tuple[Path, Path]:
    """Writes the features and returns the two paths.

    Raises:
        RunError: If there is no such run, or it has no checkpoint.
        ValueError: If recordings are missing or bad, or labels do not fit them.
    """
    console = console or Console()
    settings = replace(settings, device=found_device(settings.device))
    run = Run.open(settings.run)
    own = read_settings(run)
    network = trained_network(run).to(settings.device)
    extract = context_features(network, own.window, settings.device, normalize=own.normalize)
    corpus = load_corpus(own, data=settings.data)
    hop = network.sizes.hop
    labels = None if settings.labels is None else labels_of(settings.labels, corpus, hop)
    parts = [extract(corpus, number) for number in range(len(corpus))]
    counts = [len(part) for part in parts]
    if not any(counts):
        raise ValueError(f"none of {len(corpus)} recordings is long enough for a frame")
    columns: dict[str, Any] = {
        "features": np.concatenate(parts),
        "utterance": np.repeat(np.arange(len(corpus)), counts),
        "seconds": np.concatenate([np.arange(count) for count in counts]) * hop / own.rate,
        "ids": np.array([u.id for u in corpus.utterances]),
        "speakers": np.array([u.speaker for u in corpus.utterances]),
    }
    if labels is not None:
        columns["labels"] = np.concatenate(list(map(fitted, labels.each, counts)))
    stem = settings.out or run.path / "embeddings" / "frames"
    paths = stem.with_name(f"{stem.name}.npz"), stem.with_name(f"{stem.name}.parquet")
    buffer = io.BytesIO()
    np.savez(buffer, **columns)
    atomic_write(paths[0], buffer.getvalue())
    atomic_write(paths[1], _table(columns))
    short = f" ({counts.count(0)} too short for a frame)" if 0 in counts else ""
    told = f"{sum(counts)} frames of {len(corpus)} recordings{short}: {paths[0]}"
    console.out(told, highlight=False)
    if labels is not None:
        some = sum(each is not None for each in labels.each)
        known = int((columns["labels"] >= 0).sum())
        console.out(
            f"labels for {some} of {len(corpus)} recordings, {known} of {sum(counts)} frames",
            highlight=False,
        )
        for note in labels.notes:
            console.out(f"note: {note}", highlight=False)
    return paths


def _table(columns: dict[str, Any]) -> bytes:
    features, utterance = columns["features"], columns["utterance"]
    lists = arrow.FixedSizeListArray.from_arrays(arrow.array(features.ravel()), features.shape[1])
    named = {
        "id": columns["ids"][utterance],
        "speaker": columns["speakers"][utterance],
        "seconds": columns["seconds"],
    }
    if "labels" in columns:
        named["label"] = columns["labels"]
    buffer = io.BytesIO()
    parquet.write_table(arrow.table({**named, "features": lists}), buffer)
    return buffer.getvalue()

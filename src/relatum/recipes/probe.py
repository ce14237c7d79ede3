"""``relatum probe``: how good is a frozen representation, beside pixels and an untrained network.

Every number stands beside two others measured in the same way: those of the raw pixels, and those
of the same network before training. Labels enter here for the first time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from rich.console import Console

from ..data import ImageTable, Splits
from ..probes import (
    ProbeResult,
    ProtocolCard,
    class_means_probe,
    extract_features,
    knn_probe,
    linear_probe,
    parameter_hash,
    pixel_features,
)
from ..runs import Run
from ..settings import POSITIONAL, check_choices, choice
from .images import TrainImages, read_settings, untrained_encoder
from .images.resolve import found_device
from .inputs import (
    check_run_images,
    images_key,
    labelled_rows,
    load_run_images,
    open_runs,
    remark_on,
    run_encoder,
)
from .pictures import embedding_map, neighbours
from .tables import probe_table

__all__ = ["Probe", "main"]


@dataclass(frozen=True)
class Probe:
    """Measure frozen representations: linear probe, nearest neighbours, class means."""

    runs: list[Path] = field(metadata=POSITIONAL)
    """Run directories of `relatum train`; runs of one call share the baselines."""

    data: str | None = None
    """Where the images of the runs lie now, if they have moved; that they are the same images is
    checked. Default: where they lay in training."""

    labels_per_class: int = 10
    """Labels a class for the probe with few labels; 0 leaves it out."""

    draws: int = 5
    """How often those labels are drawn anew (seeds 1000 x run seed + 0, 1, ...)."""

    neighbours: int = 20
    """Neighbours that vote in the nearest-neighbour probe."""

    map: str = choice("tsne", ("tsne", "pca"))
    """How test images are laid out in two dimensions for the report."""

    map_points: int = 500
    """At most so many test images are laid out."""

    queries: int = 6
    """Test images whose nearest neighbours the report shows."""

    device: str = "cpu"
    """Where features are computed: auto (cuda where there is one, else cpu), cpu, cuda or cuda:1.
    """

    def __post_init__(self) -> None:
        check_choices(self)
        if not self.runs:
            raise ValueError("name at least one run directory")
        for name, least in [("labels_per_class", 0), ("draws", 1), ("neighbours", 1)]:
            if getattr(self, name) < least:
                raise ValueError(f"{name} must be at least {least}, got {getattr(self, name)}")
        for name, least in [("map_points", 3), ("queries", 0)]:
            if getattr(self, name) < least:
                raise ValueError(f"{name} must be at least {least}, got {getattr(self, name)}")


class Features(NamedTuple):
    """Features of training and test images, and the fingerprint of what made them."""

    train: Float[np.ndarray, "n d"]
    test: Float[np.ndarray, "m d"]
    fingerprint: str | None


@dataclass
class Shared:
    """What runs of one call have in common, made once: images, baselines' features and rows."""

    splits: dict[tuple[object, ...], Splits] = field(default_factory=dict)
    features: dict[tuple[object, ...], Features] = field(default_factory=dict)
    results: dict[tuple[object, ...], ProbeResult] = field(default_factory=dict)


def main(settings: Probe, console: Console | None = None) -> list[dict[str, Any]]:
    """Probes every run, stores ``results/probe.json`` and pictures in it, prints one table.

    Returns:
        The payload of each run's result.

    Raises:
        RunError: If a run is missing, given twice, has no checkpoint, or saw other images.
        ValueError: If the data do not fit the probe, or an encoder changed while it was probed.
    """
    console = console or Console()
    settings = replace(settings, device=found_device(settings.device))
    runs = open_runs(settings.runs, settings.data, "probed")
    shared = Shared()
    payloads = [_probe_run(run, settings, shared, console) for run in runs]
    console.print(probe_table(settings.runs))
    return payloads


def _probe_run(run: Run, settings: Probe, shared: Shared, console: Console) -> dict[str, Any]:
    trained = read_settings(run)
    encoder = run_encoder(run, settings.device)
    if remark := remark_on(run):
        console.out(f"note: {run.path} {remark}; its last checkpoint is measured", highlight=False)
    data = images_key(trained, settings.data)
    if data not in shared.splits:
        shared.splits[data] = load_run_images(trained, settings.data)
    splits = shared.splits[data]
    check_run_images(run, splits, settings.data)
    _check_labels(splits.train, settings)
    before = parameter_hash(encoder)
    mine = _extract(encoder, splits, settings.device)
    after = parameter_hash(encoder)
    features = {
        "encoder": ((str(run.path),), mine),
        "untrained": _untrained(trained, data, splits, settings, shared),
        "pixels": _pixels(data, splits, shared),
    }
    rows, cards = [], {}
    for name, (key, found) in features.items():
        results = _results(key, found, splits, trained.seed, settings, shared)
        rows += [{"features": name, **result.to_dict()} for result in results]
        prints = (before, after) if name == "encoder" else (found.fingerprint, found.fingerprint)
        cards[name] = _card(name, found, prints, splits, results, trained).to_dict()
    payload = {"card": cards["encoder"], "cards": cards, "rows": rows}
    run.write_result("probe", "probe", payload)
    layout = embedding_map(mine.test, splits.test, settings.map, settings.map_points)
    run.write_result("map", "embedding-map", layout)
    shown = neighbours(mine.test, splits.test, settings.queries)
    run.write_result("neighbours", "neighbours", shown)
    console.out(f"probed {run.path}", highlight=False)
    return payload


def _check_labels(train: ImageTable, settings: Probe) -> None:
    """Raises ValueError, before anything is computed, if there are too few labels to probe with."""
    counts = Counter(train.classes[label] for label in train.labels.tolist() if label >= 0)
    few = min(counts, key=lambda name: counts[name], default=None)
    if few is not None and counts[few] < settings.labels_per_class:
        raise ValueError(
            f"class {few!r} has {counts[few]} labelled training images, too few for "
            f"--labels-per-class {settings.labels_per_class}; ask for at most {counts[few]}, or "
            "for 0 to leave out the probe with few labels"
        )
    if 0 < counts.total() < settings.neighbours:
        raise ValueError(
            f"there are {counts.total()} labelled training images, too few for --neighbours "
            f"{settings.neighbours}; ask for at most {counts.total()}"
        )


def _unlabelled(splits: Splits) -> tuple[str, ...]:
    counts = {"train": (splits.train.labels < 0).sum(), "test": (splits.test.labels < 0).sum()}
    return tuple(
        f"{count} {part} rows are unlabelled (-1) and were left out"
        for part, count in counts.items()
        if count
    )


def _extract(encoder: torch.nn.Module, splits: Splits, device: str) -> Features:
    train, test = (extract_features(encoder, part.pixels, device=device) for part in splits[:2])
    return Features(train, test, parameter_hash(encoder))


def _untrained(
    trained: TrainImages,
    data: tuple[object, ...],
    splits: Splits,
    settings: Probe,
    shared: Shared,
) -> tuple[tuple[object, ...], Features]:
    """Features of the same network before its first step."""
    key = ("untrained", trained.encoder, trained.normalization, trained.seed, *data)
    if key not in shared.features:
        encoder = untrained_encoder(trained).to(settings.device)
        shared.features[key] = _extract(encoder, splits, settings.device)
    return key, shared.features[key]


def _pixels(
    data: tuple[object, ...], splits: Splits, shared: Shared
) -> tuple[tuple[object, ...], Features]:
    key = ("pixels", *data)
    if key not in shared.features:
        both = pixel_features(torch.cat([splits.train.pixels, splits.test.pixels]))
        n = len(splits.train)
        shared.features[key] = Features(both[:n], both[n:], None)
    return key, shared.features[key]


def _results(
    key: tuple[object, ...],
    features: Features,
    splits: Splits,
    seed: int,
    settings: Probe,
    shared: Shared,
) -> list[ProbeResult]:
    """All probes of one kind of features; those that another run already needed are reused."""
    rows = (
        *labelled_rows(features.train, splits.train),
        *labelled_rows(features.test, splits.test),
    )
    left_out = _unlabelled(splits)
    few = settings.labels_per_class or None
    jobs: list[tuple[str, int | None, int]] = []
    if few is not None:
        jobs += [("linear", few, 1000 * seed + draw) for draw in range(settings.draws)]
    jobs += [("linear", None, 0), ("knn", None, 0), ("class-means", None, 0)]
    found = []
    for job in jobs:
        if (*key, *job) not in shared.results:
            probe, labels, probe_seed = job
            if probe == "linear":
                result = linear_probe(*rows, seed=probe_seed, labels_per_class=labels)
            elif probe == "knn":
                result = knn_probe(*rows, k=settings.neighbours)
            else:
                result = class_means_probe(*rows)
            result = replace(result, warnings=(*left_out, *result.warnings))
            shared.results[(*key, *job)] = result
        found.append(shared.results[(*key, *job)])
    return found


def _card(
    name: str,
    features: Features,
    fingerprints: tuple[str | None, str | None],
    splits: Splits,
    results: Sequence[ProbeResult],
    trained: TrainImages,
) -> ProtocolCard:
    layers = {
        "encoder": "encoder output, before the projection head",
        "untrained": "the same layer of the same network before training",
        "pixels": "pixels",
    }
    linear = next(result for result in results if result.probe == "linear")
    without = name == "pixels" or trained.normalization == "group"
    return ProtocolCard(
        encoder_hash_before=fingerprints[0],
        encoder_hash_after=fingerprints[1],
        layer=layers[name],
        feature_dim=features.train.shape[1],
        preprocessing="pixels scaled to [0, 1], no augmentation",
        batch_norm="none" if without else "evaluation mode (running statistics)",
        split=splits.how,
        standardisation="mean and deviation of the labelled training rows (linear probe only)",
        regularisation_grid=tuple(linear.settings["regularisation_grid"]),
        regularisation_choice="most correct validation rows, taken out of the labelled training "
        "rows; ties go to the strongest penalty",
        seeds=tuple(sorted({result.seed for result in results})),
        n_train=len(splits.train),
        n_test=len(splits.test),
    )

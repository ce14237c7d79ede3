"""``relatum probe``: how good is a frozen representation, beside pixels and an untrained network.

Every number stands beside two others measured in the same way: those of the raw pixels, and those
of the same network before training. Labels enter here for the first time.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from rich.console import Console

from ..data import ImageTable, Splits
from ..probes import (
    ProbeResult,
    extract_features,
    labels_share,
    parameter_hash,
    pixel_features,
)
from ..runs import Run
from ..settings import POSITIONAL, check_choices, choice
from .images import TrainImages, read_settings, untrained_encoder
from .images.resolve import found_device
from .inputs import (
    check_alone,
    check_run_images,
    images_key,
    load_run_images,
    open_runs,
    remark_on,
    run_encoder,
)
from .pictures import embedding_map, neighbours
from .probe_rows import PROTOCOLS, Features, Job, measure, probe_card
from .shares import shares
from .tables import probe_table

__all__ = ["Probe", "main"]

# All settings that the encoder before the first step depends on.
DECIDE_ENCODER = ("encoder", "image_size", "normalization", "spectral_norm", "seed")


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

    label_fractions: str | None = None
    """Further linear probes on shares of the labels of each class, with commas: 0.01,0.1."""

    draws: int = 5
    """How often few labels are drawn anew (seeds 1000 x run seed + 0, 1, ...)."""

    protocol: str = choice("logistic", PROTOCOLS)
    """logistic = a linear probe that converges, its penalty chosen on validation rows; sgd = the
    schedule of published evaluations, on --device: 100 epochs of SGD with Nesterov momentum,
    batches of 512, rate 0.1 x batch / 256, cosine, no penalty, nothing chosen; both = one beside
    the other. For a million images take sgd: logistic fits 13 penalties in 64-bit floats."""

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
        self.jobs(0)

    def jobs(self, run_seed: int) -> list[Job]:
        """What is measured of each kind of features."""
        seeds = [1000 * run_seed + draw for draw in range(self.draws)]
        heads = PROTOCOLS[self.protocol]
        few = [Job(heads[0], seed, per_class=self.labels_per_class) for seed in seeds]
        jobs = few if self.labels_per_class else []
        for head in heads:
            for share in shares(self.label_fractions) if self.label_fractions else []:
                jobs += [Job(head, seed, share=share) for seed in seeds]
        # The order of SGD's batches is chance; the fit of logistic regression knows none.
        jobs += [Job(head, seeds[0] if head == "linear-sgd" else 0) for head in heads]
        return [*jobs, Job("knn", 0, neighbours=self.neighbours), Job("class-means", 0)]


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
    check_alone("probe")
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
    mine = _extract(encoder, before, splits, trained.workers, settings.device)
    after = parameter_hash(encoder)
    features = {
        "encoder": ((str(run.path),), mine),
        "untrained": _untrained(trained, data, splits, settings, shared),
    }
    if not trained.stream:  # so many pixels that they are not even held
        features["pixels"] = _pixels(data, splits, shared)
    rows, cards = [], {}
    jobs = settings.jobs(trained.seed)
    for name, (key, found) in features.items():
        results = measure(key, found, splits, jobs, shared.results, settings.device)
        rows += [{"features": name, **result.to_dict()} for result in results]
        prints = (before, after) if name == "encoder" else (found.fingerprint, found.fingerprint)
        cards[name] = probe_card(name, found, prints, splits, results, trained).to_dict()
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
    for share in shares(settings.label_fractions) if settings.label_fractions else []:
        labels_share(list(counts.elements()), share, 0)
    if 0 < counts.total() < settings.neighbours:
        raise ValueError(
            f"there are {counts.total()} labelled training images, too few for --neighbours "
            f"{settings.neighbours}; ask for at most {counts.total()}"
        )


def _extract(
    encoder: torch.nn.Module, fingerprint: str, splits: Splits, workers: int, device: str
) -> Features:
    train, test = (
        extract_features(encoder, part.batches(workers=workers), device=device)
        for part in splits[:2]
    )
    return Features(train, test, fingerprint)


def _untrained(
    trained: TrainImages,
    data: tuple[object, ...],
    splits: Splits,
    settings: Probe,
    shared: Shared,
) -> tuple[tuple[object, ...], Features]:
    """Features of the same network before its first step."""
    key = ("untrained", *(getattr(trained, name) for name in DECIDE_ENCODER), *data)
    if key not in shared.features:
        encoder = untrained_encoder(trained).to(settings.device)
        fingerprint = parameter_hash(encoder)
        found = _extract(encoder, fingerprint, splits, trained.workers, settings.device)
        shared.features[key] = found
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

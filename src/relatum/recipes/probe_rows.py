"""The rows of a probe's result: every probe of one kind of features, and their protocol card."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final, NamedTuple

import numpy as np
from jaxtyping import Float

from ..data import Splits
from ..probes import (
    ProbeResult,
    ProtocolCard,
    class_means_probe,
    knn_probe,
    linear_probe,
    sgd_probe,
)
from .images import TrainImages
from .inputs import WHOLE_SQUARE, labelled_rows

__all__ = ["PROTOCOLS", "Features", "Job", "measure", "probe_card"]

PROTOCOLS: Final = {
    "logistic": ("linear",),
    "sgd": ("linear-sgd",),
    "both": ("linear", "linear-sgd"),
}

Memory = dict[tuple[object, ...], ProbeResult]


class Features(NamedTuple):
    """Features of training and test images, and the fingerprint of what made them."""

    train: Float[np.ndarray, "n d"]
    test: Float[np.ndarray, "m d"]
    fingerprint: str | None


class Job(NamedTuple):
    """One probe: its name, its seed, and how many labels or which share of them it sees."""

    probe: str
    seed: int
    per_class: int | None = None
    share: float | None = None
    neighbours: int = 0


def _unlabelled(splits: Splits) -> tuple[str, ...]:
    counts = {"train": (splits.train.labels < 0).sum(), "test": (splits.test.labels < 0).sum()}
    return tuple(
        f"{count} {part} rows are unlabelled (-1) and were left out"
        for part, count in counts.items()
        if count
    )


Rows = tuple[Float[np.ndarray, "n d"], list[str], Float[np.ndarray, "m d"], list[str]]


def _probed(rows: Rows, job: Job, device: str) -> ProbeResult:
    if job.probe == "knn":
        return knn_probe(*rows, k=job.neighbours)
    if job.probe == "class-means":
        return class_means_probe(*rows)
    seed, few, share = job.seed, job.per_class, job.share
    if job.probe == "linear-sgd":
        return sgd_probe(
            *rows, seed=seed, labels_per_class=few, label_fraction=share, device=device
        )
    return linear_probe(*rows, seed=seed, labels_per_class=few, label_fraction=share)


def measure(
    key: tuple[object, ...],
    features: Features,
    splits: Splits,
    jobs: Sequence[Job],
    memory: Memory,
    device: str = "cpu",
) -> list[ProbeResult]:
    """All probes of one kind of features; those that another run already needed are reused."""
    rows = (
        *labelled_rows(features.train, splits.train),
        *labelled_rows(features.test, splits.test),
    )
    left_out = _unlabelled(splits)
    for job in jobs:
        if (*key, *job) not in memory:
            result = _probed(rows, job, device)
            memory[(*key, *job)] = replace(result, warnings=(*left_out, *result.warnings))
    return [memory[(*key, *job)] for job in jobs]


def probe_card(
    name: str,
    features: Features,
    fingerprints: tuple[str | None, str | None],
    splits: Splits,
    results: Sequence[ProbeResult],
    trained: TrainImages,
) -> ProtocolCard:
    """The card of one kind of features: the encoder's, or one that stands beside it."""
    layers = {
        "encoder": "encoder output, before the projection head",
        "untrained": "the same layer of the same network before training",
        "pixels": "pixels",
    }
    linear = next((result for result in results if result.probe == "linear"), None)
    without = name == "pixels" or trained.normalization == "group"
    return ProtocolCard(
        encoder_hash_before=fingerprints[0],
        encoder_hash_after=fingerprints[1],
        layer=layers[name],
        feature_dim=features.train.shape[1],
        preprocessing=f"{WHOLE_SQUARE}, pixels scaled to [0, 1], no augmentation",
        batch_norm="none" if without else "evaluation mode (running statistics)",
        split=splits.how,
        standardisation="mean and deviation of the labelled training rows (linear probe only)"
        if linear
        else "none",
        regularisation_grid=tuple(linear.settings["regularisation_grid"]) if linear else (),
        regularisation_choice="most correct validation rows, taken out of the labelled training "
        "rows; ties go to the strongest penalty"
        if linear
        else "no penalty; nothing is selected, the last step counts",
        seeds=tuple(sorted({result.seed for result in results})),
        n_train=int((splits.train.labels >= 0).sum()),
        n_test=len(splits.test),
        optimisation=_optimisation(results),
        labels="; ".join(dict.fromkeys(map(_labels, results))),
    )


def _optimisation(results: Sequence[ProbeResult]) -> str:
    logistic = any(result.probe == "linear" for result in results)
    text = "linear: L-BFGS until converged" if logistic else ""
    sgd = [result.settings for result in results if result.probe == "linear-sgd"]
    if not sgd:
        return text
    text += "; " if text else ""
    rate, batch = max((each["learning_rate"], each["batch_size"]) for each in sgd)
    return (
        f"{text}linear by SGD: Nesterov momentum {sgd[0]['momentum']:g}, rate "
        f"{256 * rate / batch:g} x batch / 256, cosine, no penalty, {sgd[0]['epochs']:g} epochs of "
        f"batches of at most {batch}"
    )


def _labels(result: ProbeResult) -> str:
    if result.labels_per_class is not None:
        return f"{result.labels_per_class} a class"
    if result.label_fraction is not None:
        return f"{100 * result.label_fraction:g} % of each class"
    return "all"

"""What a certificate says of trained encoders, beside what their classifiers then do.

    python benchmarks/transfer.py RUNS...
    python benchmarks/transfer_page.py

RUNS are finished run directories of ``relatum train images``; the same networks before training
join them (``--untrained`` seeds each). One encoder is one cell: a JSON file in ``--cells``;
finished cells are kept, so the command can be stopped and started again.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from measure import machine
from rich.console import Console

from relatum import certify
from relatum.data import POLICIES, Splits
from relatum.diagnostics import alignment, effective_rank
from relatum.latent_class import (
    Bound,
    LabelledSample,
    disjoint_triplets,
    encoder_contraction,
    labelled_sample,
    minimiser_gap,
    trivial_complexity,
)
from relatum.latent_class.certificate.value import Triplets
from relatum.models import Encoder
from relatum.probes import extract_features, few_labels, linear_probe
from relatum.recipes.images import TrainImages, read_settings, trained_encoder, untrained_encoder
from relatum.recipes.inputs import check_run_images, load_run_images
from relatum.runs import Run, atomic_write, strict_json

SHOTS = (1, 2, 5, 10, 50)
SQUARES = tuple(2.0 ** (half / 2) for half in range(-2, 11))  # R² = 1 / T
TRIPLET_DRAWS = 10  # to choose a scale; a certificate draws once
PROBE_LABELS, PROBE_DRAWS = 10, 5
VIEWED = 1000  # test images seen twice
TRAINING = ("encoder", "image_size", "augmentation", "batch_size", "epochs")


@dataclass(frozen=True)
class Candidate:
    """An encoder to measure."""

    name: str
    run: Run
    settings: TrainImages
    trained: bool

    @property
    def source(self) -> str:
        """The data set by name, without the place where it lies."""
        return Path(self.settings.data.partition(":")[0]).name

    def encoder(self) -> Encoder:
        """The network of the run, after training or before."""
        return trained_encoder(self.run) if self.trained else untrained_encoder(self.settings)


def main() -> None:
    """Fills in the missing cells."""
    options = arguments()
    torch.set_num_threads(options.threads)
    console = Console()
    loaded: dict[tuple[Any, ...], Splits] = {}
    for candidate in candidates(options.runs, options.untrained):
        path = options.cells / f"{candidate.name}.json"
        if path.exists():
            continue
        began = time.perf_counter()
        images = splits(candidate, loaded)
        found = cell(candidate, images, options.rows, options.draws)
        found["seconds"] = time.perf_counter() - began
        atomic_write(path, strict_json(found, indent=1).encode() + b"\n")
        console.print(f"{candidate.name}: {found['seconds']:.0f} s", highlight=False)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("runs", nargs="+", type=Path, help="finished run directories")
    parser.add_argument("--cells", type=Path, default=Path("runs/transfer"))
    parser.add_argument("--untrained", type=int, default=2, help="seeds for each kind of network")
    parser.add_argument("--rows", type=int, default=5000, help="test images, at most")
    parser.add_argument("--draws", type=int, default=200, help="sets of labels for few shots")
    parser.add_argument("--threads", type=int, default=1)
    return parser.parse_args()


def candidates(paths: Sequence[Path], untrained: int) -> Iterator[Candidate]:
    """The finished runs, and for each kind of network the same before training."""
    kinds: dict[tuple[Any, ...], tuple[Run, TrainImages]] = {}
    for path in paths:
        if not (path / "results" / "training.json").exists():
            continue
        run = Run.open(path)
        settings = read_settings(run)
        yield Candidate(path.name, run, settings, trained=True)
        kind = (settings.data, settings.encoder, settings.image_size, settings.limit)
        kinds.setdefault(kind, (run, settings))
    for run, settings in kinds.values():
        for seed in range(untrained):
            start = replace(settings, seed=seed)
            name = f"{Candidate('', run, start, False).source}-untrained-{seed}"
            yield Candidate(name, run, start, trained=False)


def splits(candidate: Candidate, loaded: dict[tuple[Any, ...], Splits]) -> Splits:
    """The images of a run, read once for all runs that share them."""
    s = candidate.settings
    key = (s.data, s.image_size, s.limit, s.test_fraction, s.split_seed)
    if key not in loaded:
        loaded[key] = load_run_images(s, None)
    check_run_images(candidate.run, loaded[key], None)
    return loaded[key]


def cell(candidate: Candidate, images: Splits, rows: int, draws: int) -> dict[str, Any]:
    """Everything about one encoder."""
    encoder = candidate.encoder()
    train = extract_features(encoder, images.train.pixels)
    test = extract_features(encoder, images.test.pixels[:rows])
    known, asked = images.train.labels.numpy(), images.test.labels[:rows].numpy()
    scale = Scale.chosen(train, known, len(test))
    seen, fresh = scale(train), scale(test)
    certificate = certify(
        fresh, asked, loss="hinge", radius=scale.radius, class_prior=uniform(known), block=SHOTS,
        training=any_encoders(len(train) // 3, train.shape[1], scale.radius),
    )  # fmt: skip
    here = machine(("numpy", "scipy", "scikit-learn"))
    return {
        "name": candidate.name,
        "data": candidate.source,
        "objective": candidate.settings.objective if candidate.trained else "untrained",
        "seed": candidate.settings.seed,
        "training": {name: getattr(candidate.settings, name) for name in TRAINING},
        "rows": {"train": len(train), "test": len(test), "features": train.shape[1]},
        "square": scale.square,
        "foreseen": scale.foreseen,
        "certificate": certificate.to_dict(),
        "few_shot": [few_shot(seen, known, fresh, asked, b, draws) for b in SHOTS],
        "probe": probes(train, known, test, asked),
        "label_free": label_free(candidate, encoder, images, scale, test),
        "machine": {name: value for name, value in here.items() if name != "command"},  # has paths
    }


def any_encoders(triplets: int, dimension: int, radius: float) -> Bound:
    """What training may lose if all that is known of the encoders is their radius."""
    complexity = trivial_complexity(3 * triplets, dimension, radius).high
    return minimiser_gap(encoder_contraction(complexity, radius), triplets, radius)


def uniform(labels: np.ndarray) -> dict[int, float]:
    """All classes equally common, as the data sets were made."""
    classes = np.unique(labels).tolist()
    return dict.fromkeys(classes, 1 / len(classes))


@dataclass(frozen=True, eq=False)
class Scale:
    """From features to embeddings on a sphere: f = R (z − centre) / |z − centre|, R² = 1 / T."""

    centre: np.ndarray
    square: float
    foreseen: float

    @property
    def radius(self) -> float:
        """R."""
        return float(np.sqrt(self.square))

    def __call__(self, features: np.ndarray) -> np.ndarray:
        """The embeddings; a row at the centre itself has no direction and stays 0."""
        moved = features.astype(np.float64) - self.centre
        lengths = np.linalg.norm(moved, axis=1, keepdims=True)
        return self.radius * moved / np.where(lengths > 0, lengths, 1)

    @classmethod
    def chosen(cls, train: np.ndarray, labels: np.ndarray, rows: int) -> Scale:
        """The centre is the mean of the training rows; R² promises the least certified value.

        It is foreseen on as many training rows as there are test rows: the median over several
        draws of disjoint triplets, each with its width.
        """
        centre = train.mean(axis=0, dtype=np.float64)
        some = np.sort(np.random.default_rng(0).permutation(len(train))[:rows])
        unit = labelled_sample(
            cls(centre, 1.0, np.nan)(train[some]), labels[some], class_prior=uniform(labels)
        )
        promised = {square: foreseen(unit, square) for square in SQUARES}
        best = min(promised, key=promised.__getitem__)
        return cls(centre, best, promised[best])


def foreseen(unit: LabelledSample, square: float) -> float:
    """The certified value that R² may be expected to give."""

    def drawn(seed: int) -> Triplets:
        return Triplets(
            lambda factor: disjoint_triplets(
                replace(unit, features=factor * unit.features), seed=seed
            ),
            loss="hinge", radius=1.0, delta=0.05, tau=unit.tau,
        )  # fmt: skip

    return float(np.median([drawn(seed).bound(square**0.5) for seed in range(TRIPLET_DRAWS)]))


def few_shot(
    train: np.ndarray,
    known: np.ndarray,
    test: np.ndarray,
    asked: np.ndarray,
    shots: int,
    draws: int,
) -> dict[str, Any]:
    """Risk and errors of the mean classifier from `shots` training labels a class, on test rows.

    Means over draws of labels; the deviation is that of one draw from another.
    """
    sample = labelled_sample(test, asked, class_prior=uniform(known))
    pairs = sample.weights * (1 - np.eye(len(sample.classes)))
    pairs /= pairs.sum()
    found = []
    for seed in range(draws):
        rows = few_labels(known, shots, seed)
        means = labelled_sample(train[rows], known[rows], least=1).class_means(train[rows])
        margins = sample.features @ means.T
        margins -= margins[np.arange(len(asked)), sample.codes, None]
        others = np.arange(margins.shape[1]) != sample.codes[:, None]
        wrong = (margins >= 0) & others
        hinge = np.maximum(0, 1 + margins) * others
        found.append(
            [
                (pairs * sample.class_means(hinge)).sum(),
                (pairs * sample.class_means(wrong.astype(float))).sum(),
                sample.law @ sample.class_means(wrong.any(axis=1).astype(float)),
            ]
        )
    mean, deviation = np.mean(found, axis=0), np.std(found, axis=0, ddof=1)
    names = ("risk", "pairwise_error", "top1_error")
    return {
        "shots": shots,
        "draws": draws,
        **dict(zip(names, mean.tolist(), strict=True)),
        "deviations": dict(zip(names, deviation.tolist(), strict=True)),
    }


def probes(
    train: np.ndarray, known: np.ndarray, test: np.ndarray, asked: np.ndarray
) -> dict[str, float]:
    """Accuracy of the linear probe with all labels, and with few."""
    every = linear_probe(train, known, test, asked)
    few = [
        linear_probe(train, known, test, asked, labels_per_class=PROBE_LABELS, seed=seed).accuracy
        for seed in range(PROBE_DRAWS)
    ]
    return {"linear": every.accuracy, f"linear_{PROBE_LABELS}": float(np.mean(few))}


def label_free(
    candidate: Candidate, encoder: Encoder, images: Splits, scale: Scale, test: np.ndarray
) -> dict[str, float]:
    """What can be read without a label: ranks of the raw features, and two views of images.

    At R = 1, for the scale of the certificate is chosen with labels.
    """
    unit = replace(scale, square=1.0)
    pixels = images.test.pixels[:VIEWED]
    policy = POLICIES[candidate.settings.augmentation or "none"](pixels.shape[-1])
    generator = torch.Generator().manual_seed(0)
    encoder.eval()
    with torch.no_grad():
        one, two = (unit(encoder(policy(pixels, generator)).numpy()) for _ in range(2))
    viewed = certify(one, pairs=two, loss="hinge", radius=unit.radius)
    return {
        "raw_effective_rank": float(effective_rank(torch.from_numpy(test))),
        "view_alignment": float(alignment(torch.from_numpy(one), torch.from_numpy(two))),
        "view_risk": viewed.line("contrastive_risk").value,
    }


if __name__ == "__main__":
    main()

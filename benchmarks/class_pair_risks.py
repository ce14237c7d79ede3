"""The risks of all class pairs from labelled embeddings: fast sums against brute force, as n grows.

    python benchmarks/class_pair_risks.py

Nearly all of its time is brute force at the largest sizes: half an hour or more on two cores, which
should have nothing else to do. ``--limit`` leaves out what is foreseen to take longer than so many
seconds. Writes ``docs/results/class_pair_risks_cpu.md``.
"""

from __future__ import annotations

import argparse
import math
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from measure import (
    held_memory,
    machine,
    machine_words,
    markdown,
    peak_memory,
    reset_peak,
    warn_if_busy,
)
from rich.console import Console
from rich.progress import Progress

from relatum.latent_class.pair_tables import pair_table
from relatum.latent_class.sample import LabelledSample, labelled_sample
from relatum.surrogates import SURROGATES

PAGE = Path(__file__).resolve().parents[1] / "docs" / "results" / "class_pair_risks_cpu.md"
CLASSES, DIM, SQUARE = 10, 128, 2.0
SIZES = (500, 1000, 2000, 5000, 10_000, 20_000)
HINGE, LOGISTIC = "hinge, sorted", "logistic, Chebyshev"
BRUTE, TUNED = "hinge, brute force", "hinge, tuned brute force"
# Losses held at a time: 32 MiB as anybody would, or so few that they stay in the cache.
CHUNK, CACHED = 1 << 22, 1 << 17
TARGET_SECONDS, TARGET_RATIO = 60.0, 50.0
HINGE_LOSS = SURROGATES["hinge"]


class Run(NamedTuple):
    """One contestant at one size."""

    seconds: float
    memory: int
    values: np.ndarray


@dataclass
class Row:
    """All contestants at one size."""

    n: int
    runs: dict[str, Run] = field(default_factory=dict)

    def ratio(self, name: str) -> float:
        """Times that it takes longer than sorting; NaN where it did not run."""
        if name not in self.runs:
            return math.nan
        return self.runs[name].seconds / self.runs[HINGE].seconds


def main() -> None:
    """Measures all sizes, then writes the page."""
    options = arguments()
    torch.set_num_threads(options.threads)
    console = Console()
    load = warn_if_busy(console)
    contestants: dict[str, Callable[[LabelledSample], np.ndarray]] = {
        HINGE: lambda sample: pair_table(sample, "hinge").values,
        LOGISTIC: lambda sample: pair_table(sample, "logistic").values,
        BRUTE: lambda sample: brute_force(sample, chunk_sums),
        TUNED: lambda sample: brute_force(sample, tuned_sums),
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
                rows[-1].runs[name] = measured(contestant, sample)
    text = page(rows, load)
    if options.largest < SIZES[-1]:
        console.print(text, markup=False, highlight=False, soft_wrap=True)
        return
    PAGE.write_text(text, encoding="utf-8")
    console.print(f"wrote docs/results/{PAGE.name}")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--largest", type=int, default=SIZES[-1], help="smaller writes no page")
    parser.add_argument("--limit", type=float, default=2400, help="seconds for one brute force")
    return parser.parse_args()


def embeddings(n: int) -> LabelledSample:
    """Noisy class centres on the sphere of R² = 2 (temperature 1/2), classes of equal size."""
    generator = np.random.default_rng(0)
    labels = np.arange(n) % CLASSES
    centres = generator.standard_normal((CLASSES, DIM))
    points = centres[labels] + 1.5 * generator.standard_normal((n, DIM))
    points *= math.sqrt(SQUARE) / np.linalg.norm(points, axis=1, keepdims=True)
    return labelled_sample(points, labels)


def measured(call: Callable[[LabelledSample], np.ndarray], sample: LabelledSample) -> Run:
    """The best time of several calls (one where it takes long), and the memory on top."""
    before = held_memory("cpu")
    reset_peak("cpu")
    best, spent = math.inf, 0.0
    while spent < 2.0:
        began = time.perf_counter()
        values = call(sample)
        took = time.perf_counter() - began
        best, spent = min(best, took), spent + took
    return Run(best, max(0, peak_memory("cpu") - before), values)


def foreseen(rows: list[Row], name: str) -> float:
    """Seconds that brute force will take at the last size: it grows with the cube."""
    done = [row for row in rows if name in row.runs]
    if not done:
        return 0.0
    return done[-1].runs[name].seconds * (rows[-1].n / done[-1].n) ** 3


Sums = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


def brute_force(sample: LabelledSample, chunk: Sums) -> np.ndarray:
    """Every triplet, anchor by anchor; the table alone, no sums for each point."""
    order = np.argsort(sample.codes, kind="stable")
    points = torch.from_numpy(sample.features[order])
    counts = sample.counts
    starts = np.concatenate([[0], np.cumsum(counts)])
    sums = np.zeros((len(counts), len(counts)))
    for c in range(len(counts)):
        own = torch.arange(starts[c], starts[c + 1])
        for i in own:
            scores = points @ points[i]
            total = chunk(scores, scores[own[own != i]])
            total[i] = 0
            sums[c] += np.add.reduceat(total.numpy(), starts[:-1])
    sums[np.diag_indices(len(counts))] -= counts * (counts - 1)  # the terms l = j
    terms = np.outer(counts * (counts - 1), counts) - np.diag(2 * counts * (counts - 1))
    return sums / terms


def chunk_sums(scores: torch.Tensor, positives: torch.Tensor) -> torch.Tensor:
    """The sum over positives for each negative, by the loss of the library."""
    parts = positives.split(max(1, CHUNK // len(scores)))
    return sum((HINGE_LOSS(scores - part[:, None]).sum(0) for part in parts), torch.zeros(()))


def tuned_sums(scores: torch.Tensor, positives: torch.Tensor) -> torch.Tensor:
    """The same in place, in memory that stays in the cache."""
    step = max(1, CACHED // len(scores))
    reach, total = 1 + scores, torch.zeros_like(scores)
    held = scores.new_empty(step, len(scores))
    for part in positives.split(step):
        total += torch.sub(reach, part[:, None], out=held[: len(part)]).relu_().sum(0)
    return total


def page(rows: list[Row], load: float) -> str:
    """The results page."""
    last = rows[-1]
    gap = max(
        np.abs(row.runs[name].values - row.runs[HINGE].values).max()
        for row in rows
        for name in (BRUTE, TUNED)
        if name in row.runs
    )
    seconds = last.runs[HINGE].seconds
    lines = [
        "# All class-pair risks from labelled embeddings: how the time grows",
        "",
        "Generated by `python benchmarks/class_pair_risks.py`. "
        + machine_words(machine(("numpy",)), load),
        "",
        f"The {CLASSES} × {CLASSES} table of contrastive risks (anchor and positive of one class, "
        f"negative of another or the same) of n embeddings in {DIM} dimensions, R² = {SQUARE:g}, "
        "float64. `pair_table` gives, besides, the sums of every point as anchor, positive and "
        "negative, which make the standard errors; brute force gives the table alone. Brute force "
        "applies the loss of the library to chunks of 32 MiB; tuned, it works in place and within "
        "the cache. Best time of several calls, and the memory on top of what was held before.",
        "",
        *table(rows),
        "",
        f"The largest difference between sorting and brute force is {gap:.1e}.",
        "",
        f"* n = {last.n:,}, hinge: {seconds:.3g} s (the aim was {TARGET_SECONDS:g} s: "
        f"{met(seconds < TARGET_SECONDS)}).",
        *(faster(rows, name) for name in (BRUTE, TUNED)),
        f"* From n = {rows[-2].n:,} to {last.n:,} the time of sorting grows like "
        f"n^{exponent(rows, HINGE):.2f}, that of the expansion like "
        f"n^{exponent(rows, LOGISTIC):.2f}.",
        "",
    ]
    return "\n".join(lines)


def faster(rows: list[Row], name: str) -> str:
    """How much faster sorting is where brute force last ran."""
    row = [row for row in rows if name in row.runs][-1]
    ratio = row.ratio(name)
    what = name.removeprefix("hinge, ")
    return (
        f"* n = {row.n:,}, the largest at which {what} ran: sorting is {ratio:.3g} times faster "
        f"(the aim was {TARGET_RATIO:g}: {met(ratio >= TARGET_RATIO)})."
    )


def table(rows: list[Row]) -> list[str]:
    names = (HINGE, LOGISTIC, BRUTE, TUNED)
    body = []
    for row in rows:
        cells = [f"{row.n:,}"]
        for name in names:
            run = row.runs.get(name)
            cells += ["", ""] if run is None else [f"{run.seconds:.3g}", f"{run.memory >> 20}"]
        ratios = (row.ratio(name) for name in (BRUTE, TUNED))
        body.append([*cells, *("" if math.isnan(ratio) else f"{ratio:.3g}" for ratio in ratios)])
    head = ["n", *(part for name in names for part in (f"{name}, s", "MiB"))]
    return markdown([*head, "brute / sorted", "tuned / sorted"], body, 0)


def exponent(rows: list[Row], name: str) -> float:
    """The slope of log time in log n over the last two sizes."""
    (m, early), (n, late) = ((row.n, row.runs[name].seconds) for row in rows[-2:])
    return math.log(late / early) / math.log(n / m)


def met(aim: bool) -> str:
    return "met" if aim else "missed"


if __name__ == "__main__":
    main()

"""Every objective on CIFAR-10 at CPU scale: accuracy, interval, divergence, time.

    python benchmarks/objectives_cifar.py --data DIR

DIR holds ``train.npz`` and ``test.npz``. Settings are the paper's own, not tuned: RPC with
(1, 0.005, 1) on raw dot products / 128, the others on cosines / 0.5; a second block gives every
objective the same cosine critic. Each cell is one run directory; finished cells are kept, so the
command can be stopped and started again. Writes ``docs/results/objectives_cifar_cpu.md`` and the
verdicts that ``relatum objectives`` shows.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import time
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from rich.console import Console

from relatum.probes.summary import Interval, mean_interval, paired_difference
from relatum.recipes import probe as probing
from relatum.recipes import train_images as training
from relatum.recipes.images import TrainImages
from relatum.runs import Run

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "results" / "objectives_cifar_cpu.md"
VERDICTS = ROOT / "src" / "relatum" / "objectives" / "measured.json"

SEEDS = (0, 1, 2)
PAPER = {"cpc": "cosine", "dv": "cosine", "nwj": "cosine", "js": "cosine", "wpc": "cosine",
         "rpc": "dot"}  # fmt: skip
SAME = ("rpc", "chi2", "hinge", "logistic")

# Tsai et al. 2021, Table 2, CIFAR-10, ResNet-18 after 1000 epochs (as recalled, not verified).
PUBLISHED = {"dv": 91.10, "nwj": 90.54, "js": 83.55, "wpc": 80.02, "cpc": 91.12, "rpc": 91.46}


@dataclass(frozen=True)
class Cell:
    """One row of the page: an objective with a critic, over all seeds."""

    objective: str
    critic: str

    def settings(self, data: Path, out: Path, seed: int, quick: bool) -> TrainImages:
        """Small network, 16 x 16 pixels: about a minute a run on one core; WPC eight."""
        return TrainImages(
            data=str(data),
            image_size=16,
            limit=1000 if quick else 5000,
            encoder="conv-medium",
            objective=self.objective,
            critic=self.critic,
            batch_size=128,
            epochs=1 if quick else 8,
            optimizer="adamw",
            threads=1,
            seed=seed,
            on_nonfinite="record",
            tensorboard=False,
            out=out / f"{self.objective}-{self.critic}-{seed}",
        )


CELLS = [*(Cell(*item) for item in PAPER.items()), *(Cell(name, "cosine") for name in SAME)]


def main() -> None:
    """Trains and probes the cells that are missing, then writes the page."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data", type=Path, required=True, help="folder with train.npz, test.npz")
    parser.add_argument("--out", type=Path, default=Path("runs/objectives_cifar"))
    parser.add_argument("--quick", action="store_true", help="one epoch of 1,000 images; no page")
    parser.add_argument("--processes", type=int, default=2, help="runs at a time, a thread each")
    arguments = parser.parse_args()
    console = Console()
    began = time.perf_counter()
    runs = train_missing(
        arguments.data, arguments.out, arguments.quick, arguments.processes, console
    )
    probe_missing(runs, console)
    console.print(f"cells done after {(time.perf_counter() - began) / 60:.1f} minutes")
    if arguments.quick:
        return
    results = {cell: [read(path) for path in runs[cell]] for cell in CELLS}
    PAGE.write_text(page(results, Run.open(runs[CELLS[0]][0])), encoding="utf-8")
    VERDICTS.write_text(json.dumps(verdicts(results), indent=1, ensure_ascii=False) + "\n")
    console.print(f"wrote {PAGE.relative_to(ROOT)} and {VERDICTS.relative_to(ROOT)}")


def train_missing(
    data: Path, out: Path, quick: bool, processes: int, console: Console
) -> dict[Cell, list[Path]]:
    """The run directories of every cell; those without a finished run are trained."""
    jobs = {(c, seed): c.settings(data, out, seed, quick) for seed in SEEDS for c in CELLS}
    missing = [s for s in jobs.values() if not (s.out / "results" / "training.json").exists()]
    # WPC takes the longest: it goes first, so that no process waits for it at the end.
    missing.sort(key=lambda settings: settings.objective != "wpc")
    with ProcessPoolExecutor(processes, mp_context=multiprocessing.get_context("spawn")) as pool:
        for number, name in enumerate(pool.map(_train, missing), start=1):
            console.print(f"[{number}/{len(missing)}] trained {name}")
    return {cell: [jobs[cell, seed].out for seed in SEEDS] for cell in CELLS}


def _train(settings: TrainImages) -> str:
    quiet = Console(quiet=True)
    training.main(replace(settings, resume=(settings.out / "config.yaml").exists()), quiet)
    return settings.out.name


def probe_missing(runs: dict[Cell, list[Path]], console: Console) -> None:
    """Probes what has not been probed; runs of one call share pixels and untrained features."""
    every = [path for paths in runs.values() for path in paths]
    missing = [path for path in every if not (path / "results" / "probe.json").exists()]
    if missing:
        probing.main(probing.Probe(runs=missing, map="pca", queries=0), console)


def read(path: Path) -> dict[str, Any]:
    """Accuracies by "features/probe" (few labels: "few"), and the training's own figures."""
    run = Run.open(path)
    probe = run.read_json("results/probe.json")["payload"]
    accuracies: dict[tuple[str, str], list[float]] = {}
    for row in probe["rows"]:
        kind = "few" if row["labels_per_class"] else row["probe"]
        accuracies.setdefault((row["features"], kind), []).append(row["accuracy"])
    found: dict[str, Any] = {"/".join(k): sum(v) / len(v) for k, v in accuracies.items()}
    training_record = run.read_json("results/training.json")["payload"]
    return {**found, **{k: training_record[k] for k in ("nonfinite_steps", "seconds", "steps")}}


def page(results: dict[Cell, list[dict[str, Any]]], run: Run) -> str:
    """The results page."""
    first, seconds = run.environment, sum(r["seconds"] for rs in results.values() for r in rs)
    paper = [Cell(*item) for item in PAPER.items()]
    same = [Cell(name, "cosine") for name in ("cpc", "dv", "nwj", "js", "wpc", *SAME)]
    versions = first["versions"]
    lines = [
        "# Every objective on CIFAR-10, CPU scale",
        "",
        "Generated by `python benchmarks/objectives_cifar.py --data DIR`; finished cells are kept.",
        f"Machine: {first['platform']}, {first['processors']} processors, two runs at a time with "
        f"one thread each; torch {versions['torch']}, Python {first['python']}. Training of all "
        f"cells: {seconds / 60:.0f} minutes of one processor.",
        "",
        "5,000 training images at 16 x 16 pixels, `conv-medium`, 8 epochs of batch 128, AdamW; "
        f"seeds {', '.join(map(str, SEEDS))}. The settings of the objectives are the paper's and "
        "were not tuned, so this is no verdict on what each could reach. Accuracy on the 10,000 "
        "test images in percent: mean ± half of the 95 % t-interval over seeds. Linear probe with "
        "all labels, with 10 labels a class (5 draws a seed), 20 nearest neighbours, class means.",
        "",
        "## With the authors' critics",
        "",
        "RPC(1, 0.005, 1): raw dot product / 128. The others: cosine / 0.5.",
        "",
        *table(paper, results),
        "",
        "## With one critic for all: cosine / 0.5",
        "",
        *table(same, results),
        "",
        "## Against the paper's ordering",
        "",
        "Paired differences over seeds on the linear probe with all labels, in points. The paper's "
        "figures are Table 2's CIFAR-10 row for ResNet-18 after 1000 epochs (as recalled; no "
        "intervals were published).",
        "",
        *ordering(results),
        "",
        "With cosine / 0.5 no score exceeds 2, so DV and NWJ *cannot* overflow: that no run of "
        "theirs diverged here says nothing about their stability on unbounded scores. `logistic` "
        "is CPC's loss divided by log 2, a factor that AdamW all but ignores: the two show how far "
        "apart the same objective lands by rounding alone.",
        "",
    ]
    return "\n".join(lines)


def table(cells: Iterable[Cell], results: dict[Cell, list[dict[str, Any]]]) -> list[str]:
    """One block: a row a cell, and the two baselines."""
    kinds = {"linear": "linear, all labels", "few": "linear, 10 a class", "knn": "20-NN",
             "class-means": "class means"}  # fmt: skip
    head = ["objective", "critic", *kinds.values(), "non-finite steps", "seconds a run"]
    lines = ["| " + " | ".join(head) + " |", "|" + " --- |" * 2 + " ---: |" * 6]
    cells = list(cells)
    for cell in cells:
        found = results[cell]
        values = [accuracy(found, f"encoder/{kind}") for kind in kinds]
        nonfinite = sum(r["nonfinite_steps"] for r in found)
        seconds = sum(r["seconds"] for r in found) / len(found)
        row = [f"`{cell.objective}`", cell.critic, *values, str(nonfinite), f"{seconds:.0f}"]
        lines.append("| " + " | ".join(row) + " |")
    for baseline in ("untrained", "pixels"):
        found = results[cells[0]]
        values = [accuracy(found, f"{baseline}/{kind}") for kind in kinds]
        lines.append("| " + " | ".join([baseline, "", *values, "", ""]) + " |")
    return lines


def accuracy(found: list[dict[str, Any]], key: str) -> str:
    """Mean ± half interval in percent, or the one value that all seeds share."""
    values = [r[key] for r in found]
    if len(set(values)) == 1:
        return f"{100 * values[0]:.1f}"
    return str(mean_interval(values)).removesuffix(" %")


def ordering(results: dict[Cell, list[dict[str, Any]]]) -> list[str]:
    """Each pair of the paper's ordering, what was found here, and the same in plain words."""
    order = sorted(PUBLISHED, key=PUBLISHED.__getitem__, reverse=True)
    pairs = [*pairwise(order), ("cpc", "js"), ("cpc", "wpc")]
    lines = ["| pair | paper | here | verdict |", "| --- | ---: | ---: | --- |"]
    words: dict[str, list[str]] = {"agrees": [], "**disagrees**": [], "not resolved by 3 seeds": []}
    for better, worse in pairs:
        difference = compare(results, better, worse)
        if difference.low > 0:
            verdict = "agrees"
        elif difference.high < 0:
            verdict = "**disagrees**"
        else:
            verdict = "not resolved by 3 seeds"
        words[verdict].append(f"{better} above {worse}")
        published = PUBLISHED[better] - PUBLISHED[worse]
        lines.append(f"| {better} − {worse} | {published:+.2f} | {difference} | {verdict} |")
    found = {key: ", ".join(value) or "nothing" for key, value in words.items()}
    return [
        *lines,
        "",
        f"In plain words: of the paper's ordering, {found['agrees']} is found here; "
        f"{found['**disagrees**']} is contradicted; {found['not resolved by 3 seeds']} is beyond "
        "what three seeds of this size can tell.",
    ]


def compare(results: dict[Cell, list[dict[str, Any]]], one: str, other: str) -> Interval:
    """The paired difference of two objectives with the authors' critics, linear probe."""
    a, b = ([r["encoder/linear"] for r in results[Cell(n, PAPER[n])]] for n in (one, other))
    return paired_difference(a, b)


def verdicts(results: dict[Cell, list[dict[str, Any]]]) -> dict[str, Any]:
    """What `relatum objectives` shows as ours."""
    found = {}
    for cell, runs in results.items():
        if PAPER.get(cell.objective, cell.critic) != cell.critic:
            continue
        diverged = sum(r["nonfinite_steps"] > 0 for r in runs)
        found[cell.objective] = {
            "stable": f"{diverged} of {len(runs)} runs diverged ({cell.critic} critic)",
            "downstream": f"{accuracy(runs, 'encoder/linear')} % (CIFAR-10 at CPU scale)",
        }
    return {"source": str(PAGE.relative_to(ROOT)), "objectives": found}


if __name__ == "__main__":
    main()

"""One critic for every objective, on CIFAR-10 at CPU scale: accuracy, interval, divergence, time.

    python benchmarks/objectives_cifar.py --data DIR

DIR holds ``train.npz`` and ``test.npz``. Every objective scores by the cosine / 0.5, so that
differences are those of objectives; ``relatum reproduce vision-table`` has each with the critic of
its authors, and WPC. Nothing was tuned. Each cell is one run directory; finished cells are kept, so
the command can be stopped and started again. Writes ``docs/results/objectives_cifar_cpu.md``.
"""

from __future__ import annotations

import argparse
import multiprocessing
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.console import Console

from relatum.probes.summary import mean_interval
from relatum.recipes import probe as probing
from relatum.recipes import train_images as training
from relatum.recipes.images import TrainImages
from relatum.runs import Run

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "results" / "objectives_cifar_cpu.md"

SEEDS = (0, 1, 2)
OBJECTIVES = ("cpc", "dv", "nwj", "js", "rpc", "chi2", "hinge", "logistic")


def settings_of(objective: str, data: Path, out: Path, seed: int, quick: bool) -> TrainImages:
    """Small network, 16 x 16 pixels: about a minute a run on one core."""
    return TrainImages(
        data=str(data),
        image_size=16,
        limit=1000 if quick else 5000,
        encoder="conv-medium",
        objective=objective,
        critic="cosine",
        batch_size=128,
        epochs=1 if quick else 8,
        optimizer="adamw",
        threads=1,
        seed=seed,
        on_nonfinite="record",
        tensorboard=False,
        out=out / f"{objective}-cosine-{seed}",
    )


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
    results = {objective: [read(path) for path in paths] for objective, paths in runs.items()}
    PAGE.write_text(page(results, Run.open(runs[OBJECTIVES[0]][0])), encoding="utf-8")
    console.print(f"wrote {PAGE.relative_to(ROOT)}")


def train_missing(
    data: Path, out: Path, quick: bool, processes: int, console: Console
) -> dict[str, list[Path]]:
    """The run directories of every objective; those without a finished run are trained."""
    jobs = {
        (name, seed): settings_of(name, data, out, seed, quick)
        for seed in SEEDS
        for name in OBJECTIVES
    }
    missing = [s for s in jobs.values() if not (s.out / "results" / "training.json").exists()]
    with ProcessPoolExecutor(processes, mp_context=multiprocessing.get_context("spawn")) as pool:
        for number, name in enumerate(pool.map(_train, missing), start=1):
            console.print(f"[{number}/{len(missing)}] trained {name}")
    return {name: [jobs[name, seed].out for seed in SEEDS] for name in OBJECTIVES}


def _train(settings: TrainImages) -> str:
    quiet = Console(quiet=True)
    training.main(replace(settings, resume=(settings.out / "config.yaml").exists()), quiet)
    return settings.out.name


def probe_missing(runs: dict[str, list[Path]], console: Console) -> None:
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


def page(results: dict[str, list[dict[str, Any]]], run: Run) -> str:
    """The results page."""
    first, seconds = run.environment, sum(r["seconds"] for rs in results.values() for r in rs)
    versions = first["versions"]
    lines = [
        "# One critic for every objective, on CIFAR-10 at CPU scale",
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
        "All score by the cosine / 0.5. (With the critics of their authors, and WPC beside them: "
        "[the paper's table 2](vision_table_cpu.md).)",
        "",
        *table(results),
        "",
        "With cosine / 0.5 no score exceeds 2, so DV and NWJ *cannot* overflow: that no run of "
        "theirs diverged here says nothing about their stability on unbounded scores. `logistic` "
        "is CPC's loss divided by log 2, a factor that AdamW all but ignores: the two show how far "
        "apart the same objective lands by rounding alone.",
        "",
    ]
    return "\n".join(lines)


def table(results: dict[str, list[dict[str, Any]]]) -> list[str]:
    """A row an objective, and the two baselines."""
    kinds = {"linear": "linear, all labels", "few": "linear, 10 a class", "knn": "20-NN",
             "class-means": "class means"}  # fmt: skip
    head = ["objective", *kinds.values(), "non-finite steps", "seconds a run"]
    lines = ["| " + " | ".join(head) + " |", "| --- |" + " ---: |" * 6]
    for objective, found in results.items():
        values = [accuracy(found, f"encoder/{kind}") for kind in kinds]
        nonfinite = sum(r["nonfinite_steps"] for r in found)
        seconds = sum(r["seconds"] for r in found) / len(found)
        row = [f"`{objective}`", *values, str(nonfinite), f"{seconds:.0f}"]
        lines.append("| " + " | ".join(row) + " |")
    for baseline in ("untrained", "pixels"):
        values = [accuracy(results[OBJECTIVES[0]], f"{baseline}/{kind}") for kind in kinds]
        lines.append("| " + " | ".join([baseline, *values, "", ""]) + " |")
    return lines


def accuracy(found: list[dict[str, Any]], key: str) -> str:
    """Mean ± half interval in percent, or the one value that all seeds share."""
    values = [r[key] for r in found]
    if len(set(values)) == 1:
        return f"{100 * values[0]:.1f}"
    return str(mean_interval(values)).removesuffix(" %")


if __name__ == "__main__":
    main()

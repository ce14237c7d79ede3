"""Estimators of mutual information side by side: ours and those of other libraries.

    pip install -e '.[all,mi-bench]'
    python -m venv .venv-peers
    .venv-peers/bin/pip install torch-mist==0.2.17 benchmark-mi==0.1.3 latentmi==0.1.3 \
        jax==0.4.30 jaxlib==0.4.30 chex==0.1.86
    python benchmarks/mi_peers.py

Same tasks, same rows, one core for everybody. Some peers need versions of their own (NumPy 1, an
old JAX) and run as workers in their environment; importing is not timed. Every finished cell is
kept under ``runs/mi_peers/``: started again, the script goes on where it was stopped. Writes
``docs/results/mi_peers.md`` and the same as JSON.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from measure import machine, warn_if_busy
from mi_contestants import CONTESTANTS, Contestant
from mi_peers_page import page
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from relatum.mi.tasks import CORE, TASKS, Task
from relatum.runs import strict_json

ROOT = Path(__file__).resolve().parents[1]
CELLS = ROOT / "runs" / "mi_peers" / "cells.jsonl"
STEM = ROOT / "docs" / "results" / "mi_peers"
ROWS, SEEDS = 1000, 3
WIDER = (
    *CORE,
    "gaussian-strong-1x1",
    "student-2-5x5",
    "spiral-3x3",
    "gaussian-pairwise-20x20-2",
    "gaussian-sparse-25x25",
    "halfcube-25x25",
    "table-4x4",
    "bit-gaussian-1",
)
APART = ("torch-mist", "benchmark-mi", "latentmi")  # do not install beside us
QUIET = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")


@dataclass(frozen=True)
class Cell:
    """One contestant on one sample.

    Attributes:
        contestant: Its name.
        task: The task's name.
        seed: Of the rows, and of the contestant's own random numbers.
        truth: Exact mutual information in nats.
        value: The estimate in nats; None where there is none.
        error: Why there is none.
        seconds: Processor time of the call.
        wall: Time on the clock.
        compiling: Seconds on the clock in JAX's compiler.
        versions: Of the library and what it computes with.
    """

    contestant: str
    task: str
    seed: int
    truth: float
    value: float | None
    error: str | None
    seconds: float
    wall: float
    compiling: float
    versions: dict[str, str]


def main() -> None:
    options = arguments()
    console = Console()
    load = warn_if_busy(console)
    names = [*TASKS] if options.tasks == ["all"] else options.tasks
    chosen = [c for c in CONTESTANTS if any(part in c.name for part in options.only)]
    plan = [
        (seed, contestant, [TASKS[name] for name in names if fits(contestant, TASKS[name])])
        for seed in range(options.seeds)
        for contestant in chosen
    ]
    start(options.again)
    apart = any(contestant.package in APART for contestant in chosen)
    if not options.page and apart and not options.python.exists():
        sys.exit(f"--python: there is no {options.python}; this script's first lines say how to "
                 "make that environment, and --only leaves contestants out")  # fmt: skip
    if not options.page:
        run_all(plan, options, console)
    cells = [c for c in kept() if c.task in names and c.seed < options.seeds]
    found = {**machine([]), "load": load}
    text = page(cells, [TASKS[name] for name in names], found, ROWS)
    STEM.with_suffix(".md").write_text(text, encoding="utf-8")
    record = {"environment": found, "rows": ROWS, "cells": cells}
    STEM.with_suffix(".json").write_text(strict_json(record, indent=1) + "\n", encoding="utf-8")
    console.print(f"wrote docs/results/{STEM.name}.md and .json from {len(cells)} cells")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    python = ROOT / ".venv-peers" / "bin" / "python"
    parser.add_argument(
        "--python", type=Path, default=python, help="where torch-mist, bmi, latentmi are"
    )
    parser.add_argument("--tasks", nargs="+", default=[*WIDER], help="names, or: all")
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--only", nargs="+", default=[""], help="contestants with this in the name")
    parser.add_argument("--again", help="forget what contestants with this in the name did")
    parser.add_argument("--core", type=int, default=max(os.sched_getaffinity(0)))
    parser.add_argument("--page", action="store_true", help="only write the page, of what there is")
    return parser.parse_args()


def fits(contestant: Contestant, task: Task) -> bool:
    return contestant.can(task.dim_x, task.dim_y, task.discrete)


def kept() -> list[Cell]:
    """What earlier runs have finished; a line that a kill cut short is left out."""
    lines = CELLS.read_text(encoding="utf-8").splitlines(True) if CELLS.exists() else []
    return [Cell(**json.loads(line)) for line in lines if line.endswith("}\n")]


def start(again: str | None) -> None:
    """The file of cells, whole lines only, without the contestants that are measured again."""
    CELLS.parent.mkdir(parents=True, exist_ok=True)
    stay = [cell for cell in kept() if again is None or again not in cell.contestant]
    CELLS.write_text("".join(strict_json(asdict(c)) + "\n" for c in stay), encoding="utf-8")


def run_all(
    plan: Sequence[tuple[int, Contestant, list[Task]]],
    options: argparse.Namespace,
    console: Console,
) -> None:
    """Seed by seed, so that a run that is stopped has measured everybody on the first ones."""
    done = {(cell.contestant, cell.task, cell.seed) for cell in kept()}
    columns = (TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console) as progress, CELLS.open("a", encoding="utf-8") as file:
        bar = progress.add_task("", total=sum(len(tasks) for _, _, tasks in plan))
        for seed, contestant, tasks in plan:
            progress.update(bar, description=f"{contestant.name}, seed {seed}")
            left = [task for task in tasks if (contestant.name, task.name, seed) not in done]
            progress.advance(bar, len(tasks) - len(left))
            for cell in run(contestant, left, seed, options):
                file.write(strict_json(asdict(cell)) + "\n")
                file.flush()
                progress.advance(bar)


def run(
    contestant: Contestant, tasks: list[Task], seed: int, options: argparse.Namespace
) -> Iterator[Cell]:
    """One worker for all tasks of a seed; if it ends early, its last words are the error."""
    if not tasks:
        return
    mine = contestant.package not in APART
    script = Path(__file__).with_name("mi_contestants.py")
    command = [sys.executable if mine else options.python, script, contestant.name]
    with tempfile.TemporaryFile("w+") as words, tempfile.TemporaryDirectory() as folder:
        worker = subprocess.Popen(
            [*map(str, command), str(options.core)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=words,
            text=True,
            env=environment(mine),
        )
        versions = json.loads(worker.stdout.readline() or "{}")
        for task in tasks:
            rows = save(task, seed, Path(folder) / "rows.npz")
            found = ask(worker, {"rows": str(rows), "seed": seed}) or ended(words)
            yield Cell(
                contestant.name,
                task.name,
                seed,
                task.mutual_information,
                **found,
                versions=versions,
            )
        with contextlib.suppress(BrokenPipeError):
            worker.stdin.close()
        worker.wait()


def environment(mine: bool) -> dict[str, str]:
    """One thread; our source path is not for the other interpreter."""
    inherited = {k: v for k, v in os.environ.items() if mine or k != "PYTHONPATH"}
    return {**inherited, **dict.fromkeys(QUIET, "1"), "CUDA_VISIBLE_DEVICES": ""}


def save(task: Task, seed: int, path: Path) -> Path:
    x, y = task.sample(ROWS, seed)
    np.savez(path, x=x, y=y, discrete=np.array(task.discrete))
    return path


def ask(worker: subprocess.Popen[str], question: dict[str, Any]) -> dict[str, Any] | None:
    try:
        worker.stdin.write(json.dumps(question) + "\n")
        worker.stdin.flush()
    except BrokenPipeError:
        return None
    line = worker.stdout.readline()
    return json.loads(line) if line else None


def ended(words: Any) -> dict[str, Any]:
    words.seek(0)
    last = (words.read().strip().splitlines() or ["without a word"])[-1]
    nothing = dict.fromkeys(("seconds", "wall", "compiling"), 0.0)
    return {"value": None, "error": f"the process ended: {last}"[:300], **nothing}


if __name__ == "__main__":
    main()

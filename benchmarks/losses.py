"""Time and memory of the losses, against the losses of other libraries.

    pip install -e '.[all,bench]'
    python benchmarks/losses.py

Every contestant is first checked against the definition. Then each is run once in a fresh process,
for its peak memory, and what fits is timed in turns. About a quarter of an hour on two cores, which
should have nothing else to do. Writes ``docs/results/losses_cpu.md`` and the same as JSON.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import time
import timeit
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from contestants import BY_NAME, CONTESTANTS, DIM, LINEAR, Check, Contestant, check, inputs
from losses_page import Cell, page, targets
from measure import (
    GIB,
    Plan,
    free_memory,
    held_memory,
    interleaved,
    limit_memory,
    machine,
    peak_memory,
    reset_peak,
    warn_if_busy,
)
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from relatum.runs import strict_json

RESULTS = Path(__file__).resolve().parents[1] / "docs" / "results"
SIZES = (256, 1024, 4096, 16384)
LARGE = (65_536, 262_144, 1_048_576)
LIMIT = 20 * GIB
PACKAGES = ("lightly", "pytorch-metric-learning", "open_clip_torch", "info-nce-pytorch")


def main() -> None:
    """Checks, memory, times, page."""
    options = arguments()
    torch.set_num_threads(options.threads)
    if options.cell:
        print(json.dumps(run_cell(options.cell, options.pairs, options.device)))
        return
    console = Console()
    load = warn_if_busy(console)
    checks = check_all(console)
    cells = [
        Cell(c.name, pairs)
        for pairs in (*SIZES, *LARGE)
        for c in CONTESTANTS
        if pairs in SIZES or c.name in LINEAR
    ]
    if options.largest:
        cells = [cell for cell in cells if cell.pairs <= options.largest]
    stem = RESULTS / f"losses_{options.device}"
    before = json.loads(stem.with_suffix(".json").read_text()) if options.again else None
    if before is not None:
        cells = [cell for cell in cells if options.again in cell.name]
    if options.quick:
        cells = [Cell(c.name, 64) for c in CONTESTANTS[:4]] + [Cell(LINEAR[0], 1024)]
    columns = (TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console) as progress:
        measure_memory(cells, options, progress)
        measure_time(cells, options.device, progress)
    found = machine(PACKAGES)
    if before is not None:
        cells, found, load = together(cells, before, found, load, options.again)
    text = page(cells, checks, found, load, options.device)
    if options.quick or options.largest:
        console.print(text, markup=False, highlight=False, soft_wrap=True)
        return
    stem.with_suffix(".md").write_text(text, encoding="utf-8")
    stem.with_suffix(".json").write_text(record(cells, checks, found, load), encoding="utf-8")
    console.print(f"wrote docs/results/{stem.name}.md and .json")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--quick", action="store_true", help="a few small cells; writes no page")
    parser.add_argument("--largest", type=int, help="leave larger sizes out; writes no page")
    parser.add_argument("--again", help="measure only rows with this in their name; keep the rest")
    parser.add_argument("--cell", choices=BY_NAME, help=argparse.SUPPRESS)
    parser.add_argument("--pairs", type=int, help=argparse.SUPPRESS)
    return parser.parse_args()


def together(
    cells: list[Cell], before: dict[str, Any], found: dict[str, Any], load: float, again: str
) -> tuple[list[Cell], dict[str, Any], float]:
    """Cells measured now beside those of an earlier record, and a word on which is which."""
    known = {(cell.name, cell.pairs): cell for cell in cells}
    fields = [Cell(**cell) for cell in before["cells"]]
    merged = [known.get((cell.name, cell.pairs), cell) for cell in fields]
    earlier = before["environment"]
    note = (
        f"Rows with `{again}` in their name were measured again by themselves, with `--again "
        f"{again}`, on {found['created'][:16]} (load average {load:.1f} before), the others on "
        f"{earlier['created'][:16]}: ratios between the two do not share a moment of the machine."
    )
    return merged, {**earlier, "note": note}, earlier["load"]


def check_all(console: Console) -> dict[str, Check]:
    """Every contestant against the definition; who computes something else is named."""
    checks = {c.name: check(c) for c in BY_NAME.values() if c.kind != "floor"}
    for name, found in checks.items():
        if not found.correct:
            console.print(f"{name} computes another formula than it is compared as: {found}")
    return checks


def measure_memory(cells: list[Cell], options: argparse.Namespace, progress: Progress) -> None:
    """One call of each cell in a process of its own."""
    for cell in progress.track(cells, description="memory"):
        needs = grown(cell, cells)
        if needs > 2 * allowed(options.device):
            cell.refused = f"needs about {needs / GIB:,.0f} GiB: not run"
            continue
        command = [sys.executable, __file__, "--cell", cell.name, "--pairs", str(cell.pairs)]
        command += ["--device", options.device, "--threads", str(options.threads)]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode < 0:
            cell.refused = f"ended by signal {-done.returncode}, as for want of memory"
        elif done.returncode > 0:
            raise RuntimeError(f"{cell.name} at {cell.pairs} pairs failed:\n{done.stderr}")
        else:
            vars(cell).update(json.loads(done.stdout.splitlines()[-1]))


def grown(cell: Cell, cells: list[Cell]) -> float:
    """What the cell will need, from the same contestant at the largest size that ran."""
    ran = [c for c in cells if c.name == cell.name and c.added_bytes is not None]
    if not ran:
        return 0.0
    ratio: float = (cell.pairs / ran[-1].pairs) ** BY_NAME[cell.name].growth
    return ran[-1].added_bytes * ratio


def run_cell(name: str, pairs: int, device: str) -> dict[str, Any]:
    """In a fresh process: one call, its memory and what it says about itself."""
    contestant = BY_NAME[name]
    step = contestant.step()
    step(*inputs(16, device))  # libraries and threads have started
    limit = allowed(device)
    reset_peak(device)
    before = held_memory(device)
    x, y = inputs(pairs, device)
    if device == "cpu":
        limit_memory(limit)
    reset_peak(device)
    with_inputs = held_memory(device)
    try:
        began = time.perf_counter()
        value, *gradients = step(x, y)
        synchronize(device)
        seconds, peak = time.perf_counter() - began, peak_memory(device)
    except (RuntimeError, MemoryError) as error:
        return {"refused": asked_for(error, limit)}
    if seconds < 1:  # the first call of a size is not like the others
        seconds = timeit.timeit(partial(call, step, x, y, device), number=1)
    return {
        "call_seconds": seconds,
        "added_bytes": peak - with_inputs,
        "whole_bytes": peak - before,
        "value": None if contestant.kind == "floor" else float(value),
        "gradient_norm": float(torch.cat(gradients).norm()),
        "strategy": strategy(contestant, x, y),
    }


def allowed(device: str) -> int:
    """Bytes that a contestant may take."""
    return torch.cuda.mem_get_info()[0] if device == "cuda" else min(LIMIT, free_memory() - GIB)


def asked_for(error: RuntimeError | MemoryError, limit: int) -> str:
    """What the allocator said, in the words of a table; any other error is raised again."""
    asked = re.search(r"allocate (\d+) bytes|allocate ([\d.]+) (GiB|MiB)", str(error))
    if asked is None:
        raise error
    digits, amount, unit = asked.groups()
    gib = int(digits) / GIB if digits else float(amount) / (1 if unit == "GiB" else 1024)
    return f"asked for {gib:.1f} GiB more than fitted into {limit / GIB:.3g} GiB"


def strategy(contestant: Contestant, x: torch.Tensor, y: torch.Tensor) -> str:
    """How our loss held the scores of the negatives."""
    if contestant.kind != "ours":
        return ""
    loss = contestant.build()
    scores = loss.scores(x, y)
    loss.from_scores(scores)
    return repr(scores.negatives)


def measure_time(cells: Sequence[Cell], device: str, progress: Progress) -> None:
    """Contestants of one size take turns on the same inputs."""
    fitting = [cell for cell in cells if cell.call_seconds is not None]
    plans = {id(cell): Plan.of(cell.call_seconds or 0.0) for cell in fitting}
    expected = sum(plans[id(c)].rounds * plans[id(c)].calls * c.call_seconds for c in fitting)
    task = progress.add_task("timing", total=expected)
    for pairs, same in by_size(fitting):
        x, y = inputs(pairs, device)
        calls = {c.name: partial(call, BY_NAME[c.name].step(), x, y, device) for c in same}
        for cell in same:
            if cell.call_seconds < 5:  # warm-up; longer calls have none to speak of
                calls[cell.name]()
        mine = {cell.name: plans[id(cell)] for cell in same}
        taken = interleaved(calls, mine, partial(progress.advance, task))
        for cell in same:
            cell.seconds, cell.calls = taken[cell.name], mine[cell.name].calls
        if device == "cuda":
            torch.cuda.empty_cache()
    progress.update(task, completed=expected)


def by_size(cells: Sequence[Cell]) -> Iterator[tuple[int, list[Cell]]]:
    for pairs in sorted({cell.pairs for cell in cells}):
        yield pairs, [cell for cell in cells if cell.pairs == pairs]


def call(step: Any, x: torch.Tensor, y: torch.Tensor, device: str) -> None:
    step(x, y)
    synchronize(device)


def synchronize(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()


def record(
    cells: Sequence[Cell], checks: dict[str, Check], found: dict[str, Any], load: float
) -> str:
    """Everything on the page and the single samples, for other scripts."""
    everything = {
        "environment": {**found, "load": load},
        "dim": DIM,
        "checks": checks,
        "cells": cells,
        "targets": targets(cells, checks),
    }
    return strict_json(everything, indent=1) + "\n"


if __name__ == "__main__":
    main()

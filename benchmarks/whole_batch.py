"""What every process does for the whole batch, however small its own share.

    python benchmarks/whole_batch.py

``relatum train images`` draws the augmentation of all images of a batch on every process, and takes
the order of the epoch anew in every step. Half a minute. Writes
``docs/results/whole_batch_cpu.json``, which docs/scaling.md reads.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import torch
from measure import held_memory, machine, peak_memory, reset_peak, warn_if_busy
from rich.console import Console

from relatum.data import POLICIES
from relatum.runs import strict_json

RESULTS = Path(__file__).resolve().parents[1] / "docs" / "results" / "whole_batch_cpu.json"
SIZES = (65_536, 262_144, 1_048_576)
ROUNDS = 5


def main() -> None:
    """Measures, and writes the record."""
    console = Console()
    torch.set_num_threads(os.cpu_count() or 1)
    load = warn_if_busy(console)
    generator = torch.Generator().manual_seed(0)
    augmentation = POLICIES["simclr"](224)
    works: dict[str, Callable[[int], object]] = {
        "draws": lambda n: augmentation.draw(n, generator),
        "order": lambda n: torch.randperm(n, generator=generator),
    }
    cells = [
        {"work": name, "images": n, **measured(work, n)}
        for name, work in works.items()
        for n in SIZES
    ]
    kept = sum(getattr(augmentation.draw(1, generator), name).nbytes for name in FIELDS)
    everything = {
        "environment": {**machine(()), "load": load},
        "bytes_kept_per_view": kept,
        "cells": cells,
    }
    RESULTS.write_text(strict_json(everything, indent=1) + "\n", encoding="utf-8")
    console.print(f"wrote docs/results/{RESULTS.name}")


FIELDS = ("boxes", "flip", "order", "factors", "greyscale", "sigma", "angle", "shift")


def measured(work: Callable[[int], object], n: int) -> dict[str, object]:
    """Seconds of some calls, and the peak memory of one."""
    work(1000)
    reset_peak("cpu")
    before = held_memory("cpu")
    work(n)
    peak = peak_memory("cpu") - before
    seconds = []
    for _ in range(ROUNDS):
        began = time.perf_counter()
        work(n)
        seconds.append(time.perf_counter() - began)
    return {"seconds": seconds, "added_bytes": peak}


if __name__ == "__main__":
    main()

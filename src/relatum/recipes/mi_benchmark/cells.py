"""Running cells in processes of one thread each, and keeping what is finished."""

from __future__ import annotations

import datetime
import json
import math
import random
import time
import warnings
from collections.abc import Iterator, Sequence
from concurrent.futures import as_completed
from pathlib import Path
from typing import Any, Final, Protocol

import numpy as np
import torch
from rich.console import Console
from threadpoolctl import threadpool_limits

from ...mi.result import MIEstimate
from ...runs import atomic_write, strict_json
from ..experiments.workers import counting_bar, single_threaded
from .plan import Cell

__all__ = ["Estimator", "finish", "run_cell"]

Record = dict[str, Any]

_PACE: Final = 600.0  # seconds that the time left is judged by: estimators differ in speed


class Estimator(Protocol):
    """What the benchmark asks of :func:`relatum.estimate_mi`."""

    def __call__(self, x: Any, y: Any, method: str, *, seed: int, permutations: int) -> MIEstimate:
        """The estimate by one method."""
        ...


def finish(
    cells: Sequence[Cell], folder: Path, estimate: Estimator, jobs: int, console: Console
) -> list[Record]:
    """Runs what is not finished yet, and returns the records of all cells in their order.

    A cell whose estimator failed is written too, with its error, and is run again next time.
    """
    missing = [cell for cell in cells if _finished(cell.file(folder)) is None]
    # In a random order slow and fast cells mix, so that the time left is right from the start.
    random.Random(0).shuffle(missing)
    with counting_bar(console, speed_estimate_period=_PACE) as bar:
        line = bar.add_task("estimates", total=len(cells), completed=len(cells) - len(missing))
        for cell, record in _run(missing, estimate, jobs):
            atomic_write(cell.file(folder), strict_json(record).encode() + b"\n")
            bar.update(line, advance=1, description=f"{cell.method} on {cell.task}")
    return [json.loads(cell.file(folder).read_text(encoding="utf-8")) for cell in cells]


def _finished(path: Path) -> Record | None:
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return record if isinstance(record, dict) and record.get("error") is None else None


def _run(cells: list[Cell], estimate: Estimator, jobs: int) -> Iterator[tuple[Cell, Record]]:
    if jobs == 1:
        threads = torch.get_num_threads()
        torch.set_num_threads(1)
        try:
            with threadpool_limits(1):
                for cell in cells:
                    yield cell, run_cell(cell, estimate)
        finally:
            torch.set_num_threads(threads)
        return
    pool = single_threaded(jobs)
    try:
        running = {pool.submit(run_cell, cell, estimate): cell for cell in cells}
        for future in as_completed(running):
            yield running[future], future.result()
    finally:
        pool.shutdown(cancel_futures=True)


def run_cell(cell: Cell, estimate: Estimator) -> Record:
    """One estimate with its truth; an error of the estimator becomes part of the record."""
    task = cell.law
    columns = task.sample(cell.rows, cell.sample_seed)
    x, y = (_coded(side, flag) for side, flag in zip(columns, task.discrete, strict=True))
    record: Record = {
        **cell._asdict(),
        "truth": None if math.isnan(task.mutual_information) else task.mutual_information,
        "created": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "error": None,
    }
    began = time.process_time()
    try:
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            found = estimate(x, y, cell.method, seed=cell.seed, permutations=0)
    except (ValueError, ArithmeticError, RuntimeError) as error:
        return {**record, "error": f"{type(error).__name__}: {error}"}
    record |= {
        "value": found.value,
        "low": found.interval[0],
        "high": found.interval[1],
        "kind": found.kind,
        "level": found.level,
        "seconds": time.process_time() - began,
        "warnings": sorted({*found.warnings, *(str(each.message) for each in said)}),
    }
    numbers = [record["value"], record["low"], record["high"]]
    if not all(map(math.isfinite, numbers)):
        record["error"] = f"value and interval are not all finite: {numbers}"
    return record


def _coded(side: np.ndarray, discrete: bool) -> np.ndarray:
    """Values to count as text, which no estimator takes for numbers."""
    return side.astype(int).astype(str) if discrete else side

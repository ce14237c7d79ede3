"""An experiment is a list of cells, each one training with its measurements; finished ones stay.

A folder holds ``cells/NAME.json`` of every finished cell, ``runs/NAME`` of every training, and
nothing else that counts: a killed experiment goes on where it stopped, inside a training too.
"""

from __future__ import annotations

import datetime
import json
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from rich.console import Console

from ...runs import Run, RunError, atomic_write, environment, strict_json
from .workers import counting_bar, single_threaded

__all__ = ["Cell", "Record", "Work", "finish", "made_by", "processes", "read_finished"]

Record = dict[str, Any]

Work = Callable[["Cell", Path, Console], Record]
"""Makes the record of a cell. A function of a module, since processes of their own call it; the
path is the experiment's folder, the console where a training may show its progress."""

_POLL: Final = 2.0  # seconds between two looks at what runs


@dataclass(frozen=True)
class Cell:
    """One training and what is measured of it.

    Attributes:
        name: Unique in the experiment, and a file name: "rpc-0".
        plan: Everything that the record depends on; a finished cell with another plan is refused.
        steps: Updates of its training, 0 without one: the measure of the time it takes.
        defaults: What settings are where nothing is said. A cell of an older version lacks the
            newer settings: it was made with what is now their default.
    """

    name: str
    plan: Mapping[str, Any] = field(hash=False)
    steps: int = 0
    defaults: Mapping[str, Any] = field(default_factory=dict, hash=False)

    def path(self, folder: Path) -> Path:
        """Where its record is kept."""
        return folder / "cells" / f"{self.name}.json"

    def run(self, folder: Path) -> Path:
        """Where its training is kept."""
        return folder / "runs" / self.name


def processes(jobs: int | None, device: str) -> int:
    """How many cells run at a time: as given, else one a processor, and one on a GPU."""
    if jobs is not None:
        return jobs
    if device != "cpu":
        return 1
    if hasattr(os, "sched_getaffinity"):  # not on every system
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def made_by() -> dict[str, str]:
    """The versions and the machine that a number depends on."""
    found = environment()
    names = ("torch", "numpy", "scikit-learn")
    versions = ", ".join(f"{name} {found['versions'][name]}" for name in names)
    gpu = None if found["accelerator"] == "none" else found["accelerator"]
    return {
        "versions": f"Python {found['python']}, {versions}",
        "machine": gpu or f"{found['platform']}, no GPU",
    }


def finish(
    cells: Sequence[Cell], folder: Path, work: Work, *, jobs: int, console: Console
) -> dict[str, Record]:
    """Runs the cells that are not finished, and returns the records of all by name.

    Args:
        cells: In the order in which they are begun; seeds outermost, a run that is cut short has
            one seed of everything.
        folder: Of the experiment.
        work: What makes a record.
        jobs: Cells at a time. With more than one each runs in a process of its own with one thread;
            a single one runs here, with its own lines of progress.
        console: Where progress goes.

    Raises:
        RunError: If a finished cell was made with other settings, its file is damaged, or a cell
            failed: the others are run first, and each failure is named.
        ValueError: If two cells share a name.
    """
    if len({cell.name for cell in cells}) < len(cells):
        raise ValueError("two cells share a name")
    done = read_finished(cells, folder)
    missing = [cell for cell in cells if cell.name not in done]
    if missing and done:
        console.out(f"{len(done)} of {len(cells)} cells are finished already", highlight=False)
    run = _here if jobs == 1 else _apart
    failed: dict[str, Exception] = {}
    results = run(missing, folder, work, jobs, console)
    for number, (cell, found) in enumerate(results, len(done) + 1):
        if isinstance(found, Exception):
            failed[cell.name] = found
        said = f"{found}" if isinstance(found, Exception) else f"{found['seconds']:.0f} s"
        console.out(f"{number}/{len(cells)} {cell.name}: {said}", highlight=False)
    if failed:
        each = "; ".join(f"{name} ({type(e).__name__}: {e})" for name, e in failed.items())
        first = next(iter(failed.values()))
        raise RunError(
            f"{len(failed)} of {len(cells)} cells failed, the others are kept: {each}"
        ) from first
    return read_finished(cells, folder)


def read_finished(cells: Sequence[Cell], folder: Path) -> dict[str, Record]:
    """The records of the finished cells.

    Raises:
        RunError: If one was made with other settings, or is damaged.
    """
    found = {}
    for cell in cells:
        path = cell.path(folder)
        if not path.exists():
            continue
        try:
            record = json.loads(path.read_text(encoding="utf-8"))
        except ValueError as error:
            raise RunError(f"{path} is damaged ({error}); remove it") from None
        plan = json.loads(strict_json(cell.plan))
        old = json.loads(strict_json(cell.defaults)) | (record.get("plan") or {})
        if keys := [key for key in plan if plan[key] != old.get(key)]:
            changed = "; ".join(f"{key}: {old.get(key)} -> {plan.get(key)}" for key in sorted(keys))
            raise RunError(f"{path} was made with other settings ({changed}); choose another --out")
        found[cell.name] = record
    return found


def _here(
    cells: Sequence[Cell], folder: Path, work: Work, jobs: int, console: Console
) -> Iterator[tuple[Cell, Record | Exception]]:
    for cell in cells:
        try:
            yield cell, _keep(cell, folder, work, jobs, console)
        except Exception as error:
            yield cell, error


def _apart(
    cells: Sequence[Cell], folder: Path, work: Work, jobs: int, console: Console
) -> Iterator[tuple[Cell, Record | Exception]]:
    """Several at a time; the bar counts the updates of those that run, too."""
    pool = single_threaded(jobs)
    work_of = {cell: max(1, cell.steps) for cell in cells}
    bar = counting_bar(console, disable=not console.is_terminal)
    try:
        with bar:
            line = bar.add_task("steps", total=sum(work_of.values()))
            running: dict[Future[Record], Cell] = {
                pool.submit(_keep, cell, folder, work, jobs, None): cell for cell in cells
            }
            past = 0
            while running:
                ready, _ = wait(running, timeout=_POLL, return_when=FIRST_COMPLETED)
                for future in ready:
                    cell = running.pop(future)
                    past += work_of[cell]
                    error = future.exception()
                    if error is not None and not isinstance(error, Exception):
                        raise error  # asked to stop
                    yield cell, future.result() if error is None else error
                under_way = sum(_steps_so_far(cell, folder) for cell in running.values())
                bar.update(line, completed=past + under_way)
    finally:
        pool.shutdown(cancel_futures=True)


def _keep(cell: Cell, folder: Path, work: Work, jobs: int, console: Console | None) -> Record:
    began = time.perf_counter()
    result = work(cell, folder, console or Console(quiet=True))
    record = {
        "plan": dict(cell.plan),
        "created": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "seconds": round(time.perf_counter() - began, 1),
        "made": {**made_by(), "jobs": jobs},
        **result,
    }
    atomic_write(cell.path(folder), strict_json(record).encode() + b"\n")
    return record


def _steps_so_far(cell: Cell, folder: Path) -> int:
    """Updates that the log of a running cell knows of."""
    try:
        lines = Run(cell.run(folder)).metrics()
    except (OSError, ValueError):
        return 0
    return min(cell.steps, int(lines[-1]["step"])) if lines else 0

"""From an experiment's options and cells to its table, its page and its records."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

from rich.console import Console

from ...runs import RunError
from .cells import Cell, Record, Work, finish, processes, read_finished
from .settings import Experiment

__all__ = ["Page", "reproduce"]


class Page(Protocol):
    """What an experiment shows of its records."""

    def __call__(
        self, records: Mapping[str, Record], *, page: Path | None, command: str, jobs: int
    ) -> str:
        """Writes the page if one is asked for; returns its table and findings as text."""
        ...


def reproduce(
    settings: Experiment,
    name: str,
    every: Sequence[Cell],
    work: Work,
    write: Page,
    console: Console | None = None,
) -> dict[str, Record]:
    """Runs the chosen cells that are not finished, prints the table, writes the page.

    Args:
        settings: Of the experiment.
        name: Of its command.
        every: All its cells.
        work: What makes the record of a cell.
        write: Makes table and page from the records of all finished cells.
        console: Where progress and table go.

    Returns:
        The records of the finished cells, by name.

    Raises:
        RunError: If the folder holds cells with other settings or of other images, or if a cell
            failed; the others are run, and kept.
        ValueError: If no cell has such a name.
    """
    console = console or Console()
    chosen = settings.chosen(every)
    folder = settings.out or Path("runs") / f"{name}-{settings.preset}"
    jobs = processes(settings.jobs, str(chosen[0].plan["device"]))
    finish(chosen, folder, work, jobs=jobs, console=console)
    records = read_finished(every, folder)
    _check_images(records)
    text = write(records, page=settings.page, command=settings.command(name), jobs=jobs)
    console.out(text, highlight=False)
    return records


def _check_images(records: Mapping[str, Record]) -> None:
    """Raises RunError if cells of one data set saw different images."""
    first: dict[str, tuple[str, int]] = {}
    for name, record in records.items():
        if (images := record.get("images")) is None:  # of an older version, or not of images
            continue
        other, seen = first.setdefault(str(record["plan"].get("set")), (name, images))
        if images != seen:
            raise RunError(
                f"cells {other} and {name} were trained on different images; choose another --out"
            )

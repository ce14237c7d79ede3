"""From an experiment's options and cells to its finished records."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from rich.console import Console

from .cells import Cell, Record, Work, finish, processes, read_finished
from .settings import Experiment

__all__ = ["Finished", "carry_out"]


class Finished(NamedTuple):
    """The records of all finished cells by name, and how many ran at a time."""

    records: dict[str, Record]
    jobs: int


def carry_out(
    settings: Experiment,
    command: str,
    preset: str,
    every: Sequence[Cell],
    work: Work,
    console: Console,
) -> Finished:
    """Runs the chosen cells that are not finished.

    Args:
        settings: Of the experiment.
        command: Its name, for the default folder.
        preset: Its preset, for the same.
        every: All its cells.
        work: What makes a record.
        console: Where progress goes.

    Raises:
        RunError: If the folder holds cells with other settings.
        ValueError: If no cell has such a name.
    """
    chosen = settings.chosen(every)
    folder = settings.folder(command, preset)
    jobs = processes(settings.jobs, str(chosen[0].plan["device"]))
    finish(chosen, folder, work, jobs=jobs, console=console)
    return Finished(read_finished(every, folder), jobs)

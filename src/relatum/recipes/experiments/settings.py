"""The options that all reproductions share."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass, fields
from fnmatch import fnmatch
from pathlib import Path

from ...settings import check_choices, choice
from .cells import Cell

__all__ = ["Experiment"]


@dataclass(frozen=True)
class Experiment:
    """Options of a reproduction; each command says what its presets are."""

    preset: str = choice("cpu", ("cpu", "gpu", "paper"))

    data: Path | None = None
    """Folder of the data. Default: the data set's name in the folder $RELATUM_DATA, else in data or
    ../shared/data."""

    out: Path | None = None
    """Folder of the experiment. Finished cells are kept: a second call goes on where the first
    stopped. Default: runs/ and the name of command and preset."""

    seeds: int = 3
    """Seeds 0, 1, ..."""

    steps: int | None = None
    """Updates of each training, instead of the preset's epochs."""

    cells: str = "*"
    """Run only the cells whose name matches, as "rpc-*" or "*-0"."""

    jobs: int | None = None
    """Cells at a time, one thread each. Default: the number of processors; 1 on a GPU."""

    page: Path | None = None
    """Page (.md) to write from the finished cells, with its figure and numbers beside it."""

    def __post_init__(self) -> None:
        check_choices(self)
        for name in ("seeds", "steps", "jobs"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name} must be at least 1, got {value}")
        if self.page is not None and self.page.suffix != ".md":
            raise ValueError(f"page must end in .md, got {self.page}")

    def command(self, name: str) -> str:
        """What makes the cells: the command with all that is not its default."""
        place = ("preset", "data", "out", "jobs", "page")
        said = [
            f" --{each.name.replace('_', '-')} {shlex.quote(str(getattr(self, each.name)))}"
            for each in fields(self)
            if each.name not in place and getattr(self, each.name) != each.default
        ]
        return f"relatum reproduce {name} --preset {self.preset}" + "".join(said)

    def given(self) -> dict[str, int]:
        """What is said here in place of a preset's settings."""
        return {} if self.steps is None else {"steps": self.steps}

    def chosen(self, every: Sequence[Cell]) -> list[Cell]:
        """The cells whose names match.

        Raises:
            ValueError: If none does; the message lists all.
        """
        found = [cell for cell in every if fnmatch(cell.name, self.cells)]
        if not found:
            names = ", ".join(cell.name for cell in every)
            raise ValueError(f"--cells {self.cells!r} matches none of {names}")
        return found

"""``relatum report`` and ``relatum objectives``: pages and tables that people read."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from rich.console import Console

from ..objectives import OBJECTIVES
from ..objectives.table import table_rows
from ..report import render
from ..settings import POSITIONAL, unknown
from .tables import objective_card, objective_table

__all__ = ["Objectives", "Report", "list_objectives", "main"]


@dataclass(frozen=True)
class Report:
    """Make one self-contained HTML page from run directories."""

    runs: list[Path] = field(metadata=POSITIONAL)
    """Run directories; runs that differ only in their seed are averaged."""

    out: Path = Path("report.html")
    """The page."""

    def __post_init__(self) -> None:
        if not self.runs:
            raise ValueError("name at least one run directory")


def main(settings: Report, console: Console | None = None) -> Path:
    """Writes the page and returns its path.

    Raises:
        RunError: If a run is missing or damaged.
        ValueError: If ``out`` is a folder.
    """
    if settings.out.is_dir():
        raise ValueError(
            f"--out {settings.out} is a folder; name the page in it, such as "
            f"{settings.out / 'report.html'}"
        )
    page = render(settings.runs, settings.out)
    (console or Console()).out(f"report: {page}", highlight=False)
    return page


@dataclass(frozen=True)
class Objectives:
    """Print the objectives: formula, what they need of the negatives, optimum, verdicts.

    With a name, one of them with all that is known of it.

    Example: relatum objectives rpc
    """

    name: str | None = field(default=None, metadata=POSITIONAL)
    """The objective to explain, such as rpc or cpc. Default: all, in a table."""

    def __post_init__(self) -> None:
        if self.name is not None and self.name not in OBJECTIVES:
            raise unknown("objective", self.name, OBJECTIVES)


def list_objectives(settings: Objectives, console: Console | None = None) -> None:
    """Prints the table that the objectives' own cards make, or the card of one."""
    rows = table_rows()
    shown = objective_table(rows)
    if settings.name is not None:
        shown = objective_card(next(row for row in rows if row["name"] == settings.name))
    (console or Console()).print(shown)

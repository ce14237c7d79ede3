"""``relatum reproduce mi-staircase``: do estimators follow a mutual information that climbs?"""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import Any, Final

import torch
from rich.console import Console

from ..runs import RunError, atomic_write, strict_json
from ..settings import check_choices, choice
from .experiments.workers import counting_bar
from .staircase import LEVELS, Plan, oracle, read_cells, train_cell, write_page
from .staircase.cells import Cell, read_json

__all__ = ["PRESETS", "Staircase", "main"]

PRESETS: Final[dict[str, dict[str, Any]]] = {
    "paper": {
        "steps": 20_000, "width": 512, "batch_size": 128, "learning_rate": 1e-3, "seeds": 3,
    },
    # A schedule 13 times shorter, narrower, at a higher rate: see CHOICE.
    "cpu": {"steps": 1_500, "width": 128, "batch_size": 128, "learning_rate": 3e-3, "seeds": 2},
    # The same for four times as long, and nothing else: what does training do to the read-outs?
    "rpc-long": {
        "steps": 6_000, "width": 128, "batch_size": 128, "learning_rate": 3e-3, "seeds": 2,
        "trainings": ("rpc", "rpc-logit"),
    },
}  # fmt: skip
CHOICE: Final = """\
Width and rate were chosen for RPC on raw scores, *gaussian*, seed 100 (not one of this page), by \
its own objective J alone and never by the mutual information: J of the batches of the last half \
of each level, geometric mean over the levels, is 61, 120, 155 and 181 for width 64 at the rates \
0.001, 0.002, 0.003 and 0.005, and 128, 190, **210** and 195 for width 128. All estimators share \
that choice; none but RPC had a say in it."""
ORACLE_BATCHES: Final = 1000


@dataclass(frozen=True)
class Staircase:
    """Follow a mutual information that climbs from 2 to 10 nats, by every estimator."""

    out: Path = Path("runs/mi-staircase")
    """Folder of finished cells, one file each. A second call keeps them and trains the others."""

    preset: str = choice("cpu", PRESETS)
    """paper: 20,000 steps, width 512, learning rate 1e-3, 3 seeds, for a large machine. cpu: 1,500
    steps, width 128, learning rate 3e-3, 2 seeds, 40 trainings, about 74 minutes on one core beside
    other work. rpc-long: the same for 6,000 steps, RPC on raw scores and in the logit form alone,
    half as long."""

    steps: int | None = None
    """Updates in all, a fifth of them at each level. Default: by the preset."""

    width: int | None = None
    """Width of the two hidden layers. Default: by the preset."""

    batch_size: int | None = None
    """Fresh pairs a step; all other pairs of the batch are negatives. Default: by the preset."""

    seeds: int | None = None
    """Seeds 0, 1, ... Default: by the preset."""

    learning_rate: float | None = None
    """Of Adam. Default: by the preset."""

    cells: str = "*"
    """Train only the cells whose name matches, such as "gaussian-*" or "*-rpc-0"."""

    threads: int = 1
    """Threads of the processor."""

    page: Path | None = None
    """Page (.md) to write from the finished cells, with its figure (.svg) beside it."""

    reference: Path | None = None
    """Folder with rpc_gaussian_curves.npz and rpc_gaussian_reference.csv, curves of the paper's
    authors to show beside ours."""

    longer: Path | None = None
    """Folder of finished cells of a longer schedule; the page gets a section that compares."""

    def __post_init__(self) -> None:
        check_choices(self)
        for name, least in (("steps", 4 * len(LEVELS)), ("width", 1), ("batch_size", 2),
                            ("seeds", 1), ("threads", 1)):  # fmt: skip
            value = getattr(self, name)
            if value is not None and value < least:
                raise ValueError(f"{name} must be at least {least}, got {value}")
        if self.learning_rate is not None and not self.learning_rate > 0:
            raise ValueError(f"learning_rate must be above 0, got {self.learning_rate}")
        if self.page is not None and self.page.suffix != ".md":
            raise ValueError(f"page must end in .md, got {self.page}")

    def plan(self) -> Plan:
        """What all cells share: the preset, with what was given in its place."""
        values = dict(PRESETS[self.preset])
        given = {name: value for name in values if (value := getattr(self, name, None)) is not None}
        return Plan(**values | given)


def main(settings: Staircase, console: Console | None = None) -> Path:
    """Trains the cells that are missing, measures the perfect critic, writes the page.

    Returns:
        The page if one was asked for, else the folder of cells.

    Raises:
        RunError: If the folder holds cells with other settings, or a page is asked for before any
            cell is there.
        ValueError: If no cell has such a name, or the reference is not there.
    """
    console = console or Console()
    plan = settings.plan()
    torch.set_num_threads(settings.threads)
    wanted = [cell for cell in plan.cells() if fnmatch(cell.name, settings.cells)]
    if not wanted:
        names = ", ".join(cell.name for cell in plan.cells())
        raise ValueError(f"--cells {settings.cells!r} matches none of {names}")
    for name in ("reference", "longer"):
        folder = getattr(settings, name)
        if folder is not None and not folder.is_dir():
            raise ValueError(f"--{name} {folder} is not a folder")
    settings.out.mkdir(parents=True, exist_ok=True)
    done = read_cells(plan, settings.out)
    _train([cell for cell in wanted if cell not in done], plan, settings.out, console)
    if settings.page is None:
        return settings.out
    cells = read_cells(plan, settings.out)
    if not cells:
        raise RunError(f"{settings.out} has no finished cell to make a page from")
    perfect = _perfect(settings.out, plan.batch_size)
    page = write_page(
        settings.page,
        plan,
        cells,
        perfect,
        note=CHOICE if plan == Plan(**PRESETS["cpu"] | {"seeds": plan.seeds}) else None,
        reference=settings.reference,
        longer=settings.longer,
    )
    console.out(f"page: {page}", highlight=False)
    return page


def _train(cells: list[Cell], plan: Plan, folder: Path, console: Console) -> None:
    """Trains and keeps each cell; a bar on a terminal, one line a cell elsewhere."""
    with counting_bar(console, disable=not console.is_terminal) as bar:
        task = bar.add_task("steps", total=len(cells) * plan.steps)
        for number, cell in enumerate(cells, start=1):
            bar.update(task, description=cell.name)
            train_cell(cell, plan, folder, lambda: bar.advance(task))
            left = bar.tasks[0].time_remaining
            rest = "" if left is None else f", about {left / 60:.0f} min left"
            seconds = read_json(cell.path(folder))["seconds"]
            said = f"{number}/{len(cells)} {cell.name}: {seconds:.0f} s{rest}"
            console.out(said, highlight=False)


def _perfect(folder: Path, batch_size: int) -> Any:
    """The readings of the perfect critic, kept beside the cells."""
    path = folder / f"oracle-{batch_size}.json"
    if not path.exists():
        measured = oracle(ORACLE_BATCHES, batch_size)
        atomic_write(path, strict_json(measured).encode() + b"\n")
    return read_json(path)

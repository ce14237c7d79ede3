"""``relatum mi``: how much the columns of a table tell about each other."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from ..mi.estimate import METHODS, estimate_mi
from ..mi.fitting import CRITICS
from ..mi.methods import TRAINED
from ..mi.result import KINDS, MIEstimate
from ..report.mi_page import mi_page
from ..runs import atomic_write, environment, strict_json
from ..settings import POSITIONAL, check_choices, check_seed, choice, unknown
from .mi_data import MIData, read_mi_data
from .tables import mi_table

__all__ = ["MI", "main"]


@dataclass(frozen=True)
class MI:
    """Estimate how much columns of a table tell about each other: their mutual information.

    It is zero only if the two sides are independent, whatever the form of the relation. Several
    methods stand side by side, each with the kind of number it gives (a lower bound, or an estimate
    that errs to either side), an interval for the noise of the sample, and warnings. Name the
    methods beforehand: picking the largest value afterwards is a bias of its own.

    Example: relatum mi cells.csv --x gene1,gene2 --y drug --html cells.html
    """

    data: Path = field(metadata=POSITIONAL)
    """File: .csv or .tsv with a line of names, .parquet, .npy (n, d) or .npz."""

    x: str = "x"
    """Columns of one side: names (a,b), patterns ('gene_*', in quotes), numbers from 0 (0,3),
    ranges with both ends (a:c, 0:4). Where a field holds several numbers a row (npz, parquet): key,
    key[3] or key[0:4]."""

    y: str = "y"
    """Columns of the other side. The order of sides makes no difference."""

    method: str = "rpc,ksg,gaussian"
    """Methods separated by commas, or all. Without training: gaussian (exact for normal data, blind
    to what correlations do not show), ksg (nearest neighbours, for few columns), discrete, mixed,
    histogram (for classes and counts). By a trained critic, for many columns or rows: rpc, chi2,
    smile (plug-in: err to either side); cpc, nwj, js, tuba (lower bounds); dv, mine (the same, but
    biased upwards in few rows). By two trained densities: doe, doe-logistic (a difference, errs to
    either side)."""

    critic: str | None = choice(None, CRITICS)
    """Methods of a trained critic: kernel = a closed form without a network, several times as fast;
    residual = a network added to that; joint, separable = networks alone. Default: residual, and
    kernel for chi2."""

    seed: int = 0
    """Seed of splits, resampling and training."""

    level: float = 0.95
    """Coverage of the interval."""

    folds: int | None = None
    """Trained methods: so many critics, each read on the rows that it has not seen. Default: 5, and
    2 from 10,000 rows on."""

    seeds: int = 1
    """Trained methods: trainings with different seeds, which are averaged; their spread is told."""

    groups: str | None = None
    """Column of groups (patients, speakers) whose rows are not independent: a group is never
    split between training and reading, and is resampled as a whole. There is then no p-value."""

    block_length: int | None = None
    """For rows in the order of time: over how many rows they depend on each other. Stretches are
    held out and resampled."""

    permutations: int = 199
    """Random pairings of the rows for the p-value; 0: none."""

    missing: str = choice("error", ("error", "drop"))
    """What to do with rows that lack a value in a chosen column: stop, or leave out and count."""

    header: bool | None = None
    """Whether the first line of a text file holds names. Default: yes; numbers there are an error.
    """

    unit: str = choice("nats", ("nats", "bits"))
    """1 nat is 1.44 bits."""

    json: Path | None = None
    """Write everything, with the value of each row, to this file."""

    html: Path | None = None
    """Write one self-contained page with figures and explanations to this file."""

    progress: bool = True
    """Show a bar with the time left, on a terminal."""

    def __post_init__(self) -> None:
        check_choices(self)
        check_seed("seed", self.seed)
        for name in self.methods:
            if name not in METHODS:
                raise unknown("method", name, METHODS)
        if len(set(self.methods)) < len(self.methods):
            raise ValueError(f"method names {self.method!r} hold one of them twice")
        if self.critic is not None and not any(name in TRAINED for name in self.methods):
            raise ValueError(f"critic belongs to {', '.join(TRAINED)}, got method {self.method}")
        if not 0 < self.level < 1:
            raise ValueError(f"level must be between 0 and 1, got {self.level}")
        if self.permutations < 0:
            raise ValueError(f"permutations must not be negative, got {self.permutations}")
        for name, least in (("folds", 2), ("seeds", 1), ("block_length", 1)):
            value = getattr(self, name)
            if value is not None and value < least:
                raise ValueError(f"{name} must be at least {least}, got {value}")
        if self.groups is not None and self.block_length is not None:
            raise ValueError("give groups or block_length, not both")

    @property
    def methods(self) -> list[str]:
        """The methods by name, in the order given."""
        if self.method.strip() == "all":
            return list(METHODS)
        return [name.strip() for name in self.method.split(",")]


def main(settings: MI, console: Console | None = None) -> list[MIEstimate]:
    """Prints the estimates side by side, and writes the files asked for.

    A method that does not fit the data is listed with its reason.

    Raises:
        ValueError: If the data cannot be used, or no method gives an estimate.
    """
    console = console or Console()
    for path in (settings.json, settings.html):
        if path is not None and path.is_dir():
            raise ValueError(f"{path} is a folder; name a file in it")
    data = read_mi_data(
        settings.data,
        settings.x,
        settings.y,
        groups=settings.groups,
        drop_missing=settings.missing == "drop",
        header=settings.header,
    )
    estimates, refused = _estimates(settings, data, console)
    record = _record(settings, data, estimates, refused)
    console.print(mi_table(record))
    if settings.json is not None:
        atomic_write(settings.json, strict_json(record).encode() + b"\n")
        console.out(f"json: {settings.json}", highlight=False)
    if settings.html is not None:
        atomic_write(settings.html, mi_page(record, _points(data)).encode())
        console.out(f"page: {settings.html}", highlight=False)
    return estimates


def _estimates(
    settings: MI, data: MIData, console: Console
) -> tuple[list[MIEstimate], dict[str, str]]:
    """What each method gives, and the reasons of those that give nothing."""
    found: list[MIEstimate] = []
    refused: dict[str, str] = {}
    for method, progress in _shown(settings, console):
        own: dict[str, Any] = {}
        if settings.critic is not None and method in TRAINED:
            own["critic"] = settings.critic
        try:
            estimate = estimate_mi(
                data.x,
                data.y,
                method=method,
                seed=settings.seed,
                level=settings.level,
                folds=settings.folds,
                groups=data.groups,
                block_length=settings.block_length,
                permutations=settings.permutations,
                progress=progress,
                seeds=settings.seeds,
                **own,
            )
        except ValueError as error:
            refused[method] = str(error)
        else:
            found.append(estimate.in_bits() if settings.unit == "bits" else estimate.in_nats())
    if not found:
        reasons = dict.fromkeys(refused.values())
        raise ValueError(f"no method gives an estimate for {settings.data}: {'; '.join(reasons)}")
    return found, refused


def _shown(settings: MI, console: Console) -> Iterator[tuple[str, Callable[[int, int], None]]]:
    """The methods, one by one, and what moves the bar while they are at work."""
    columns = (TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn())
    disabled = not settings.progress or not console.is_terminal
    with Progress(*columns, console=console, transient=True, disable=disabled) as bar:
        task = bar.add_task("", total=len(settings.methods))
        for place, method in enumerate(settings.methods):
            bar.update(task, description=f"{method} ({place + 1}/{len(settings.methods)})")

            def move(done: int, of: int, place: int = place) -> None:
                bar.update(task, completed=place + done / of)

            yield method, move
            bar.update(task, completed=place + 1)


def _record(
    settings: MI, data: MIData, estimates: list[MIEstimate], refused: dict[str, str]
) -> dict[str, Any]:
    """Everything there is to tell, as plain values: what ``--json`` writes and the page shows."""
    return {
        "data": settings.data.name,
        "x": [str(name) for name in data.x.columns],
        "y": [str(name) for name in data.y.columns],
        "rows": len(data.x),
        "dropped": data.dropped,
        "groups": settings.groups,
        "block_length": settings.block_length,
        "unit": settings.unit,
        "level": settings.level,
        "critic": settings.critic,
        "kinds": dict(KINDS),
        "estimates": [estimate.to_dict() for estimate in estimates],
        "refused": refused,
        "environment": environment(),
    }


def _points(data: MIData) -> tuple[list[float], list[float]] | None:
    """X and y of each row where both are one column of numbers."""
    sides = (data.x, data.y)
    if any(side.shape[1] != 1 or side.dtypes.iloc[0].kind not in "iuf" for side in sides):
        return None
    x, y = (side.iloc[:, 0].tolist() for side in sides)
    return x, y

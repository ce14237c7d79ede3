"""``relatum mi-benchmark``: estimators of mutual information against known values."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from ...mi import METHODS, estimate_mi
from ...mi.tasks import TASKS
from ...runs import atomic_write, strict_json
from ...settings import check_choices, check_seed, choice, unknown
from .cells import Estimator, finish
from .independence import INDEPENDENCE_HEAD, Independence, independence, independence_rows
from .page import CONSISTENCY_HEAD, HEAD, consistency_rows, page, rows, table
from .plan import PRESETS, plan
from .summary import Consistency, Summary, consistency, summarise

__all__ = ["MIBenchmark", "main"]


@dataclass(frozen=True)
class MIBenchmark:
    """Measure estimators of mutual information on tasks whose value is known."""

    preset: str = choice("quick", PRESETS)
    """What is run: quick (minutes); coverage (ksg and gaussian 100 times on 8 tasks, rpc 40 times
    on 8, the others on 3); full (every method on every task of its kind); self-consistency
    (independence, data processing, additivity); independence (every method on 200 to 5,000 rows of
    1 to 50 independent columns a side: what does it claim?)."""

    methods: str | None = None
    """Methods, separated by commas. Default: those of the preset."""

    tasks: str | None = None
    """Tasks, separated by commas. Default: those of the preset for each method."""

    rows: int | None = None
    """Rows of every sample. Default: 1,000; for independence 200, 1,000 and 5,000 in turn."""

    repeats: int | None = None
    """Samples of every task. Default: those of the preset for each method."""

    seed: int = 0
    """Seed of the first sample; the others count up from it."""

    jobs: int | None = None
    """Estimates made at the same time, each on one thread. Default: one a core."""

    out: Path = Path("runs/mi-benchmark")
    """Folder that keeps each finished estimate; a second call continues with what is missing."""

    page: Path | None = None
    """The markdown page; the numbers go to a JSON file beside it. Default: OUT/PRESET.md."""

    def __post_init__(self) -> None:
        check_choices(self)
        check_seed("seed", self.seed)
        for name in ("repeats", "jobs"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name} must be at least 1, got {value}")
        if self.rows is not None and self.rows < 2:
            raise ValueError(f"rows must be at least 2, got {self.rows}")
        _names("method", self.methods, METHODS)
        _names("task", self.tasks, TASKS)


def main(
    settings: MIBenchmark, console: Console | None = None, *, estimate: Estimator = estimate_mi
) -> Path:
    """Runs what is missing, prints the tables, and returns the path of the page.

    Args:
        settings: What to run.
        console: Where progress and tables are shown.
        estimate: The estimator measured; by default :func:`relatum.estimate_mi`. With several
            jobs it must be a function of a module.

    Raises:
        ValueError: If a task cannot take part in the self-consistency tests.
    """
    console = console or Console()
    cells = plan(
        settings.preset,
        _names("method", settings.methods, METHODS),
        _names("task", settings.tasks, TASKS),
        settings.rows,
        settings.repeats,
        settings.seed,
    )
    jobs = settings.jobs or os.cpu_count() or 1
    records = finish(cells, settings.out, estimate, jobs, console)
    summaries: list[Summary] = []
    found: list[Consistency] = []
    claims: list[Independence] = []
    if settings.preset == "self-consistency":
        found = consistency(records)
        console.print(table("Self-consistency", CONSISTENCY_HEAD, consistency_rows(found)))
    elif settings.preset == "independence":
        claims = independence(records)
        console.print(table("Independent sides", INDEPENDENCE_HEAD, independence_rows(claims)))
    else:
        summaries = summarise(records)
        console.print(table("Mutual information, nats", HEAD, rows(summaries)))
    path = settings.page or settings.out / f"{settings.preset}.md"
    atomic_write(path, page(summaries, found, claims, records).encode())
    numbers = {
        "summaries": summaries,
        "consistency": found,
        "independence": claims,
        "estimates": records,
    }
    atomic_write(path.with_suffix(".json"), strict_json(numbers, indent=1).encode() + b"\n")
    console.out(f"page: {path}", highlight=False)
    return path


def _names(what: str, text: str | None, known: Iterable[str]) -> tuple[str, ...] | None:
    """The names in a text with commas, each of which must be known."""
    if text is None:
        return None
    names = tuple(dict.fromkeys(word.strip() for word in text.split(",")))
    for name in names:
        if name not in known:
            raise unknown(what, name, known)
    return names

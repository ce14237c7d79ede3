"""``relatum fit`` and ``relatum retrieve``: two sides of a table, embedded and found again."""

from __future__ import annotations

import csv
import io
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from rich import box
from rich.console import Console
from rich.table import Table

from ..estimators import ContrastiveEncoder, LinearRPC, load, split_rows
from ..objectives import OBJECTIVES
from ..runs import atomic_write, environment, strict_json
from ..settings import POSITIONAL, SettingsError, check_choices, check_seed, check_used, choice
from .mi_data import read_mi_data

__all__ = ["Fit", "Retrieve", "fit", "retrieve"]

_SHOWN = 5  # queries on the terminal

_MEANING = {
    "objective": "J of the objective",
    "mutual_information": "reading of mutual information, nats",
    "recall@1": "partner is the best",
    "recall@5": "partner is among the best 5",
    "recall@10": "partner is among the best 10",
    "mean_rank": "mean rank of the partner",
    "alignment": "squared distance of partners (0 to 4)",
    "uniformity": "evenness of y's embeddings (lower is more even)",
    "effective_rank": "directions that y's embeddings use",
    "class_error": "error of the nearest class mean",
    "class_pair_error": "the same between two classes",
    "certified_risk": "certified risk of class means (1: says nothing)",
}


@dataclass(frozen=True)
class Fit:
    """Embed two sides of a table so that rows that belong together are near each other.

    Some rows are held out and measured: does a row of x find its own row of y among them? The
    model is written to a file for `relatum retrieve` and for Python (relatum.estimators.load).

    Example: relatum fit cells.parquet --x 'gene_*' --y 'protein_*' --out cells.pt
    """

    data: Path = field(metadata=POSITIONAL)
    """File: .csv or .tsv with a line of names, .parquet, .npy (n, d) or .npz."""

    x: str = "x"
    """Columns of one side: names (a,b), patterns ('a_*'), numbers from 0, ranges with both ends."""

    y: str = "y"
    """Columns of the other side."""

    out: Path = Path("model.pt")
    """File for the model."""

    method: str = choice("exact", ("exact", "linear", "mlp"))
    """exact: the best linear solution in closed form, RPC alone. linear, mlp: a network a side is
    trained by the objective."""

    objective: str = choice("rpc", OBJECTIVES)
    """What networks maximise."""

    dimension: int = 16
    """Dimensions of the embeddings, at most."""

    ridge: float = 0.01
    """exact: how far sides with many columns are smoothed, in units of a column's mean variance."""

    steps: int = 2000
    """Networks: most updates; rows outside the training stop it earlier."""

    batch_size: int = 256
    """Networks: pairs that are contrasted with each other."""

    test_fraction: float = 0.2
    """Share of the rows held out to measure on; 0: none."""

    groups: str | None = None
    """Column of groups (patients, speakers): a group is never split between fit and measurement."""

    labels: str | None = None
    """Column of classes. They have no part in the fit; on the rows held out they say how well the
    embeddings of x tell classes apart, and what is certified of it."""

    missing: str = choice("error", ("error", "drop"))
    """What to do with rows that lack a value in a chosen column: stop, or leave out and count."""

    header: bool | None = None
    """Whether the first line of a text file holds names. Default: yes; numbers there are an error.
    """

    seed: int = 0
    """Seed of the rows held out, of networks and of batches."""

    json: Path | None = None
    """Write the measures to this file."""

    progress: bool = True
    """Tell how training goes."""

    def __post_init__(self) -> None:
        check_choices(self)
        check_seed("seed", self.seed)
        if self.dimension < 1:
            raise SettingsError(f"dimension must be at least 1, got {self.dimension}")
        if not 0 <= self.test_fraction < 1:
            raise SettingsError(f"test_fraction must be in [0, 1), got {self.test_fraction}")
        if self.method == "exact" and self.objective != "rpc":
            raise SettingsError(
                f"method 'exact' maximises rpc, got objective {self.objective!r}: take method "
                "linear or mlp"
            )
        if self.method == "exact":
            check_used(self, "steps batch_size", "method linear and mlp")
        else:
            check_used(self, "ridge", "method exact")


def fit(settings: Fit, console: Console | None = None) -> LinearRPC | ContrastiveEncoder:
    """Fits, measures on rows held out, and writes the model.

    Raises:
        ValueError: If the data cannot be used.
    """
    console = console or Console()
    data = read_mi_data(
        settings.data, settings.x, settings.y, groups=settings.groups, labels=settings.labels,
        drop_missing=settings.missing == "drop", header=settings.header,
    )  # fmt: skip
    for frame in (data.x, data.y):
        _check_numbers(frame, settings.data)
    train, test = split_rows(
        len(data.x), settings.test_fraction, data.groups, settings.seed, ordered=False
    )
    model: LinearRPC | ContrastiveEncoder = _model(settings)
    more = (
        {} if data.groups is None or settings.method == "exact" else {"groups": data.groups[train]}
    )
    model.fit(data.x.iloc[train], data.y.iloc[train], **more)
    found = {}
    if len(test):
        known = {
            name: values[test]
            for name, values in (("labels", data.labels), ("groups", data.groups))
            if values is not None and data.labels is not None
        }
        found = model.measures(data.x.iloc[test], data.y.iloc[test], **known)
    model.save(settings.out)
    console.print(_table(found, len(train), len(test)))
    console.out(f"model: {settings.out}", highlight=False)
    if settings.json is not None:
        record = {
            "data": settings.data.name, "method": settings.method, "train_rows": len(train),
            "test_rows": len(test), "dropped": data.dropped, "measures": found,
            "environment": environment(),
        }  # fmt: skip
        atomic_write(settings.json, strict_json(record).encode() + b"\n")
        console.out(f"json: {settings.json}", highlight=False)
    return model


def _model(settings: Fit) -> Any:
    if settings.method == "exact":
        return LinearRPC(ridge=settings.ridge, rank=settings.dimension)
    return ContrastiveEncoder(
        settings.objective, settings.method, dimension=settings.dimension, steps=settings.steps,
        batch_size=settings.batch_size, seed=settings.seed, verbose=settings.progress,
    )  # fmt: skip


def _check_numbers(frame: Any, path: Path) -> None:
    for name in frame:
        if frame[name].dtype.kind not in "iufb":
            raise ValueError(
                f"column {name!r} of {path} holds text: embeddings need numbers, so make it "
                "columns of 0 and 1, or leave it out"
            )


def _table(found: dict[str, float], train: int, test: int) -> Table:
    title = f"{train:,} rows fitted, {test:,} held out"
    table = Table(title=title, box=box.SIMPLE_HEAD, title_justify="left")
    table.add_column("held out")
    table.add_column("", justify="right")
    for key, meaning in _MEANING.items():
        if key in found:
            share = key.startswith("recall")
            table.add_row(meaning, f"{100 * found[key]:.1f} %" if share else f"{found[key]:.3f}")
    return table


@dataclass(frozen=True)
class Retrieve:
    """Find for each row of one side the rows of the other side that belong to it.

    The table has the columns that the model was fitted on. Where row i of x belongs to row i of y,
    the share of rows that find their own is told as well.

    Example: relatum retrieve cells.pt --data new.parquet --k 3 --out matches.csv
    """

    model: Path = field(metadata=POSITIONAL)
    """File written by relatum fit."""

    data: Path | None = None
    """Table with the model's columns."""

    side: str = choice("x", ("x", "y"))
    """The side that asks."""

    k: int = 5
    """How many rows are found for each."""

    out: Path | None = None
    """Write all matches to this csv: query, place, found, score; rows counted from 0."""

    missing: str = choice("error", ("error", "drop"))
    """What to do with rows that lack a value: stop, or leave out (rows are renumbered)."""

    def __post_init__(self) -> None:
        check_choices(self)
        if self.data is None:
            raise SettingsError("--data is needed: the table to find rows in")
        if self.k < 1:
            raise SettingsError(f"k must be at least 1, got {self.k}")


def retrieve(settings: Retrieve, console: Console | None = None) -> Any:
    """Prints the first matches and how often rows find their own; writes all of them.

    Raises:
        ValueError: If the model or the data cannot be used.
    """
    console = console or Console()
    assert settings.data is not None
    model = load(settings.model)
    names = [getattr(model, f"{side}_names_in_", ()) for side in ("feature", "target")]
    if not all(map(len, names)):
        raise ValueError(f"{settings.model} was fitted without names of columns, on no table")
    specs = (",".join(f'"{name}"' for name in side) for side in names)
    data = read_mi_data(settings.data, *specs, drop_missing=settings.missing == "drop")
    sides = (data.x, data.y) if settings.side == "x" else (data.y, data.x)
    k = min(settings.k, len(data.x))
    found = model.retrieve(*sides, k=k, side=settings.side)
    own = found.indices == np.arange(len(data.x))[:, None]
    for query, row in enumerate(found.indices[:_SHOWN].tolist()):
        console.out(f"row {query}: {', '.join(map(str, row))}", highlight=False)
    console.out(
        f"{len(own):,} rows; own row among the best {k}: {100 * own.any(1).mean():.1f} %, "
        f"the best: {100 * own[:, 0].mean():.1f} %",
        highlight=False,
    )
    if settings.out is not None:
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(["query", "place", "found", "score"])
        for query, (rows, scores) in enumerate(zip(*found, strict=True)):
            for place, (row, score) in enumerate(zip(rows, scores, strict=True), 1):
                writer.writerow([query, place, int(row), f"{score:.6g}"])
        atomic_write(settings.out, text.getvalue().encode())
        console.out(f"matches: {settings.out}", highlight=False)
    return found

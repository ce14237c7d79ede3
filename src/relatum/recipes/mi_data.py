"""Columns for ``relatum mi`` from csv, parquet, npy and npz files."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as untyped_pandas
import pyarrow as untyped_arrow

from ..settings import hint
from .table_files import read_columns

__all__ = ["MIData", "read_mi_data"]

# Neither has types.
pandas: Any = untyped_pandas
arrow: Any = untyped_arrow

_LISTED = 20  # names in an error message


@dataclass(frozen=True)
class MIData:
    """Two sides of a table and, where asked for, the group of each row."""

    x: Any
    """Data frame of the columns of x."""
    y: Any
    """Data frame of the columns of y, with the same index."""
    groups: np.ndarray | None
    """A whole number for each row; rows of one group have the same."""
    dropped: int
    """Rows with missing values that were left out."""
    labels: np.ndarray | None = None
    """The class of each row, as it stands in the file."""


def read_mi_data(
    path: Path,
    x: str,
    y: str,
    *,
    groups: str | None = None,
    labels: str | None = None,
    drop_missing: bool = False,
    header: bool | None = None,
) -> MIData:
    """Reads the columns that `x`, `y`, `groups` and `labels` name.

    Args:
        path: A file; its ending says what it is.
        x: Columns, separated by commas: names, patterns ``a_*``, numbers from 0, ranges ``a:c``
            with both ends, and ``key``, ``key[3]`` or ``key[0:4]`` where a field holds several
            numbers a row.
        y: Columns of the other side.
        groups: The column of groups.
        labels: The column of classes; it may be none of x and y.
        drop_missing: Leave out rows with a missing value, instead of an error.
        header: Whether the first line of a text file holds names; None: yes, unless it looks like
            data, which is an error.

    Raises:
        ValueError: If the file cannot be read, a column is not there, is named twice or is not
            numbers or classes, or a value is missing or infinite. It names file, column and row.
    """
    table = read_columns(path, header)
    chosen = {
        side: _chosen(table, spec, path, f"--{side}")
        for side, spec in (("x", x), ("y", y), ("groups", groups), ("labels", labels))
        if spec is not None
    }
    both = [name for name in chosen["x"] if name in chosen["y"]]
    if both:
        raise ValueError(
            f"column {both[0]!r} is in --x and in --y: what a column tells about itself is its own "
            "entropy, whatever the other columns are"
        )
    for option, spec in (("groups", groups), ("labels", labels)):
        if len(chosen.get(option, [])) > 1:
            raise ValueError(f"--{option} takes one column, got {spec!r}")
    if told := set(chosen.get("labels", [])) & {*chosen["x"], *chosen["y"]}:
        raise ValueError(f"column {min(told)!r} is in --labels and in --x or --y: it is then known")
    names = list(dict.fromkeys(name for side in chosen.values() for name in side))
    _check_lengths(table, names, path)
    frame = pandas.DataFrame({name: _column(table[name], name, path) for name in names})
    frame, dropped = _complete(frame, path, drop_missing)
    for name in [*chosen["x"], *chosen["y"]]:
        _check_values(frame[name], name, path)
    codes = pandas.factorize(frame[chosen["groups"][0]])[0] if "groups" in chosen else None
    classes = frame[chosen["labels"][0]].to_numpy() if "labels" in chosen else None
    return MIData(frame[chosen["x"]], frame[chosen["y"]], codes, dropped, classes)


def _chosen(table: Mapping[str, Any], spec: str, path: Path, option: str) -> list[str]:
    """The names of the columns that `spec` means, in its order."""
    items = next(csv.reader([spec], skipinitialspace=True), [])  # a name may hold a comma: '"a,b"'
    found = [name for item in items for name in _meant(list(table), item.strip(), path, option)]
    twice = [name for name in found if found.count(name) > 1]
    if twice:
        raise ValueError(f"{option} {spec} names column {twice[0]!r} twice")
    return found


def _meant(names: Sequence[str], item: str, path: Path, option: str) -> list[str]:
    """One item of a specification: a name, the key of several columns, a number, or a range."""
    parts = [name for name in names if re.fullmatch(re.escape(item) + r"\[\d+\]", name)]
    if item in names or parts:
        return [item] if item in names else parts
    if "*" in item or "?" in item:
        wild = re.escape(item).replace(r"\*", ".*").replace(r"\?", ".")
        if matched := [name for name in names if re.fullmatch(wild, name)]:
            return matched
    inner = re.fullmatch(r"(.+)\[(\d+):(\d+)\]", item)
    ends = [f"{inner[1]}[{inner[i]}]" for i in (2, 3)] if inner else item.split(":")
    if len(ends) == 2:
        low, high = (names.index(_single(names, end.strip(), path, option)) for end in ends)
        if low > high:
            raise ValueError(f"{option} {item}: {ends[1]!r} stands before {ends[0]!r} in {path}")
        return list(names[low : high + 1])
    return [_single(names, item, path, option)]


def _single(names: Sequence[str], item: str, path: Path, option: str) -> str:
    if item in names:
        return item
    if item.isdecimal() and int(item) < len(names):
        return names[int(item)]
    said = hint(item, names)
    if len(names) > _LISTED and said.startswith("known"):
        said = f"the first of its {len(names):,} columns are {', '.join(names[:_LISTED])}"
    raise ValueError(f"{path} has no column {item!r} ({option}); {said}")


def _check_lengths(table: Mapping[str, Any], names: Iterable[str], path: Path) -> None:
    lengths = {name: len(table[name]) for name in names if getattr(table[name], "ndim", 1) == 1}
    if len(set(lengths.values())) > 1:
        told = ", ".join(f"{name} {length:,}" for name, length in lengths.items())
        raise ValueError(f"the columns of {path} differ in their numbers of rows: {told}")


def _column(values: Any, name: str, path: Path) -> Any:
    """One column as a series of numbers, text, categories or booleans."""
    if isinstance(values, arrow.ChunkedArray):
        raise ValueError(
            f"column {name!r} of {path} holds {values.type}, which is neither numbers nor classes; "
            "convert it first"
        )
    if isinstance(values, np.ndarray) and (values.ndim != 1 or values.dtype.kind not in "biufUS"):
        raise ValueError(
            f"{name!r} of {path} has shape {values.shape} and type {values.dtype}; a column needs "
            "(n,) or (n, d) numbers or text"
        )
    return pandas.Series(values)


def _complete(frame: Any, path: Path, drop: bool) -> tuple[Any, int]:
    """The rows without a missing value, renumbered, and how many were left out."""
    missing = frame.isna()
    rows = missing.any(axis=1).to_numpy()
    if not rows.any():
        return frame, 0
    if not drop:
        name = next(name for name in frame if missing[name].any())
        first = int(np.argmax(missing[name].to_numpy())) + 1
        raise ValueError(
            f"column {name!r} of {path} has {int(missing[name].sum()):,} missing values, the first "
            f"in row {first:,} of the data (counted from 1); in all, {int(rows.sum()):,} of "
            f"{len(frame):,} rows lack a value: --missing drop leaves them out and says so"
        )
    kept = frame[~rows].reset_index(drop=True).infer_objects()
    if len(kept) == 0:
        raise ValueError(f"every row of {path} lacks a value in one of the chosen columns")
    return kept, int(rows.sum())


def _check_values(values: Any, name: str, path: Path) -> None:
    """Raises ValueError for an infinite number, and for text among numbers."""
    if pandas.api.types.is_numeric_dtype(values):
        bad = ~np.isfinite(values.to_numpy(np.float64))
    elif isinstance(values.dtype, pandas.CategoricalDtype):
        return
    else:
        # Classes are text; but numbers with a slip among them are read as text too.
        bad = pandas.to_numeric(values, errors="coerce").isna().to_numpy()
        if bad.mean() > 0.5:
            return
        if not bad.any():
            raise ValueError(f"column {name!r} of {path} holds numbers written as text")
    if bad.any():
        row = int(np.argmax(bad))
        what = "is not a finite number" if values.dtype.kind in "iufb" else "is not a number"
        raise ValueError(
            f"{values.iloc[row]!r} in column {name!r} of {path}, row {row + 1:,} of the data "
            f"(counted from 1), {what}, as {int(bad.sum()):,} of {len(values):,} there"
        )

"""Tables from csv, parquet, npy and npz files, as one mapping from names to columns."""

from __future__ import annotations

import csv
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as untyped_arrow
import pyarrow.csv as untyped_csv
import pyarrow.parquet as untyped_parquet

__all__ = ["DAMAGED", "read_columns"]

# pyarrow has no types.
arrow: Any = untyped_arrow
arrow_csv: Any = untyped_csv
parquet: Any = untyped_parquet

_DELIMITERS: Final = {".csv": ",;\t", ".tsv": "\t", ".txt": "\t;,"}
DAMAGED: Final = (ValueError, OSError, EOFError, RuntimeError, zipfile.BadZipFile, zlib.error)
"""What reading a damaged npy or npz file raises."""
ENDINGS: Final = (*_DELIMITERS, ".parquet", ".npy", ".npz")


def read_columns(path: Path, header: bool | None = None) -> dict[str, Any]:
    """The columns of a file by name, in their order: series, arrays, or what cannot be used.

    A field that holds several numbers a row becomes the columns ``key[0]``, ``key[1]``, ...; the
    columns of a bare array are ``0``, ``1``, ...

    Args:
        path: A file; its ending says what it is.
        header: Whether the first line of a text file holds names; None: yes, unless it looks like
            data, which is an error.

    Raises:
        ValueError: If the file cannot be read.
    """
    return _flat(_fields(path, header), path)


def _fields(path: Path, header: bool | None) -> dict[str, Any]:
    """The fields of a file by name; an array of two axes is a field with several columns."""
    ending = path.suffix.lower()
    if not path.is_file():
        what = "is a folder, not a file" if path.is_dir() else f"does not exist (from {Path.cwd()})"
        raise ValueError(f"{path} {what}")
    if ending not in ENDINGS:
        raise ValueError(
            f"{path} ends in {ending!r}; what can be read ends in {', '.join(ENDINGS)}"
        )
    if header is not None and ending not in _DELIMITERS:
        raise ValueError(f"--header is about text files; {path} has none")
    try:
        if ending in (".npy", ".npz"):
            return _numpy(path)
        return _from_arrow(
            parquet.read_table(path) if ending == ".parquet" else _text(path, header)
        )
    except (arrow.ArrowException, EOFError, UnicodeDecodeError) as error:
        raise ValueError(f"cannot read {path}: {error}") from error


def _numpy(path: Path) -> dict[str, Any]:
    try:
        with path.open("rb") as file:
            loaded = np.load(file, allow_pickle=False)
            if isinstance(loaded, np.ndarray):
                named = loaded.dtype.names
                return {name: loaded[name] for name in named} if named else {"": loaded}
            return {key: loaded[key] for key in loaded.files}
    except DAMAGED as error:
        raise ValueError(f"cannot read {path}: {error}") from error


def _text(path: Path, header: bool | None) -> Any:
    """The table of a text file: any line ends, with or without a byte-order mark."""
    with path.open(encoding="utf-8-sig", newline=None) as file:
        first = next((line.rstrip("\n") for line in file if line.strip()), "")
    counts = {mark: first.count(mark) for mark in _DELIMITERS[path.suffix.lower()]}
    delimiter = max(counts, key=lambda mark: counts[mark])
    names = next(csv.reader([first], delimiter=delimiter), [])
    if header is None and names and all(map(_is_number, names)):
        raise ValueError(
            f"the first line of {path} holds numbers only ({first[:60]}): say --no-header if it is "
            "data (columns then go by number), or --header if these are names"
        )
    table = arrow_csv.read_csv(
        path,
        read_options=arrow_csv.ReadOptions(autogenerate_column_names=header is False),
        parse_options=arrow_csv.ParseOptions(delimiter=delimiter, newlines_in_values=True),
        convert_options=arrow_csv.ConvertOptions(
            strings_can_be_null=True, quoted_strings_can_be_null=False
        ),
    )
    if header is False:
        return table.rename_columns([str(i) for i in range(table.num_columns)])
    return table


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _from_arrow(table: Any) -> dict[str, Any]:
    names = table.column_names
    twice = [name for name in names if names.count(name) > 1]
    if twice:
        raise arrow.ArrowInvalid(f"two columns are named {twice[0]!r}")
    return dict(zip(names, map(_from_chunks, table.columns), strict=True))


def _from_chunks(column: Any) -> Any:
    """A column of a table: a series, or an array of two axes where rows are equal lists."""
    kind = column.type
    if arrow.types.is_decimal(kind):
        column = column.cast(arrow.float64())
    if arrow.types.is_list(kind) or arrow.types.is_large_list(kind):
        lengths = set(arrow.compute.list_value_length(column).to_pylist())
        if len(lengths) != 1 or None in lengths:
            return column  # refused by name if it is asked for
    elif not arrow.types.is_fixed_size_list(kind) or column.null_count:
        return column.to_pandas() if _is_plain(kind) else column
    return column.combine_chunks().flatten().to_numpy(zero_copy_only=False).reshape(len(column), -1)


def _is_plain(kind: Any) -> bool:
    types = arrow.types
    known = (
        types.is_boolean,
        types.is_integer,
        types.is_floating,
        types.is_decimal,
        types.is_string,
    )
    more = (types.is_large_string, types.is_dictionary, types.is_null)
    return any(test(kind) for test in (*known, *more))


def _flat(fields: Mapping[str, Any], path: Path) -> dict[str, Any]:
    """One entry a column: ``key[i]`` for column i of the field ``key``, ``i`` in a bare array."""
    flat: dict[str, Any] = {}
    for key, values in fields.items():
        axes = getattr(values, "ndim", 1)
        if axes == 2:
            name = f"{key}[%d]" if key else "%d"
            flat |= {name % i: values[:, i] for i in range(values.shape[1])}
        elif axes == 1 or key:
            flat[key or "0"] = values
        else:
            raise ValueError(f"{path} holds an array of shape {values.shape}; it needs (n, d)")
    if not flat:
        raise ValueError(f"{path} has no columns")
    return flat

"""Images in Parquet tables.

A column ``image`` is a struct with ``bytes`` (as Hugging Face's `datasets` writes it), or a binary
column ``image``, ``image.bytes`` or ``img``; a column ``label``, or another that is named, holds
integers or strings (null = unlabelled).
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .decoding import DataError, Item, Range
from .listing import Listing
from .packed import class_labels, named_labels

__all__ = ["UNLABELLED", "list_parquet", "says_labels", "unpacked"]

UNLABELLED = "none"
"""In place of a label column's name: there is none, whatever columns there are."""

_IMAGE_COLUMNS = ("image", "image.bytes", "img")
_ROWS = 256  # images in memory at a time while a table is unpacked
_PATIENCE = 3600.0  # seconds that one table may take another process


class _Table(NamedTuple):
    """What the end of a file says of it."""

    path: Path
    rows: int
    columns: Any
    """pyarrow's schema."""


def list_parquet(
    paths: Sequence[Path],
    source: str,
    cache: Path | None = None,
    label_column: str | None = None,
) -> Listing:
    """The rows of Parquet files, one after the other, with one numbering of classes.

    Args:
        paths: The files.
        source: Name in messages and ids.
        cache: Folder where :func:`unpacked` puts the image bytes; None holds them in memory.
        label_column: Name of the column of labels; None is ``label``.

    Raises:
        DataError: If a file is unreadable, lacks an image column, an image is null, or it has no
            such column of labels but others that might be.
    """
    tables = [_look(path, source) for path in paths]
    columns = [_image_column(table) for table in tables]
    labels, classes, notes = _all_labels(tables, source, label_column)
    items: list[Item] = []
    for path, image in zip(paths, columns, strict=True):
        items += _images(path, image) if cache is None else unpacked(path, image, cache)
    ids = [f"{Path(source).stem}:{i}" for i in range(len(items))]
    return Listing(items, ids, labels, classes, source, notes=tuple(notes))


def _all_labels(
    tables: Sequence[_Table], source: str, label_column: str | None
) -> tuple[NDArray[np.int64], tuple[str, ...], list[str]]:
    """Labels of all rows, the names of the classes, and which files have none."""
    values: list[Any] = []
    notes: list[str] = []
    names: tuple[str, ...] | None = None
    for table in tables:
        label = _label_column(table, label_column)
        if label is None:
            values += [None] * table.rows
            unlabelled = f"its {table.rows} rows are unlabelled"
            notes.append(f"{table.path.name} has no column label: {unlabelled}")
            continue
        values += _labels(table, label)
        own = _hugging_face_names(table, label)
        if names and own and names != own:
            raise DataError(f"{table.path} names other classes than {tables[0].path}")
        names = names or own
    starts = np.cumsum([0, *(table.rows for table in tables)])

    def place(row: int) -> str:
        k = int(np.searchsorted(starts, row, "right")) - 1
        return f"in row {row - starts[k]} of {tables[k].path}"

    return *named_labels(np.asarray(values, dtype=object), names, source, place), notes


def says_labels(paths: Sequence[Path], label_column: str | None = None) -> bool:
    """Whether any row is labelled; no image is read."""
    name = label_column or "label"
    tables = [_look(path, str(path)) for path in paths]
    return any(
        bool((class_labels(_labels(table, name), str(table.path))[0] >= 0).any())
        for table in tables
        if name in table.columns.names and name != UNLABELLED
    )


def unpacked(path: Path, column: str, cache: Path) -> list[Range]:
    """The images of a table as pieces of a plain file, which is written into `cache` once.

    Parquet is compressed by groups of rows, so a single image cannot be read by itself. Of several
    processes that want a table, one unpacks it and the others wait.

    Raises:
        DataError: If the table is damaged or the folder cannot be written.
    """
    from filelock import FileLock, Timeout

    seen = path.stat()
    mark = zlib.crc32(f"{path.resolve()} {seen.st_size} {seen.st_mtime_ns}".encode())
    flat = cache / f"{path.stem}-{mark:08x}.bytes"
    counted, lock = flat.with_suffix(".npy"), flat.with_suffix(".lock")
    try:
        if not counted.exists():  # it is written last
            cache.mkdir(parents=True, exist_ok=True)
            # The lock of a process that was killed is gone with it.
            with FileLock(lock, timeout=_PATIENCE):
                if not counted.exists():
                    _unpack(path, column, flat, counted)
        lengths = np.load(counted)
    except Timeout:
        raise DataError(
            f"another process has been unpacking {path} into {cache} for {_PATIENCE / 60:.0f} "
            f"minutes; if there is none, remove {lock} and start again"
        ) from None
    except OSError as error:
        raise DataError(f"cannot unpack {path} into the folder {cache}: {error}") from error
    starts = np.cumsum(lengths) - lengths
    pairs = zip(starts.tolist(), lengths.tolist(), strict=True)
    return [Range(flat, start, length) for start, length in pairs]


def _unpack(path: Path, column: str, flat: Path, counted: Path) -> None:
    """Writes the images one after the other, then their lengths."""
    lengths = []
    with _written(flat) as file:
        for data in _images(path, column):
            lengths.append(len(data))
            file.write(data)
    with _written(counted) as file:
        np.save(file, np.asarray(lengths, dtype=np.int64))


@contextmanager
def _written(path: Path) -> Iterator[BinaryIO]:
    """A new file that appears under its name when it is whole.

    Only the holder of the lock writes, so what a killed process left is written over.
    """
    partial = path.with_name(f"{path.name}.partial")
    try:
        with partial.open("wb") as file:
            yield file
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def _look(path: Path, source: str) -> _Table:
    try:
        from pyarrow import parquet
    except ImportError:
        raise DataError(f"reading {source} needs pyarrow: pip install 'relatum[vision]'") from None
    with _readable(path), parquet.ParquetFile(path) as file:
        return _Table(path, file.metadata.num_rows, file.schema_arrow)


def _image_column(table: _Table) -> str:
    columns = table.columns.names
    column = next((name for name in _IMAGE_COLUMNS if name in columns), None)
    if column is None:
        raise DataError(f"{table.path} has the columns {', '.join(columns)}; needed is image")
    return column


def _label_column(table: _Table, wanted: str | None) -> str | None:
    """The column of labels; None if the rows are unlabelled."""
    from pyarrow import types

    columns = table.columns.names
    if wanted == UNLABELLED:
        return None
    if (wanted or "label") in columns:
        return wanted or "label"
    kinds = (types.is_integer, types.is_boolean, types.is_dictionary)  # ClassLabel is an integer
    others = [each.name for each in table.columns if any(kind(each.type) for kind in kinds)]
    if wanted is None and not others:
        return None
    meant = f"; {', '.join(others)} may be meant" if others else ""
    raise DataError(
        f"{table.path} has no column {wanted or 'label'}{meant}. Its columns are "
        f"{', '.join(columns)}: name that of the labels with --label-column (in Python, "
        f"label_column), or give {UNLABELLED} if there is none"
    )


def _labels(table: _Table, column: str) -> list[Any]:
    from pyarrow import parquet

    with _readable(table.path), parquet.ParquetFile(table.path) as file:
        values: list[Any] = file.read(columns=[column])[column].to_pylist()
    return values


def _images(path: Path, column: str) -> Iterator[bytes]:
    from pyarrow import parquet

    row = 0
    with _readable(path), parquet.ParquetFile(path) as file:
        for batch in file.iter_batches(_ROWS, columns=[column]):
            for cell in batch.column(0).to_pylist():
                data = cell.get("bytes") if isinstance(cell, dict) else cell
                if not isinstance(data, bytes):
                    raise DataError(f"{path}, row {row}: column {column} holds no image bytes")
                yield data
                row += 1


@contextmanager
def _readable(path: Path) -> Iterator[None]:
    """Turns the errors of pyarrow, each of which means "not such a file", into one."""
    try:
        yield
    except DataError:
        raise
    except Exception as error:
        raise DataError(
            f"{path} is damaged or is no Parquet file; copy it again or make it anew ({error})"
        ) from error


def _hugging_face_names(table: _Table, column: str) -> tuple[str, ...] | None:
    """Class names that the `datasets` library stores in the schema of its files."""
    try:
        features = json.loads((table.columns.metadata or {})[b"huggingface"])["info"]["features"]
        return tuple(features[column]["names"])
    except (KeyError, TypeError, ValueError):
        return None

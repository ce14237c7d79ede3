"""Images in Parquet tables.

A column ``image`` is a struct with ``bytes`` (as Hugging Face's `datasets` writes it), or a binary
column ``image``, ``image.bytes`` or ``img``; a column ``label`` holds integers or strings (null =
unlabelled) and may be absent.
"""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from .decoding import DataError, Item, Range
from .listing import Listing
from .packed import named_labels

__all__ = ["list_parquet", "unpacked"]

_IMAGE_COLUMNS = ("image", "image.bytes", "img")
_ROWS = 256  # images in memory at a time while a table is unpacked


def list_parquet(paths: Sequence[Path], source: str, cache: Path | None = None) -> Listing:
    """The rows of Parquet files, one after the other, with one numbering of classes.

    Args:
        paths: The files.
        source: Name in messages and ids.
        cache: Folder where :func:`unpacked` puts the image bytes; None holds them in memory.

    Raises:
        DataError: If a file is unreadable, lacks an image column, or an image is null.
    """
    try:
        from pyarrow import parquet
    except ImportError:
        raise DataError(f"reading {source} needs pyarrow: pip install 'relatum[vision]'") from None
    items: list[Item] = []
    values: list[Any] = []
    notes: list[str] = []
    names: tuple[str, ...] | None = None
    for path in paths:
        try:
            file = parquet.ParquetFile(path)
        except Exception as error:  # pyarrow's own classes; each means "not such a file"
            raise _damaged(path, error) from error
        rows, columns = file.metadata.num_rows, file.schema_arrow.names
        column = next((name for name in _IMAGE_COLUMNS if name in columns), None)
        if column is None:
            raise DataError(f"{path} has the columns {', '.join(columns)}; needed is image")
        items += _images(file, path, column) if cache is None else unpacked(path, column, cache)
        if "label" in columns:
            values += file.read(columns=["label"])["label"].to_pylist()
        else:
            values += [None] * rows
            notes.append(f"{path.name} has no column label: its {rows} rows are unlabelled")
        names = names or _hugging_face_names(file.schema_arrow.metadata)
    labels, classes = named_labels(np.asarray(values, dtype=object), names, source)
    return Listing(
        items=items,
        ids=[f"{Path(source).stem}:{i}" for i in range(len(items))],
        labels=labels,
        classes=classes,
        source=source,
        notes=tuple(notes),
    )


def unpacked(path: Path, column: str, cache: Path) -> list[Range]:
    """The images of a table as pieces of a plain file, which is written into `cache` once.

    Parquet is compressed by groups of rows, so a single image cannot be read by itself.

    Raises:
        DataError: If the table is damaged or the folder cannot be written.
    """
    from pyarrow import parquet

    seen = path.stat()
    mark = zlib.crc32(f"{path.resolve()} {seen.st_size} {seen.st_mtime_ns}".encode())
    flat = cache / f"{path.stem}-{mark:08x}.bytes"
    counted = flat.with_suffix(".npy")
    if not counted.exists():  # it is written last
        try:
            cache.mkdir(parents=True, exist_ok=True)
            lengths = []
            with _written(flat) as file:
                for data in _images(parquet.ParquetFile(path), path, column):
                    lengths.append(len(data))
                    file.write(data)
            with _written(counted) as file:
                np.save(file, np.asarray(lengths, dtype=np.int64))
        except OSError as error:
            raise DataError(f"cannot unpack {path} into the folder {cache}: {error}") from error
    lengths = np.load(counted)
    starts = np.cumsum(lengths) - lengths
    pairs = zip(starts.tolist(), lengths.tolist(), strict=True)
    return [Range(flat, start, length) for start, length in pairs]


@contextmanager
def _written(path: Path) -> Iterator[BinaryIO]:
    """A new file that appears under its name when it is whole; processes may write it at once."""
    partial = path.with_name(f"{path.name}.{os.getpid()}")
    try:
        with partial.open("wb") as file:
            yield file
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def _images(file: Any, path: Path, column: str) -> Iterator[bytes]:
    row = 0
    try:
        for batch in file.iter_batches(_ROWS, columns=[column]):
            for cell in batch.column(0).to_pylist():
                data = cell.get("bytes") if isinstance(cell, dict) else cell
                if not isinstance(data, bytes):
                    raise DataError(f"{path}, row {row}: column {column} holds no image bytes")
                yield data
                row += 1
    except DataError:
        raise
    except Exception as error:  # as above
        raise _damaged(path, error) from error


def _damaged(path: Path, error: Exception) -> DataError:
    return DataError(
        f"{path} is damaged or is no Parquet file; copy it again or make it anew ({error})"
    )


def _hugging_face_names(metadata: dict[bytes, bytes] | None) -> tuple[str, ...] | None:
    """Class names that the `datasets` library stores in the schema of its files."""
    try:
        features = json.loads((metadata or {})[b"huggingface"])["info"]["features"]
        return tuple(features["label"]["names"])
    except (KeyError, TypeError, ValueError):
        return None

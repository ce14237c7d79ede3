"""Images packed into one .npz archive, and labels of any kind as numbers.

* Packed .npz: ``data`` (uint8, all encoded images one after the other), ``offsets`` (n+1),
  ``labels``, and optionally ``names`` (file names) and ``classes`` (class names).
* Array .npz: ``x`` (n, h, w) grey or (n, h, w, 3) RGB, uint8; ``y`` labels.

Integer labels of any width keep their numbers; -1 is unlabelled. Names become classes in natural
order.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .decoding import DataError
from .folder import natural_key
from .listing import Listing

__all__ = ["array_listing", "class_labels", "list_npz", "named_labels"]

_MOST_CLASSES = 1_000_000  # a label above this is an id or a time, not a class


def class_labels(
    values: Sequence[Any] | NDArray[Any], where: str, at: Callable[[int], str] | None = None
) -> tuple[NDArray[np.int64], tuple[str, ...]]:
    """Labels as int64, and the class names.

    Integer-like values (bool, integers of any width, floats that are whole) keep their numbers,
    and a class is named by its number. Strings are numbered in the natural order of the names.
    None, NaN and -1 are unlabelled, -1.

    Args:
        values: One label a row.
        where: Source named in messages.
        at: What a message says of the place of a row; None is its number in `where`.

    Raises:
        DataError: If a label is a fraction, below -1, or of another kind; names the row.

    Example:
        >>> class_labels(["ten", "2", "10", None], "a table")
        (array([ 2,  0,  1, -1]), ('2', '10', 'ten'))
    """
    at = at or (lambda row: f"in row {row} of {where}")
    listed = [None if _is_missing(value) else value for value in np.asarray(values, dtype=object)]
    present = [value for value in listed if value is not None]
    if present and all(isinstance(value, str) for value in present):
        names = tuple(sorted(set(present), key=natural_key))
        number = {name: index for index, name in enumerate(names)}
        coded = [-1 if value is None else number[value] for value in listed]
        return np.asarray(coded, dtype=np.int64), names
    for row, value in enumerate(listed):
        if value is not None and not _is_class_number(value):
            raise DataError(
                f"label {value!r} {at(row)}: labels must be whole numbers from 0 to "
                f"{_MOST_CLASSES:,} (-1 = unlabelled), or all names"
            )
    labels = np.asarray([-1 if value is None else int(value) for value in listed], dtype=np.int64)
    return labels, tuple(str(i) for i in range(int(labels.max(initial=-1)) + 1))


def _is_missing(value: Any) -> bool:
    return value is None or (isinstance(value, float | np.floating) and bool(np.isnan(value)))


def _is_class_number(value: Any) -> bool:
    if not isinstance(value, bool | int | float | np.number | np.bool_):
        return False
    return bool(-1 <= value <= _MOST_CLASSES and value == int(value))


def named_labels(
    values: NDArray[Any],
    names: tuple[str, ...] | None,
    where: str,
    at: Callable[[int], str] | None = None,
) -> tuple[NDArray[np.int64], tuple[str, ...]]:
    """As :func:`class_labels`, with class names that the source gives for its numbers."""
    labels, numbered = class_labels(values, where, at)
    if names is None:
        return labels, numbered
    if len(set(names)) < len(names):
        twice = next(name for i, name in enumerate(names) if name in names[:i])
        raise DataError(f"{where} has two classes named {twice!r}; names must differ")
    if labels.max(initial=-1) >= len(names):
        row = int(labels.argmax())
        place = at(row) if at else f"in row {row} of {where}"
        raise DataError(f"label {labels[row]} {place}: there are only {len(names)} class names")
    return labels, names


def list_npz(path: Path) -> Listing:
    """The images of a packed or array .npz file (formats at the top of this module).

    Raises:
        DataError: If the file is neither, or its arrays contradict each other.
    """
    try:
        with np.load(path) as archive:
            arrays = {name: archive[name] for name in archive.files}
    except Exception as error:  # zip, header and pickle errors alike mean "not such a file"
        raise DataError(
            f"{path} is damaged or is no .npz archive; copy it again or make it anew ({error})"
        ) from error
    if {"data", "offsets", "labels"} <= arrays.keys():
        return _packed(path, arrays)
    if {"x", "y"} <= arrays.keys():
        return array_listing(arrays["x"], arrays["y"], source=str(path), prefix=path.stem)
    raise DataError(
        f"{path} has the arrays {', '.join(arrays) or 'none'}; needed are data, offsets, labels "
        "(encoded images) or x, y (pixel arrays)"
    )


def _packed(path: Path, arrays: dict[str, NDArray[Any]]) -> Listing:
    offsets, values = arrays["offsets"].tolist(), arrays["labels"]
    n = len(values)
    whole = len(offsets) == n + 1 and offsets[0] == 0 and offsets[-1] == len(arrays["data"])
    if not whole or any(b < a for a, b in itertools.pairwise(offsets)):
        raise DataError(
            f"{path} is damaged: {n} labels need {n + 1} increasing offsets from 0 to "
            f"{len(arrays['data'])}, the length of data"
        )
    raw = arrays["data"].tobytes()
    names = tuple(_text(name) for name in arrays["classes"]) if "classes" in arrays else None
    labels, classes = named_labels(values, names, str(path))
    own = [_text(name) for name in arrays["names"]] if "names" in arrays else []
    if own and len(own) != n:
        raise DataError(f"{path} has {n} labels and {len(own)} names; they must be as many")
    if len(set(own)) < n:  # an id must mean one image
        own = []
    return Listing(
        items=[raw[a:b] for a, b in itertools.pairwise(offsets)],
        ids=[f"{path.stem}/{name}" for name in own] or [f"{path.stem}:{i}" for i in range(n)],
        labels=labels,
        classes=classes,
        source=str(path),
    )


def _text(name: Any) -> str:
    return name.decode("utf-8") if isinstance(name, bytes) else str(name)


def array_listing(
    x: NDArray[Any],
    y: Sequence[Any] | NDArray[Any],
    *,
    source: str,
    prefix: str,
    classes: tuple[str, ...] | None = None,
) -> Listing:
    """Pixel arrays as a listing.

    Args:
        x: uint8, (n, h, w) grey or (n, h, w, 3) RGB.
        y: Labels.
        source: Name in messages.
        prefix: Ids are ``prefix:row``.
        classes: Class names; None names classes by their numbers.

    Raises:
        DataError: If dtype or shapes are not these.
    """
    grey_or_rgb = x.ndim == 3 or (x.ndim == 4 and x.shape[-1] == 3)
    if x.dtype != np.uint8 or not grey_or_rgb or len(x) != len(y):
        raise DataError(
            f"{source}: pixels are {x.dtype} {x.shape} with {len(y)} labels; needed are uint8 "
            "(n, h, w) or (n, h, w, 3) with n labels"
        )
    labels, names = named_labels(np.asarray(y), classes, source)
    return Listing(
        items=list(x),
        ids=[f"{prefix}:{i}" for i in range(len(x))],
        labels=labels,
        classes=names,
        source=source,
    )

r"""Phone labels: one number for each 10 ms, or segments with a start and an end.

The published form has one utterance a line, ``utterance l0 l1 ...``, with numbers from 0 to 40.
Label t belongs to the 25 ms from sample 160 t on (at 16 kHz), so that n samples have
:math:`\lfloor (n - 400) / 160 \rfloor + 1` of them. As frames, a label is that of the segment which
holds the window's *first* sample.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
from jaxtyping import Int64

from ..images import DataError

__all__ = [
    "PHONES",
    "Segment",
    "label_count",
    "labels_from_segments",
    "read_frame_labels",
    "read_phone_names",
    "read_segments",
    "segments_from_labels",
]

PHONES: Final = 41
"""Classes of the published labels: silence, spoken noise, 39 phones of ARPAbet."""

HOP: Final = 0.01
"""Seconds between two labels."""


class Segment(NamedTuple):
    """A stretch of one phone, in seconds: start included, end not."""

    phone: str
    start: float
    end: float


def label_count(samples: int, *, window: int = 400, hop: int = 160) -> int:
    """Labels of so many samples.

    Example:
        >>> label_count(31440), label_count(400), label_count(399)
        (195, 1, 0)
    """
    return 0 if samples < window else (samples - window) // hop + 1


def read_frame_labels(path: Path, classes: int = PHONES) -> dict[str, Int64[np.ndarray, " t"]]:
    """Labels of each utterance in the published form.

    Raises:
        DataError: If the file is missing, a line has no labels or an utterance twice, or a label
            is no number from 0 to ``classes - 1``; the message names the line.
    """
    found: dict[str, Int64[np.ndarray, " t"]] = {}
    for number, line in numbered_lines(path):
        name, *labels = line.split()
        try:
            array = np.array(labels, dtype=np.int64)
        except ValueError:
            raise DataError(f"{path} line {number} ({name}): a label is no whole number") from None
        if not len(array) or name in found:
            fault = "is given twice" if name in found else "has no labels"
            raise DataError(f"{path} line {number}: {name} {fault}")
        if array.min() < 0 or array.max() >= classes:
            bad = int(array[(array < 0) | (array >= classes)][0])
            raise DataError(
                f"{path} line {number} ({name}): label {bad} is outside 0 ... {classes - 1}"
            )
        found[name] = array
    if not found:
        raise DataError(f"{path} holds no labels")
    return found


def read_phone_names(path: Path) -> tuple[str, ...]:
    """The phone of each number, from lines ``number PHONE``; further words are remarks.

    Raises:
        DataError: If a line is not so, or the numbers are not 0, 1, 2, ... without gap.
    """
    names: dict[int, str] = {}
    for number, line in numbered_lines(path):
        words = line.split()
        if len(words) < 2 or not words[0].isdecimal() or int(words[0]) in names:
            raise DataError(f"{path} line {number}: expected a new number and a phone, got {line}")
        names[int(words[0])] = words[1]
    if sorted(names) != list(range(len(names))) or not names:
        raise DataError(f"{path}: phones must be numbered 0, 1, 2, ..., got {sorted(names)}")
    return tuple(names[i] for i in range(len(names)))


def read_segments(path: Path) -> dict[str, tuple[Segment, ...]]:
    """Phone segments of each utterance from JSON lines, plain or gzipped.

    A line holds ``utt`` and ``words``, each word ``[text, start, end, [[phone, start, end], ...]]``
    in seconds.

    Raises:
        DataError: If a line is not so; the message names it.
    """
    found = {}
    for number, line in numbered_lines(path):
        try:
            record = json.loads(line)
            phones = [phone for word in record["words"] for phone in word[3]]
            found[str(record["utt"])] = tuple(
                Segment(str(name), float(start), float(end)) for name, start, end in phones
            )
        except (ValueError, KeyError, IndexError, TypeError):
            raise DataError(f"{path} line {number} is no alignment of words and phones") from None
    return found


def segments_from_labels(
    labels: Int64[np.ndarray, " t"], names: tuple[str, ...]
) -> tuple[Segment, ...]:
    """Runs of equal labels as segments.

    Example:
        >>> segments_from_labels(np.array([0, 0, 1]), ("SIL", "AA"))
        (Segment(phone='SIL', start=0.0, end=0.02), Segment(phone='AA', start=0.02, end=0.03))
    """
    edges = [0, *(np.flatnonzero(np.diff(labels)) + 1).tolist(), len(labels)]
    # Rounded: 3 * 0.01 is not 0.03, and boundaries are compared.
    return tuple(
        Segment(names[labels[a]], round(a * HOP, 6), round(b * HOP, 6))
        for a, b in pairwise(edges)
        if b > a
    )


def labels_from_segments(
    segments: Iterable[Segment], count: int, numbers: Mapping[str, int]
) -> Int64[np.ndarray, " t"]:
    """`count` labels: of each the phone that its first sample lies in; -1 where none does.

    Raises:
        DataError: If a phone has no number.
    """
    labels = np.full(count, -1, dtype=np.int64)
    for phone, start, end in segments:
        if phone not in numbers:
            raise DataError(f"phone {phone!r} has no number; known are {', '.join(numbers)}")
        # ceil, with room for the rounding of times such as 0.07 / 0.01.
        first, last = (int(np.ceil(time / HOP - 1e-6)) for time in (start, end))
        labels[max(first, 0) : max(last, 0)] = numbers[phone]
    return labels


def numbered_lines(path: Path) -> Iterable[tuple[int, str]]:
    """Lines that are not blank, with their numbers."""
    try:
        data = path.read_bytes()
        text = (gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data).decode("utf-8-sig")
    except (OSError, EOFError, UnicodeDecodeError) as error:
        raise DataError(f"cannot read {path}: {error}") from None
    return [(i, line) for i, line in enumerate(text.splitlines(), 1) if line.strip()]

"""Tar shards in the naming of webdataset: files of one image follow each other and share a key.

``n01440764/10026.jpg`` and ``n01440764/10026.cls`` belong to the key ``n01440764/10026``: the path
up to the first dot of the file's name. The label is the text of ``.cls``, or the entry ``label`` or
``cls`` of ``.json``; without either an image is unlabelled. Shards are indexed once; an image is
then read at its place in the file, so shards must not be compressed.
"""

from __future__ import annotations

import json
import tarfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from .decoding import DataError, Range
from .folder import IMAGE_SUFFIXES, is_helper
from .listing import Listing
from .packed import named_labels

__all__ = ["list_tars"]


@dataclass
class _Sample:
    """What is known of a key."""

    image: Range | None = None
    label: Any = None


def list_tars(paths: Sequence[Path], source: str) -> Listing:
    """The images of tar shards, one after the other, with one numbering of classes.

    Raises:
        DataError: If a shard is damaged or compressed, holds a key twice or no image at all, or a
            label cannot be read.
    """
    items: list[Range] = []
    values: list[Any] = []
    ids: list[str] = []
    ignored: Counter[str] = Counter()
    for path in paths:
        for key, sample in _samples(path, ignored).items():
            if sample.image is None:
                ignored["keys without an image"] += 1
                continue
            items.append(sample.image)
            values.append(sample.label)
            ids.append(f"{path.stem}/{key}")
    if not items:
        raise DataError(f"{source} holds no images; shards hold KEY.jpg and KEY.cls or KEY.json")
    labels, classes = named_labels(np.asarray(values, dtype=object), None, source)
    return Listing(
        items=items,
        ids=ids,
        labels=labels,
        classes=classes,
        source=source,
        notes=tuple(f"ignored in {source}: {what} ({n})" for what, n in sorted(ignored.items())),
    )


def _samples(path: Path, ignored: Counter[str]) -> dict[str, _Sample]:
    samples: dict[str, _Sample] = {}
    try:
        with tarfile.open(path, "r:") as shard:
            for member in shard:
                folder, _, name = member.name.rpartition("/")
                if not member.isfile() or is_helper(name) or "." not in name:
                    continue
                stem, _, ending = name.partition(".")
                sample = samples.setdefault(f"{folder}/{stem}" if folder else stem, _Sample())
                _take(sample, ending.lower(), shard, member, path, ignored)
    except (tarfile.TarError, OSError) as error:
        raise DataError(
            f"{path} is damaged, or is no plain tar file; copy it again, or unpack it if it is "
            f"compressed ({error})"
        ) from error
    return samples


def _take(
    sample: _Sample,
    ending: str,
    shard: tarfile.TarFile,
    member: tarfile.TarInfo,
    path: Path,
    ignored: Counter[str],
) -> None:
    """Adds a file to its sample."""
    if f".{ending}" in IMAGE_SUFFIXES:
        if sample.image is not None:
            raise DataError(f"{path} has two images of one key: {member.name} is the second")
        sample.image = Range(path, member.offset_data, member.size)
    elif ending == "cls":
        text = _text(shard, member)
        sample.label = int(text) if text.lstrip("-").isdecimal() else text
    elif ending == "json":
        sample.label = _json_label(_text(shard, member), sample.label, path, member.name)
    else:
        ignored[f"files .{ending}"] += 1


def _text(shard: tarfile.TarFile, member: tarfile.TarInfo) -> str:
    file = shard.extractfile(member)
    return "" if file is None else file.read().decode("utf-8", errors="replace").strip()


def _json_label(text: str, label: Any, path: Path, name: str) -> Any:
    """The label in a description, unless it is known from elsewhere."""
    try:
        described = json.loads(text)
    except ValueError as error:
        raise DataError(f"{path}: {name} is not valid JSON ({error})") from error
    if label is not None or not isinstance(described, dict):
        return label
    return described.get("label", described.get("cls"))

"""Tar shards in the naming of webdataset: files of one image follow each other and share a key.

``n01440764/10026.jpg`` and ``n01440764/10026.cls`` belong to the key ``n01440764/10026``: the path
up to the first dot of the file's name. The label is the text of ``.cls``, or the entry ``label`` or
``cls`` of ``.json``; without either an image is unlabelled. Shards are indexed once; an image is
then read at its place in the file, so shards must not be compressed.
"""

from __future__ import annotations

import json
import re
import tarfile
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from .decoding import DataError, Range
from .folder import IMAGE_SUFFIXES, is_helper
from .listing import Listing
from .packed import named_labels

__all__ = ["list_tars"]

_LOOK = 2**20  # bytes to look through at a time


@dataclass
class _Sample:
    """What is known of a key."""

    image: Range | None = None
    label: Any = None


def list_tars(paths: Sequence[Path], source: str) -> Listing:
    """The images of tar shards, one after the other, with one numbering of classes.

    Raises:
        DataError: If a shard is damaged, cut short or compressed, holds a key twice, a link to
            nothing or no image at all, or a label cannot be read.
    """
    items: list[Range] = []
    values: list[Any] = []
    keys: list[str] = []
    ignored: Counter[str] = Counter()
    for path in paths:
        for key, sample in _samples(path, ignored).items():
            if sample.image is None:
                ignored["keys without an image"] += 1
                continue
            items.append(sample.image)
            values.append(sample.label)
            keys.append(key)
    notes = tuple(f"ignored in {source}: {what} ({n})" for what, n in sorted(ignored.items()))
    if not items:
        found = "; ".join(["shards hold KEY.jpg and KEY.cls or KEY.json", *notes])
        raise DataError(f"{source} holds no images; {found}")
    labels, classes = named_labels(
        np.asarray(values, dtype=object),
        None,
        source,
        at=lambda row: f"of key {keys[row]} in {items[row].path}",
    )
    ids = [f"{item.path.stem}/{key}" for item, key in zip(items, keys, strict=True)]
    return Listing(items, ids, labels, classes, source, notes=notes)


def _samples(path: Path, ignored: Counter[str]) -> dict[str, _Sample]:
    samples: dict[str, _Sample] = {}
    try:
        with tarfile.open(path, "r:") as shard:
            for name, file in _files(shard, path):
                folder, _, base = name.rpartition("/")
                stem, _, ending = base.partition(".")
                sample = samples.setdefault(f"{folder}/{stem}" if folder else stem, _Sample())
                if f".{ending.lower()}" in IMAGE_SUFFIXES:
                    if sample.image is not None:
                        raise DataError(f"{path} has two images of one key: {name} is the second")
                    sample.image = Range(path, file.offset_data, file.size)
                elif ending.lower() in ("cls", "json"):
                    _label(sample, shard, file, f"{path}: {name}")
                else:
                    ignored[f"files .{ending.lower()}"] += 1
            _check_end(path, shard.offset)
    except (tarfile.TarError, OSError) as error:
        raise DataError(
            f"{path} is damaged, or is no plain tar file; copy it again, or unpack it if it is "
            f"compressed ({error})"
        ) from error
    return samples


def _files(shard: tarfile.TarFile, path: Path) -> Iterator[tuple[str, tarfile.TarInfo]]:
    """Names that may belong to an image, and where their content stands.

    The content of a hard link is that of the file before it that it names.
    """
    contents: dict[str, tarfile.TarInfo] = {}
    for member in shard:
        base = member.name.rpartition("/")[2]
        if not member.isdir():
            linked = contents.get(member.linkname) if member.islnk() else None
            contents[member.name] = linked or member
        if member.isdir() or is_helper(base) or "." not in base:
            continue
        content = contents[member.name]
        if content.islnk() or content.issym():
            raise DataError(
                f"{path}: {member.name} is a link to {content.linkname}, which is no file before "
                "it; make the shard anew with the files themselves (tar --dereference)"
            )
        if not content.isfile() or content.issparse():
            raise DataError(f"{path}: {member.name} is no plain file; make the shard anew")
        yield member.name, content


def _check_end(path: Path, end: int) -> None:
    """Raises DataError unless a tar file really ends where its reader stopped.

    The reader takes a damaged header for the end, and so the end of a file that was cut.
    """
    with path.open("rb") as file:
        file.seek(end)
        mark = file.read(tarfile.BLOCKSIZE)
        if not mark:
            raise DataError(
                f"{path} ends without tar's end mark, at byte {end}: it was cut, or never "
                "finished; copy it again or make it anew"
            )
        if mark != bytes(tarfile.BLOCKSIZE):
            raise DataError(
                f"{path} is damaged at byte {end}, where a file's header should stand or tar's "
                "end mark; copy it again or make it anew"
            )
        while block := file.read(_LOOK):
            if block.count(0) < len(block):
                place = file.tell() - len(block.lstrip(b"\0"))
                raise DataError(
                    f"{path} holds data behind its end mark, at byte {place}: it is damaged, or "
                    "several tar files were joined; copy it again or keep them apart"
                )


def _label(sample: _Sample, shard: tarfile.TarFile, file: tarfile.TarInfo, where: str) -> None:
    """Adds the label in a file to its sample; that of .cls goes before that of .json."""
    content = shard.extractfile(file)
    try:
        text = (content.read() if content else b"").decode("utf-8").strip()
    except UnicodeDecodeError as error:
        raise DataError(f"{where} is no text ({error})") from error
    if where.lower().endswith(".cls"):
        if not text:
            raise DataError(f"{where} is empty; leave it out where an image has no label")
        sample.label = int(text) if re.fullmatch("-?[0-9]{1,18}", text) else text
        return
    try:
        described = json.loads(text)
    except ValueError as error:
        raise DataError(f"{where} is not valid JSON ({error})") from error
    if sample.label is None and isinstance(described, dict):
        sample.label = described.get("label", described.get("cls"))

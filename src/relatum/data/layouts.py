"""Omniglot and CelebA as torchvision lays them out on disk: image files beside text files.

They are read directly. torchvision's own readers want the archives beside the unpacked files.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from .decoding import DataError
from .embedded import EXTRA
from .folder import is_helper, list_class_folders, natural_key
from .listing import Listing

__all__ = ["CELEBA_ATTRIBUTE", "celeba", "omniglot"]

CELEBA_ATTRIBUTE = "Smiling"
"""The label of CelebA where none is named."""

_AGAIN = "copy the file again"


def omniglot(folder: Path, *, download: bool = False) -> Listing:
    """Omniglot's background set: 964 characters of 30 alphabets, drawn by 20 people each.

    A class is a character, named ``ALPHABET/characterNN``. (The evaluation set has other
    characters, so it cannot test what was learned about these: split the drawings instead.)

    Args:
        folder: What torchvision calls `root`: the folder above ``omniglot-py/``.
        download: Whether torchvision may fetch what is missing.

    Raises:
        DataError: If the folder lacks the data.
    """
    root = folder / "omniglot-py" / "images_background"
    if download and not root.is_dir():
        _fetch("Omniglot", folder, background=True)
    alphabets = _folders(root)
    if not alphabets:
        raise _missing("omniglot", folder, "omniglot-py/images_background/ALPHABET/CHARACTER/")
    parts = [list_class_folders(alphabet, within=root) for alphabet in alphabets]
    classes = tuple(
        f"{alphabet.name}/{name}"
        for alphabet, part in zip(alphabets, parts, strict=True)
        for name in part.classes
    )
    first = np.cumsum([0, *(len(part.classes) for part in parts)])
    items = [item for part in parts for item in part.items]
    return Listing(
        items=items,
        ids=[f"omniglot/{name}" for part in parts for name in part.ids],
        labels=np.concatenate([part.labels + n for part, n in zip(parts, first, strict=False)]),
        classes=classes,
        source=f"omniglot:{folder}",
        notes=tuple(note for part in parts for note in part.notes),
    )


def _folders(root: Path) -> list[Path]:
    found = root.iterdir() if root.is_dir() else ()
    chosen = [path for path in found if path.is_dir() and not is_helper(path.name)]
    return sorted(chosen, key=lambda path: natural_key(path.name))


def celeba(
    folder: Path, attribute: str = CELEBA_ATTRIBUTE, *, download: bool = False
) -> tuple[Listing, Listing]:
    """CelebA's aligned faces: training and test part, with one of its 40 attributes as the label.

    The validation part is not used. (Identities cannot be the label: those of the test part are
    other people.)

    Args:
        folder: What torchvision calls `root`: the folder above ``celeba/``.
        attribute: The column of ``list_attr_celeba.txt`` that becomes the label.
        download: Whether torchvision may fetch what is missing.

    Raises:
        DataError: If the folder lacks the data, a line of its lists is not what it should be, or
            there is no such attribute.
    """
    root = folder / "celeba"
    listed = [root / name for name in ("list_eval_partition.txt", "list_attr_celeba.txt")]
    faces = root / "img_align_celeba"
    if download and not faces.is_dir():
        _fetch("CelebA", folder, split="all")
    if not faces.is_dir() or not all(path.is_file() for path in listed):
        needed = "img_align_celeba/, list_eval_partition.txt and list_attr_celeba.txt"
        raise _missing("celeba", folder, f"celeba/ with {needed}")
    partition, values = _partition(listed[0]), _attribute(listed[1], attribute)
    if partition.keys() != values.keys():
        odd = min(partition.keys() ^ values.keys())
        has, lacks = listed if odd in partition else listed[::-1]
        raise DataError(f"{has} has a line for {odd} and {lacks} has none: {_AGAIN}")
    parts = []
    for part, number in (("train", "0"), ("test", "2")):
        names = [name for name, where in partition.items() if where == number]
        labels = [values[name] for name in names]
        parts.append(
            Listing(
                items=[faces / name for name in names],
                ids=[f"celeba/{part}/{name}" for name in names],
                labels=np.asarray(labels, dtype=np.int64),
                classes=(f"not {attribute}", attribute),
                source=f"celeba:{folder}",
            )
        )
    return parts[0], parts[1]


def _partition(path: Path) -> dict[str, str]:
    """Of every face "0", "1" or "2": training, validation, test."""
    partition = {}
    for row, line in enumerate(path.read_text("utf-8", errors="replace").splitlines(), start=1):
        words = line.split()
        if not words:
            continue
        if len(words) != 2 or words[1] not in ("0", "1", "2"):
            raise DataError(f"{path}, line {row}: {line!r} is no file name and 0, 1 or 2: {_AGAIN}")
        partition[words[0]] = words[1]
    return partition


def _attribute(path: Path, attribute: str) -> dict[str, bool]:
    """Whether each face has it. The file: the number of faces, the attributes, one face a line."""
    lines = path.read_text("utf-8", errors="replace").splitlines()
    header = lines[1].split() if len(lines) > 1 else []
    if attribute not in header:
        known = ", ".join(header) or f"none, since {path} ends early: {_AGAIN}"
        raise DataError(f"CelebA has no attribute {attribute!r}; known are {known}")
    values = {}
    for row, line in enumerate(lines[2:], start=3):
        words = line.split()
        if not words:
            continue
        if len(words) != len(header) + 1 or not set(words[1:]) <= {"-1", "1"}:
            raise DataError(
                f"{path}, line {row}: needed are a file name and {len(header)} numbers, each -1 or "
                f"1, one for each attribute: {_AGAIN}"
            )
        values[words[0]] = words[1 + header.index(attribute)] == "1"
    return values


def _fetch(reader: str, folder: Path, **options: object) -> None:
    try:
        import torchvision.datasets
    except ImportError:
        raise DataError(f"torchvision downloads {reader}: {EXTRA}") from None
    try:
        getattr(torchvision.datasets, reader)(folder, download=True, **options)
    except Exception as error:  # a network has many ways to fail
        raise DataError(
            f"torchvision could not download {reader} into {folder}: {error}"
        ) from error


def _missing(name: str, folder: Path, what: str) -> DataError:
    return DataError(
        f"{folder} does not hold {name} in torchvision's layout (needed is {what}). Download it "
        "with relatum train images --download (in Python, download=True)"
    )

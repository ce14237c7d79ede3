"""What every probe is given and what it gives back: checked rows, labels, and the result.

Unlabelled rows are left out, and how many is said in the result. The classes are those of the
training labels; a test label that is none of them counts as wrong and is listed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np
from jaxtyping import Float, Float64, Int64
from numpy.typing import NDArray

from .features import Array, feature_array
from .labels import Label, Labels, classes_of, few_labels, label_array, labels_share

__all__ = ["ProbeResult", "ProbeTask", "probe_task", "score"]

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
    label_fraction: float | None = None


@dataclass(frozen=True)
class ProbeResult:
    """What one probe found.

    Attributes:
        probe: "linear", "linear-sgd", "knn", "class-means" or "fine-tuning".
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
        label_fraction: Share of the labelled rows drawn from each class; None is all of them.
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
    label_fraction: float | None = None
    scores: Float64[np.ndarray, "m c"] | None = field(default=None, repr=False)

    def to_dict(self) -> dict[str, Any]:
        """All but predictions and scores, ready to be written as JSON."""
        record = asdict(replace(self, scores=None))
        del record["predictions"], record["scores"]
        return record


def probe_task(
    train_x: Array,
    train_y: Labels,
    test_x: Array,
    test_y: Labels,
    *,
    labels_per_class: int | None,
    seed: int,
    label_fraction: float | None = None,
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
    classes = classes_of(y)
    if len(classes) < 2 or len(test_labels) == 0:
        raise ValueError(
            f"a probe needs two classes and a test row: train_y has the classes {classes}, test_y "
            f"{len(test_labels)} labelled rows (-1 means unlabelled)"
        )
    if labels_per_class is not None and label_fraction is not None:
        raise ValueError("give labels_per_class or label_fraction, not both")
    rows = np.arange(len(y))
    if labels_per_class is not None:
        rows = few_labels(y, labels_per_class, seed)
    elif label_fraction is not None:
        rows = labels_share(y, label_fraction, seed)
    x, y = x[rows], y[rows]
    codes, unseen = _test_codes(test_labels, classes)
    warnings += unseen
    train_codes = np.searchsorted(np.array(classes), y).astype(np.int64)
    return ProbeTask(
        x,
        train_codes,
        test,
        codes,
        tuple(classes),
        labels_per_class,
        seed,
        tuple(warnings),
        label_fraction,
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
    listed = ", ".join(repr(label) for label in classes_of(labels[unseen]))
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
        label_fraction=task.label_fraction,
    )

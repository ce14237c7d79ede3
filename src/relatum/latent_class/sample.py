"""Labelled embeddings as every estimator of this room takes them: checked, in classes, counted."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from jaxtyping import Bool, Float64, Int64
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import csr_array
from torch import Tensor

from ..arrays import features as feature_tensor
from .checks import checked_prior

__all__ = ["LabelledSample", "class_weights", "labelled_sample"]


@dataclass(frozen=True, eq=False)
class LabelledSample:
    r"""Embeddings :math:`f(x_i)` with the class of each; K classes, at least two.

    Attributes:
        features: The embeddings, float64.
        codes: The class numbers 0..K-1.
        classes: The labels of those numbers, as given.
        prior: The class prior ρ where it is known; None means that the sample's labels were drawn
            from it, and weights come from the counts.
        notes: What was left out, in plain words.
        units: Rows of one unit are dependent (one person in several classes): standard errors leave
            out whole units. None takes all rows as independent.
    """

    features: Float64[np.ndarray, "n d"]
    codes: Int64[np.ndarray, " n"]
    classes: tuple[Any, ...]
    prior: Float64[np.ndarray, " K"] | None = None
    notes: tuple[str, ...] = ()
    units: Int64[np.ndarray, " n"] | None = None

    @property
    def counts(self) -> Int64[np.ndarray, " K"]:
        """Rows of each class."""
        return np.bincount(self.codes, minlength=len(self.classes)).astype(np.int64)

    @property
    def weights(self) -> Float64[np.ndarray, "K K"]:
        """The weight of each class pair; see :func:`class_weights`."""
        return class_weights(self.counts, self.prior)

    @property
    def law(self) -> Float64[np.ndarray, " K"]:
        """The class probabilities: ρ, or the frequencies in the sample."""
        counts = self.counts
        return np.asarray(counts / counts.sum()) if self.prior is None else self.prior

    @property
    def tau(self) -> float:
        r"""The collision probability: Σρ², or its unbiased estimate Σ n_c (n_c − 1) / n (n − 1)."""
        return float(np.trace(self.weights))

    def rows(self, code: int) -> Float64[np.ndarray, "m d"]:
        """The embeddings of one class."""
        return np.asarray(self.features[self.codes == code])

    def class_sums(self, values: Float64[np.ndarray, "n ..."]) -> Float64[np.ndarray, "K ..."]:
        """The sum of values over the rows of each class."""
        n, classes = len(self.codes), len(self.classes)
        # One entry a row: the product adds rows in their order, many times faster than np.add.at.
        members = csr_array((np.ones(n), self.codes, np.arange(n + 1)), shape=(n, classes))
        sums = members.T @ values.reshape(n, -1)
        return np.asarray(sums.reshape(classes, *values.shape[1:]))

    def class_means(self, values: Float64[np.ndarray, "n ..."]) -> Float64[np.ndarray, "K ..."]:
        """The mean of values over the rows of each class; of the features, the class means μ_c."""
        counts = self.counts.reshape(-1, *[1] * (values.ndim - 1))
        return np.asarray(self.class_sums(values) / counts)

    def require(self, rows: int, what: str) -> None:
        """Raises ValueError where a class has fewer rows than something needs."""
        counts = self.counts
        if counts.min() < rows:
            at = int(counts.argmin())
            raise ValueError(
                f"{what} needs {rows} rows of every class, class {self.classes[at]!r} has "
                f"{counts[at]}: read the sample with least={rows}"
            )

    def require_radius(self, radius: float) -> None:
        """Raises ValueError where a stated bound on |f| is not positive or a row is longer."""
        longest = float(np.linalg.norm(self.features, axis=1).max())
        # Rows that were normalised in single precision are not exactly of their length.
        if not longest * (1 - 1e-6) <= radius < math.inf or radius <= 0:
            raise ValueError(
                f"radius must be a known bound on |f|, got {radius} with a row of length "
                f"{longest:.6g}"
            )

    def keep(self, kept: Bool[np.ndarray, " n"]) -> LabelledSample:
        """The rows that are marked, with the same classes."""
        units = None if self.units is None else self.units[kept]
        return replace(self, features=self.features[kept], codes=self.codes[kept], units=units)


def class_weights(
    counts: Int64[np.ndarray, " K"], prior: Float64[np.ndarray, " K"] | None
) -> Float64[np.ndarray, "K K"]:
    r"""The probability of (anchor's class, negative's class).

    .. math:: w_{ce} = \rho_c \rho_e, \quad\text{or}\quad
              w_{ce} = \frac{n_c n_e}{n(n-1)},\; w_{cc} = \frac{n_c(n_c-1)}{n(n-1)}

    without a prior: the second is unbiased where labels are drawn from ρ.
    """
    if prior is not None:
        return np.outer(prior, prior)
    n = counts.sum()
    pairs = np.outer(counts, counts) - np.diag(counts)
    law: Float64[np.ndarray, "K K"] = pairs / float(n * (n - 1))
    return law


def labelled_sample(
    features: ArrayLike | Tensor,
    labels: ArrayLike | Tensor | Sequence[Any],
    *,
    class_prior: Mapping[Any, float] | ArrayLike | None = None,
    least: int = 3,
) -> LabelledSample:
    r"""Reads embeddings and labels; small classes are left out with a note.

    Labels are integers of any type, booleans, floats that hold whole numbers, strings or a pandas
    Categorical: one class for each value, in sorted order, whatever the type. Rows labelled -1 are
    unlabelled and left out. Classes with fewer than ``least`` rows are left out and the prior is
    renormalised; both are said in ``notes``.

    Args:
        features: Embeddings, (n, d), floating point.
        labels: One label a row.
        class_prior: ρ: a mapping from label to probability, or one number for each class in sorted
            order. None takes the labels as drawn from it.
        least: Rows that a class needs: 3 for the risk within a class (anchor, positive, negative).

    Raises:
        ValueError: If shapes disagree, a value is not finite, fewer than two classes remain, or
            the prior is none.
        TypeError: If embeddings are not floating point.

    Example:
        >>> sample = labelled_sample(np.eye(7), ["a", "a", "a", "b", "b", "b", "c"])
        >>> sample.classes, sample.counts, sample.notes
        (('a', 'b'), array([3, 3]), ("left out 1 class with fewer than 3 rows (1 row): 'c'",))
    """
    rows = _feature_rows(features)
    found = _label_array(labels)
    if found.shape != (len(rows),):
        raise ValueError(f"labels must have shape ({len(rows)},), got {found.shape}")
    notes: list[str] = []
    unlabelled = found == -1 if found.dtype.kind in "iu" else np.zeros(len(found), bool)
    if unlabelled.any():
        notes.append(f"left out {unlabelled.sum()} rows labelled -1 (unlabelled)")
        rows, found = rows[~unlabelled], found[~unlabelled]
    values, codes, counts = np.unique(found, return_inverse=True, return_counts=True)
    masses = None if class_prior is None else _prior(class_prior, values.tolist(), notes)
    kept = counts >= max(least, 1)
    if not kept.all():
        small = ", ".join(repr(value) for value in values[~kept].tolist()[:5])
        more = "" if (~kept).sum() <= 5 else ", ..."
        notes.append(
            f"left out {_many((~kept).sum(), 'class', 'classes')} with fewer than {least} rows "
            f"({_many(counts[~kept].sum(), 'row', 'rows')}): {small}{more}"
        )
    if kept.sum() < 2:
        raise ValueError(
            f"labels must hold at least two classes with {least} rows or more, got {kept.sum()}"
        )
    if masses is not None:
        masses = masses[kept] / masses[kept].sum()
    inside = kept[codes]
    numbers = np.cumsum(kept) - 1
    return LabelledSample(
        np.ascontiguousarray(rows[inside]),
        numbers[codes[inside]].astype(np.int64),
        tuple(values[kept].tolist()),
        masses,
        tuple(notes),
    )


def _many(count: int, one: str, several: str) -> str:
    return f"{count} {one if count == 1 else several}"


def _feature_rows(features: object) -> Float64[np.ndarray, "n d"]:
    plain = features if isinstance(features, Tensor) else np.asarray(features)
    rows = feature_tensor("features", plain).detach().cpu().double().numpy()
    if rows.ndim != 2:
        raise ValueError(f"features must be a matrix (n, d), got the shape {rows.shape}")
    bad = np.flatnonzero(~np.isfinite(rows).all(axis=1))
    if len(bad):
        raise ValueError(f"features must be finite, row {bad[0]} is not")
    return rows


def _label_array(labels: object) -> NDArray[Any]:
    """Labels as int64 or strings, so that their type never changes the mode."""
    array = np.asarray(labels.detach().cpu().numpy() if isinstance(labels, Tensor) else labels)
    if array.dtype == object:
        array = _from_objects(array)
    if array.dtype.kind == "f":
        bad = np.flatnonzero(~(np.isfinite(array) & (array == np.floor(array))))
        if len(bad):
            raise ValueError(
                f"labels must be whole numbers or strings, row {bad[0]} is {array[bad[0]]}"
            )
    if array.dtype.kind in "biuf":
        return array.astype(np.int64)
    if array.dtype.kind == "U":
        return array
    raise TypeError(f"labels must be integers or strings, got the type {array.dtype}")


def _from_objects(array: NDArray[Any]) -> NDArray[Any]:
    texts = [isinstance(value, str) for value in array.ravel()]
    if any(texts) and not all(texts):
        row = texts.index(not texts[0])
        raise TypeError(
            f"labels must be all strings or all numbers, row 0 is {array.ravel()[0]!r} and row "
            f"{row} is {array.ravel()[row]!r}"
        )
    return np.array(array.tolist())


def _prior(
    given: Mapping[Any, float] | ArrayLike, labels: list[Any], notes: list[str]
) -> Float64[np.ndarray, " K"]:
    if isinstance(given, Mapping):
        missing = [label for label in labels if label not in given]
        if missing:
            raise ValueError(f"class_prior must name every class, it lacks {missing[0]!r}")
        whole = np.array([float(mass) for mass in given.values()])
        masses = np.array([float(given[label]) for label in labels])
        absent = [label for label in given if label not in labels]
        if absent:
            notes.append(f"no rows of {_many(len(absent), 'class', 'classes')} of the prior, left "
                         f"out: {', '.join(map(repr, absent[:5]))}")  # fmt: skip
    else:
        masses = whole = np.asarray(given, np.float64)
        if masses.shape != (len(labels),):
            raise ValueError(
                f"class_prior must hold one number for each of the {len(labels)} classes, got the "
                f"shape {masses.shape}"
            )
    checked_prior(whole, "class_prior")
    return np.asarray(masses / masses.sum())

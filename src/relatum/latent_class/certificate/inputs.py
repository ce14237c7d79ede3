"""What a certificate is made of, checked: one clear error for each mistake."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from jaxtyping import Bool, Float64, Int64
from torch import Tensor

from ...arrays import features
from ..checks import check_delta, surrogate
from ..sample import LabelledSample, labelled_sample

__all__ = ["Inputs", "drawn", "first_of_each", "read"]

# Anchor, positive and a negative of the same class.
_LEAST = 3


@dataclass(frozen=True, eq=False)
class Inputs:
    """Arrays that belong together row by row, and what was asked for."""

    rows: Float64[np.ndarray, "n d"]
    sample: LabelledSample | None
    pairs: Float64[np.ndarray, "n d"] | None
    negatives: Float64[np.ndarray, "m d"] | None
    groups: Int64[np.ndarray, " n"] | None
    loss: str
    radius: float | None
    tau_lower: float
    delta: float
    level: float
    seed: int
    k: tuple[int, ...]
    block: tuple[int, ...]
    notes: tuple[str, ...] = ()

    def keep(self, kept: Bool[np.ndarray, " n"]) -> Inputs:
        """The rows that are marked."""
        return replace(
            self,
            rows=self.rows[kept],
            sample=None if self.sample is None else self.sample.keep(kept),
            pairs=None if self.pairs is None else self.pairs[kept],
            groups=None if self.groups is None else self.groups[kept],
        )

    def settings(self) -> dict[str, Any]:
        """What was given or chosen, and the size of it."""
        chosen = ("loss", "radius", "tau_lower", "delta", "level", "seed", "k", "block")
        given = {"labels": self.sample, "pairs": self.pairs, "negatives": self.negatives}
        return {
            **{name: getattr(self, name) for name in chosen},
            "mode": " and ".join(name for name, value in given.items() if value is not None),
            "rows": len(self.rows),
            "dimensions": self.rows.shape[1],
            "classes": None if self.sample is None else len(self.sample.classes),
            "groups": None if self.groups is None else len(np.unique(self.groups)),
        }


def read(
    embeddings: object,
    labels: Any,
    pairs: object,
    negatives: object,
    groups: Any,
    *,
    class_prior: Any,
    classes: Sequence[Any] | None,
    k: int | Sequence[int],
    block: int | Sequence[int],
    radius: float | None,
    **plain: Any,
) -> Inputs:
    """The arguments of `certify`, checked against each other."""
    rows = _matrix("embeddings", embeddings)
    if labels is None and pairs is None:
        raise ValueError(
            "certify needs labels or pairs, got neither: give labels (n,), or pairs (n, d) whose "
            "row i is a class mate of row i of embeddings"
        )
    mates = None if pairs is None else _matrix("pairs", pairs)
    if mates is not None and mates.shape != rows.shape:
        raise ValueError(
            f"pairs must have the shape {rows.shape} of embeddings, row by row a class mate, got "
            f"{mates.shape}"
        )
    others = None if negatives is None else _matrix("negatives", negatives)
    if others is not None and others.shape[1] != rows.shape[1]:
        raise ValueError(f"negatives must have {rows.shape[1]} columns, got {others.shape[1]}")
    _check_options(labels, others, mates, class_prior, classes, **plain)
    _check_radius(radius, {"embeddings": rows, "pairs": mates, "negatives": others})
    units = None if groups is None else _group_codes(groups, len(rows))
    whole = Inputs(
        rows, None, mates, others, units, radius=radius, k=_counts("k", k),
        block=_counts("block", block), **plain,
    )  # fmt: skip
    return whole if labels is None else _labelled(whole, labels, class_prior, classes)


def first_of_each(
    keys: Int64[np.ndarray, " n"], generator: np.random.Generator
) -> Bool[np.ndarray, " n"]:
    """Marks one row of each key, any of its rows with equal probability."""
    order = generator.permutation(len(keys))
    kept = np.zeros(len(keys), bool)
    kept[order[np.unique(keys[order], return_index=True)[1]]] = True
    return kept


def drawn(n: int, most: int, seed: int) -> Int64[np.ndarray, " m"]:
    """All of n rows, or so many of them at random."""
    rows = np.arange(n)
    return rows if n <= most else np.sort(np.random.default_rng(seed).permutation(n)[:most])


def _matrix(name: str, value: object) -> Float64[np.ndarray, "n d"]:
    plain = value if isinstance(value, Tensor) else np.asarray(value)
    rows = features(name, plain).detach().cpu().double().numpy()
    if rows.ndim != 2 or 0 in rows.shape:
        raise ValueError(f"{name} must be a matrix (rows, features), got the shape {rows.shape}")
    bad = np.flatnonzero(~np.isfinite(rows).all(axis=1))
    if len(bad):
        raise ValueError(
            f"{name} must be finite, row {bad[0]} is not ({len(bad)} such rows): leave them out"
        )
    return rows


def _check_options(
    labels: object,
    negatives: object,
    pairs: object,
    class_prior: object,
    classes: object,
    *,
    loss: str,
    tau_lower: float,
    delta: float,
    level: float,
    seed: int,
) -> None:
    surrogate(loss)
    check_delta(delta)
    if not 0 < level < 1:
        raise ValueError(f"level must lie between 0 and 1, got {level}")
    if not 0 <= tau_lower < 1:
        raise ValueError(
            f"tau_lower must be a lower bound in [0, 1) on the collision probability, got "
            f"{tau_lower}: 0 is always right"
        )
    if pairs is None and negatives is not None:
        raise ValueError(
            "negatives go with pairs, got none: with labels alone, rows serve as negatives"
        )
    for name, value in (("class_prior", class_prior), ("classes", classes)):
        if labels is None and value is not None:
            raise ValueError(
                f"{name} goes with labels, got none: of pairs say tau_lower, the sum of squares of "
                "the class probabilities"
            )


def _check_radius(radius: float | None, arrays: dict[str, Any]) -> None:
    if radius is None:
        return
    for name, rows in arrays.items():
        if rows is None:
            continue
        norms = np.linalg.norm(rows, axis=1)
        # Rows that were normalised in single precision are not exactly of their length.
        if not 0 < radius < math.inf or radius < norms.max() * (1 - 1e-6):
            raise ValueError(
                f"radius must be a bound on |f(x)| known before the data, got {radius}, and row "
                f"{norms.argmax()} of {name} has length {norms.max():.6g}: normalise the rows, or "
                "leave radius out and certify nothing"
            )


def _group_codes(groups: Any, n: int) -> Int64[np.ndarray, " n"]:
    values = groups.tolist() if hasattr(groups, "tolist") else list(groups)
    if len(values) != n:
        raise ValueError(f"groups must have one entry for each of {n} rows, got {len(values)}")
    numbers: dict[Any, int] = {}
    return np.array([numbers.setdefault(value, len(numbers)) for value in values], np.int64)


def _counts(name: str, value: int | Sequence[int]) -> tuple[int, ...]:
    found = [value] if isinstance(value, int | np.integer) else list(value)
    wrong = [x for x in found if not isinstance(x, int | np.integer) or x < 1]
    if wrong:
        raise ValueError(f"{name} must be whole numbers from 1 on, got {wrong[0]!r}")
    return tuple(sorted({int(x) for x in found}))


def _labelled(
    whole: Inputs, labels: Any, class_prior: Any, classes: Sequence[Any] | None
) -> Inputs:
    """With classes; rows without one are left out everywhere."""
    n = len(whole.rows)
    # Row numbers in the place of features say which rows remain.
    places = np.arange(n, dtype=np.float64)[:, None]
    if classes is not None:
        plain = labels.cpu().numpy() if isinstance(labels, Tensor) else np.asarray(labels)
        if plain.shape != (n,):
            raise ValueError(f"labels must have shape ({n},), got {plain.shape}")
        absent = [name for name in classes if name not in set(plain.tolist())]
        if absent:
            raise ValueError(f"classes must be labels that occur, {absent[0]!r} does not")
        chosen = np.isin(plain, list(classes))
        places, labels = places[chosen], plain[chosen]
    found = labelled_sample(places, labels, class_prior=class_prior, least=1)
    counts = found.counts
    if counts.min() < _LEAST:
        raise ValueError(
            f"labels must give every class {_LEAST} rows or more, class "
            f"{found.classes[counts.argmin()]!r} has {counts.min()}: name the other classes in "
            "classes=[...] to leave it out"
        )
    kept = np.zeros(n, bool)
    kept[found.features[:, 0].astype(int)] = True
    rest = whole.keep(kept)
    left_out = () if classes is None else (f"only {len(counts)} classes, as asked for",)
    sample = replace(found, features=rest.rows)
    return replace(rest, sample=sample, notes=(*left_out, *found.notes))

"""Embeddings and what belongs to them, from an npz file as ``relatum embed`` writes it."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from jaxtyping import Float, Float64, Shaped
from numpy.typing import NDArray

from .table_files import DAMAGED

__all__ = ["Embeddings", "on_sphere", "read_embeddings", "unit_rows"]

_ROWS: Final = ("features", "ids", "labels", "groups", "pairs", "split")  # one value a row
KEYS: Final = (*_ROWS, "negatives", "classes")


@dataclass(frozen=True, eq=False)
class Embeddings:
    """Rows of features and what is known of each; None where a file does not say.

    Attributes:
        features: One row for each thing embedded.
        ids: Their names.
        labels: Their classes; whole numbers with -1 for unlabelled, or text.
        groups: What they come from, where several rows come from one source (a person, a session).
        pairs: Row i is a class mate of row i of the features.
        negatives: Rows drawn from all classes as they come.
        split: "train" or "test" for each row.
        classes: The names of the classes, where labels are numbers.
    """

    features: Float[np.ndarray, "n d"]
    ids: Shaped[np.ndarray, " n"] | None = None
    labels: Shaped[np.ndarray, " n"] | None = None
    groups: Shaped[np.ndarray, " n"] | None = None
    pairs: Float[np.ndarray, "n d"] | None = None
    negatives: Float[np.ndarray, "m d"] | None = None
    split: Shaped[np.ndarray, " n"] | None = None
    classes: Shaped[np.ndarray, " K"] | None = None

    def part(self, name: str) -> Embeddings:
        """The rows whose split has that name; all rows where the file does not say."""
        return self if self.split is None else self.keep(self.split == name)

    def keep(self, rows: Shaped[np.ndarray, " k"]) -> Embeddings:
        """The rows of a mask or of numbers."""
        taken = {
            field.name: value[rows]
            for field in dataclasses.fields(self)
            if (value := getattr(self, field.name)) is not None and field.name in _ROWS
        }
        return dataclasses.replace(self, **taken)

    def labelled(self) -> Embeddings:
        """The rows that have a label (not -1), with the names of their classes where known."""
        if self.labels is None or self.labels.dtype.kind not in "iu":
            return self
        known = self.keep(self.labels >= 0)
        if self.classes is None:
            return known
        return dataclasses.replace(known, labels=self.classes[np.asarray(known.labels)])


def read_embeddings(path: Path) -> Embeddings:
    """The arrays of an npz file that have one of the names above; others are passed over.

    Raises:
        ValueError: If the file is not there or is no npz, ``features`` is missing, an array has
            another length, or a label has no class.
    """
    if not path.is_file():
        what = "is a folder" if path.is_dir() else f"does not exist (from {Path.cwd()})"
        raise ValueError(f"{path} {what}; an npz file with `features` is needed")
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as loaded:
            arrays = {key: loaded[key] for key in loaded.files if key in KEYS}
            known = list(loaded.files)
    except (*DAMAGED, AttributeError, TypeError) as error:
        raise ValueError(
            f"{path} is no npz file of plain arrays; numpy.savez(path, features=..., labels=...) "
            "writes one, of numbers or strings, not of objects"
        ) from error
    if "features" not in arrays:
        raise ValueError(
            f"{path} has no array `features` (n, d); it holds {', '.join(known) or 'nothing'}"
        )
    for key in ("features", "pairs", "negatives"):
        if key in arrays:
            arrays[key] = _matrix(path, key, arrays[key])
    _check_lengths(path, arrays)
    return Embeddings(**arrays)


def _matrix(path: Path, key: str, value: NDArray[Any]) -> NDArray[Any]:
    if value.ndim != 2 or value.dtype.kind not in "fiub":
        raise ValueError(
            f"`{key}` of {path} must be a matrix of numbers, got {value.dtype} {value.shape}"
        )
    wide = value if value.dtype.kind == "f" else value.astype(np.float32)
    bad = np.flatnonzero(~np.isfinite(wide).all(1))
    if len(bad):
        raise ValueError(f"`{key}` of {path} must be finite; row {bad[0]} is not")
    return wide


def _check_lengths(path: Path, arrays: dict[str, NDArray[Any]]) -> None:
    n, width = arrays["features"].shape
    for key, value in arrays.items():
        if key == "classes":
            labels = arrays.get("labels", np.zeros(0, int))
            if labels.dtype.kind in "iu" and labels.max(initial=-1) >= len(value):
                raise ValueError(
                    f"`labels` of {path} go up to {labels.max()}; `classes` names {len(value)}"
                )
        elif key == "negatives":
            if value.shape[1] != width:
                raise ValueError(
                    f"`negatives` of {path} must be as wide as the features, {width}; they are "
                    f"{value.shape[1]} wide"
                )
        elif key == "pairs" and value.shape != (n, width):
            raise ValueError(
                f"`pairs` of {path} must be {(n, width)} as the features are, got {value.shape}"
            )
        elif len(value) != n or (value.ndim != 1 and key not in ("features", "pairs")):
            raise ValueError(
                f"`{key}` of {path} must hold one value for each of {n} rows, got {value.shape}"
            )


def unit_rows(x: Float[np.ndarray, "*n p"]) -> Float64[np.ndarray, "*n p"]:
    """Rows of length 1; a row of zeros stays."""
    wide = np.asarray(x, np.float64)
    lengths = np.linalg.norm(wide, axis=-1, keepdims=True)
    return np.asarray(np.divide(wide, lengths, out=np.zeros_like(wide), where=lengths > 0))


def on_sphere(x: Float[np.ndarray, "n d"], temperature: float) -> Float64[np.ndarray, "n d"]:
    """Rows of length 1 / √T, whose scores are cosines divided by the temperature T."""
    return np.asarray(unit_rows(x) / np.sqrt(temperature))

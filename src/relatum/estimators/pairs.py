"""Which rows belong together: the positive pairs of an array, by five rules.

Every rule is an object that knows its anchors and draws a pair for some of them. Negatives are no
matter here: :mod:`relatum.scores.pairings` says who they are.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
import torch
from jaxtyping import Float, Int64
from torch import Tensor

__all__ = [
    "AugmentedPairs",
    "ClassPairs",
    "NoisyPairs",
    "Pair",
    "Pairs",
    "RowPairs",
    "TimePairs",
    "class_codes",
    "pairs_of",
]

Augmentation = Callable[[Tensor, torch.Generator], Tensor]
"""A random view of rows (n, d), drawn by the generator."""


class Pair(NamedTuple):
    """Rows that belong together, (n, d) each; rows of one id are not negatives of each other."""

    x: Float[Tensor, "n dx"]
    y: Float[Tensor, "n dy"]
    ids: Int64[Tensor, " n"] | None = None


class Pairs(Protocol):
    """A rule.

    Attributes:
        anchors: Rows that have a partner.
    """

    @property
    def anchors(self) -> Int64[Tensor, " a"]:
        """Their numbers."""
        ...

    def draw(self, rows: Int64[Tensor, " n"], generator: torch.Generator) -> Pair:
        """The pairs of these anchors, which are rows of the array."""
        ...


@dataclass(frozen=True)
class RowPairs:
    """Row i of x with row i of y."""

    x: Float[Tensor, "n dx"]
    y: Float[Tensor, "n dy"]

    @property
    def anchors(self) -> Int64[Tensor, " a"]:
        """All rows."""
        return torch.arange(len(self.x))

    def draw(self, rows: Int64[Tensor, " n"], generator: torch.Generator) -> Pair:
        """Nothing is drawn."""
        return Pair(self.x[rows], self.y[rows])


@dataclass(frozen=True)
class AugmentedPairs:
    """Two random views of a row."""

    x: Float[Tensor, "n d"]
    augmentation: Augmentation

    @property
    def anchors(self) -> Int64[Tensor, " a"]:
        """All rows."""
        return torch.arange(len(self.x))

    def draw(self, rows: Int64[Tensor, " n"], generator: torch.Generator) -> Pair:
        """Two draws of the augmentation."""
        views = [self.augmentation(self.x[rows], generator) for _ in range(2)]
        for view in views:
            if not isinstance(view, Tensor) or view.shape != self.x[rows].shape:
                got = tuple(view.shape) if isinstance(view, Tensor) else type(view).__name__
                raise ValueError(
                    f"the augmentation must map (n, d) to a tensor (n, d); of "
                    f"{tuple(self.x[rows].shape)} it made {got}"
                )
        return Pair(*views)


@dataclass(frozen=True)
class NoisyPairs:
    """A row twice, each time with independent Gaussian noise of this deviation."""

    x: Float[Tensor, "n d"]
    noise: float

    @property
    def anchors(self) -> Int64[Tensor, " a"]:
        """All rows."""
        return torch.arange(len(self.x))

    def draw(self, rows: Int64[Tensor, " n"], generator: torch.Generator) -> Pair:
        """Two draws of noise."""
        x = self.x[rows]
        return Pair(*(x + self.noise * _normal(x, generator) for _ in range(2)))


@dataclass(frozen=True)
class TimePairs:
    """A row and one that comes 1 to `lag` rows later, in the same recording.

    Attributes:
        x: Rows in the order of time.
        y: The other side of the same times; x itself for neighbours of one side.
        lag: The farthest.
        recordings: Codes of recordings, each of which is one run of rows; None: there is one.
    """

    x: Float[Tensor, "n dx"]
    y: Float[Tensor, "n dy"]
    lag: int
    recordings: Int64[Tensor, " n"] | None = None

    @property
    def anchors(self) -> Int64[Tensor, " a"]:
        """Rows that are not the last of their recording."""
        return (self._later() > 0).nonzero().squeeze(1)

    def draw(self, rows: Int64[Tensor, " n"], generator: torch.Generator) -> Pair:
        """How much later is drawn, equally likely among what there is."""
        later = self._later()[rows]
        step = 1 + (torch.rand(len(rows), generator=generator) * later).long()
        return Pair(self.x[rows], self.y[rows + step])

    def _later(self) -> Int64[Tensor, " n"]:
        """How many of the next `lag` rows belong to a row's recording."""
        n = len(self.x)
        end = torch.full((n,), n)
        if self.recordings is not None:
            last = torch.ones(n, dtype=torch.bool)
            last[:-1] = self.recordings[1:] != self.recordings[:-1]
            ends = last.nonzero().squeeze(1) + 1
            end = ends[torch.searchsorted(ends, torch.arange(n), right=True)]
        return (end - 1 - torch.arange(n)).clamp(max=self.lag)


class ClassPairs:
    """A row and another of its class; rows of one class are not negatives of each other.

    Args:
        x: Rows.
        codes: Their classes; -1 is no class.
    """

    def __init__(self, x: Float[Tensor, "n d"], codes: Int64[Tensor, " n"]) -> None:
        self.x, self.codes = x, codes
        known = codes >= 0
        sizes = torch.bincount(codes[known])
        self._sizes = sizes
        self.anchors = (known & (sizes[codes.clamp(min=0)] > 1)).nonzero().squeeze(1)
        # Rows sorted by class; the members of a class stand together.
        order = codes.argsort(stable=True)
        self._members = order[int((~known).sum()) :]
        self._start = sizes.cumsum(0) - sizes
        self._place = torch.empty_like(codes)
        self._place[self._members] = (
            torch.arange(len(self._members)) - self._start[codes[self._members]]
        )

    @property
    def alike(self) -> bool:
        """Whether all anchors are of one class."""
        classes = self.codes[self.anchors]
        return bool((classes == classes[:1]).all())

    def draw(self, rows: Int64[Tensor, " n"], generator: torch.Generator) -> Pair:
        """Another member of the class, all equally likely."""
        classes = self.codes[rows]
        others = self._sizes[classes] - 1
        drawn = (torch.rand(len(rows), generator=generator) * others).long()
        drawn += drawn >= self._place[rows]  # all but the row itself
        return Pair(self.x[rows], self.x[self._members[self._start[classes] + drawn]], classes)


def pairs_of(
    pairing: str | Augmentation,
    x: Float[Tensor, "n dx"],
    y: Float[Tensor, "n dy"] | None,
    codes: Int64[Tensor, " n"] | None,
    *,
    noise: float,
    lag: int,
) -> Pairs:
    """The pairs of some rows by one of the rules.

    Args:
        pairing: "rows", "time", "classes", "groups", or an augmentation.
        x: Rows.
        y: Their second side, if there is one.
        codes: Classes or groups of the rows, as the rule needs them.
        noise: Of the copies, where rows have no second side.
        lag: Of neighbours in time.

    Raises:
        ValueError: If there are no two pairs.
    """
    pairs: Pairs
    if callable(pairing):
        pairs = AugmentedPairs(x, pairing)
    elif pairing == "time":
        pairs = TimePairs(x, x if y is None else y, lag, codes)
    elif pairing in ("classes", "groups"):
        if codes is None:
            where = "groups=" if pairing == "groups" else "y"
            raise ValueError(f"pairing={pairing!r} needs {where}, one label for each row")
        pairs = ClassPairs(x, codes)
    else:
        pairs = NoisyPairs(x, noise) if y is None else RowPairs(x, y)
    anchors = pairs.anchors
    if len(anchors) < 2:
        raise ValueError(
            f"{len(x)} rows hold {len(anchors)} pairs by pairing={pairing!r}; at least 2 are "
            "needed to contrast one with another"
        )
    if isinstance(pairs, ClassPairs) and pairs.alike:
        raise ValueError(
            f"{len(x)} rows hold pairs of one class alone, and rows of a class are no negatives of "
            "each other; at least 2 classes with 2 rows each are needed"
        )
    return pairs


def class_codes(name: str, labels: object, rows: int) -> Int64[Tensor, " n"]:
    """Labels as codes 0, 1, ...; the integer −1 stays −1, unlabelled.

    Raises:
        ValueError: If there is not one label for each row, or one is missing.
    """
    values = np.asarray(labels)
    if values.shape != (rows,):
        raise ValueError(
            f"{name} must be one label for each of the {rows} rows, got shape {values.shape}"
        )
    missing = values != values  # NaN alone differs from itself
    if np.any(missing):
        raise ValueError(f"{name} is missing (NaN) at row {int(np.argmax(missing))}")
    kinds, codes = np.unique(values, return_inverse=True)
    if values.dtype.kind == "i" and len(kinds) and kinds[0] == -1:
        codes = codes - 1
    return torch.from_numpy(codes.reshape(-1).astype(np.int64))


def _normal(like: Tensor, generator: torch.Generator) -> Tensor:
    drawn = torch.randn(like.shape, generator=generator, dtype=like.dtype)
    return drawn.to(like.device)

"""What there is, not yet decoded.

Every source (folder, archive, table, embedded set) first becomes a :class:`Listing`. Splits and
limits act on listings, so that only what is used is looked at.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from .decoding import Item

__all__ = ["Listing"]


@dataclass(frozen=True)
class Listing:
    """Images that are known but not yet decoded: encoded bytes, files, or pixel arrays."""

    items: Sequence[Item]
    ids: Sequence[str]
    labels: NDArray[np.int64]
    classes: tuple[str, ...]
    source: str
    rows: NDArray[np.int64] = None  # type: ignore[assignment]  # filled in below
    """Row numbers in the source; None counts from 0."""
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.rows is None:
            object.__setattr__(self, "rows", np.arange(len(self.items), dtype=np.int64))

    def __len__(self) -> int:
        return len(self.items)

    def take(self, positions: NDArray[np.int64]) -> Listing:
        """The listing of these positions, in the order given."""
        chosen = positions.tolist()
        return replace(
            self,
            items=[self.items[i] for i in chosen],
            ids=[self.ids[i] for i in chosen],
            labels=self.labels[positions],
            rows=self.rows[positions],
        )

    def noting(self, *notes: str) -> Listing:
        """The same with further notes."""
        return replace(self, notes=(*self.notes, *notes))

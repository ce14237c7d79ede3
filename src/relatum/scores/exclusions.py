"""Which candidates of an anchor are *not* its negatives, said by ids in linear memory."""

from __future__ import annotations

from typing import NamedTuple

import torch
from jaxtyping import Bool, Int
from torch import Tensor

__all__ = ["Exclusions", "Groups", "either"]


class Groups(NamedTuple):
    """The ids that stand on both sides, in order, and their rows on each.

    Attributes:
        anchors: Rows of the anchors with such an id, group after group.
        candidates: The same for the candidates.
        anchor_sizes: Anchors of each group.
        candidate_sizes: Candidates of each group.
    """

    anchors: Int[Tensor, " a"]
    candidates: Int[Tensor, " b"]
    anchor_sizes: Int[Tensor, " g"]
    candidate_sizes: Int[Tensor, " g"]


class Exclusions:
    """Candidates with the anchor's id are not negatives of it.

    Two vectors of ids say this for every pairing in O(n + m) memory: in-batch pairs carry
    ``arange(N)`` on both sides (own partner), two views ``arange(N)`` twice (self and partner), a
    bank that shares nothing with the anchors carries ids of its own.

    Args:
        anchor_ids: One id per anchor.
        candidate_ids: One id per candidate.
        kept: A mask, if there is one as well: False where a candidate is no negative of an anchor.
    """

    def __init__(
        self,
        anchor_ids: Int[Tensor, " n"],
        candidate_ids: Int[Tensor, " m"],
        kept: Bool[Tensor, "n m"] | None = None,
    ) -> None:
        self.anchor_ids = anchor_ids
        self.candidate_ids = candidate_ids
        self.kept = kept
        self._ranges: dict[tuple[bool, int, int], tuple[int, int]] = {}

    @classmethod
    def none(
        cls, n: int, m: int, device: torch.device, kept: Bool[Tensor, "n m"] | None = None
    ) -> Exclusions:
        """Every candidate is a negative of every anchor, but for a mask."""
        zeros = torch.zeros(n, dtype=torch.int64, device=device)
        return cls(zeros, torch.ones(m, dtype=torch.int64, device=device), kept)

    @property
    def counts(self) -> Int[Tensor, " n"]:
        """The number of negatives of each anchor."""
        if self.kept is not None:
            same = self._same(slice(0, len(self.anchor_ids)), slice(0, len(self.candidate_ids)))
            return (self.kept if same is None else self.kept & ~same).sum(1)
        return len(self.candidate_ids) - occurrences(self.anchor_ids, self.candidate_ids)

    def mask(self, rows: slice, columns: slice) -> Bool[Tensor, "a b"] | None:
        """Which pairs of a tile are excluded; None if the ranges of ids show that none is."""
        kept = None if self.kept is None else self.kept[rows, columns]
        return either(self._same(rows, columns), kept)

    def _same(self, rows: slice, columns: slice) -> Bool[Tensor, "a b"] | None:
        low, high = self._range(True, rows)
        least, most = self._range(False, columns)
        # Ids in the order of the rows, as pairings number them, meet on the diagonal tiles alone.
        if high < least or most < low:
            return None
        return self.anchor_ids[rows, None] == self.candidate_ids[None, columns]

    def groups(self) -> Groups:
        """The excluded pairs, group by group: each anchor of a group with each candidate of it."""
        ids, anchor_sizes = torch.unique(self.anchor_ids, return_counts=True)
        candidate_sizes = occurrences(ids, self.candidate_ids)
        both = candidate_sizes > 0
        return Groups(
            _ordered_rows(self.anchor_ids, ids[both]),
            _ordered_rows(self.candidate_ids, ids[both]),
            anchor_sizes[both],
            candidate_sizes[both],
        )

    def _range(self, anchors: bool, part: slice) -> tuple[int, int]:
        """The smallest and largest id of some anchors or candidates; kept, since tiles repeat."""
        key = (anchors, part.start, part.stop)
        if key not in self._ranges:
            ids = (self.anchor_ids if anchors else self.candidate_ids)[part]
            self._ranges[key] = (int(ids.min()), int(ids.max()))
        return self._ranges[key]


def either(
    same: Bool[Tensor, "*any"] | None, kept: Bool[Tensor, "*any"] | None
) -> Bool[Tensor, "*any"] | None:
    """Excluded pairs from equal ids and from a mask of what counts."""
    if kept is None:
        return same
    return ~kept if same is None else same | ~kept


def occurrences(ids: Int[Tensor, " n"], among: Int[Tensor, " m"]) -> Int[Tensor, " n"]:
    """How often each id occurs among others."""
    ordered = among.sort().values
    return torch.searchsorted(ordered, ids, right=True) - torch.searchsorted(ordered, ids)


def _ordered_rows(ids: Tensor, wanted: Tensor) -> Tensor:
    order = ids.argsort(stable=True)
    return order[torch.isin(ids[order], wanted)]

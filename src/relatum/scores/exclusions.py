"""Which candidates of an anchor are *not* its negatives, said by ids in linear memory."""

from __future__ import annotations

from typing import NamedTuple

import torch
from jaxtyping import Bool, Int
from torch import Tensor

__all__ = ["Exclusions", "Groups"]


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
    """

    def __init__(self, anchor_ids: Int[Tensor, " n"], candidate_ids: Int[Tensor, " m"]) -> None:
        self.anchor_ids = anchor_ids
        self.candidate_ids = candidate_ids
        self._ranges: dict[tuple[bool, int, int], tuple[int, int]] = {}

    @classmethod
    def none(cls, n: int, m: int, device: torch.device) -> Exclusions:
        """Every candidate is a negative of every anchor."""
        zeros = torch.zeros(n, dtype=torch.int64, device=device)
        return cls(zeros, torch.ones(m, dtype=torch.int64, device=device))

    @property
    def counts(self) -> Int[Tensor, " n"]:
        """The number of negatives of each anchor."""
        return len(self.candidate_ids) - occurrences(self.anchor_ids, self.candidate_ids)

    def mask(self, rows: slice, columns: slice) -> Bool[Tensor, "a b"] | None:
        """Which pairs of a tile are excluded; None if the ranges of ids show that none is."""
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


def occurrences(ids: Int[Tensor, " n"], among: Int[Tensor, " m"]) -> Int[Tensor, " n"]:
    """How often each id occurs among others."""
    ordered = among.sort().values
    return torch.searchsorted(ordered, ids, right=True) - torch.searchsorted(ordered, ids)


def _ordered_rows(ids: Tensor, wanted: Tensor) -> Tensor:
    order = ids.argsort(stable=True)
    return order[torch.isin(ids[order], wanted)]

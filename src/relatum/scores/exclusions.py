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
        shifts: If known, the pattern as offsets: anchor i excludes candidates (i + s) mod m for
            each s. It is a fact about the ids that saves comparing them, not a second rule.
    """

    def __init__(
        self,
        anchor_ids: Int[Tensor, " n"],
        candidate_ids: Int[Tensor, " m"],
        shifts: tuple[int, ...] | None = None,
    ) -> None:
        self.anchor_ids = anchor_ids
        self.candidate_ids = candidate_ids
        self.shifts = shifts

    @classmethod
    def none(cls, n: int, m: int, device: torch.device) -> Exclusions:
        """Every candidate is a negative of every anchor."""
        zeros = torch.zeros(n, dtype=torch.int64, device=device)
        return cls(zeros, torch.ones(m, dtype=torch.int64, device=device), shifts=())

    @property
    def counts(self) -> Int[Tensor, " n"]:
        """The number of negatives of each anchor."""
        m = len(self.candidate_ids)
        if self.shifts is not None:
            return torch.full_like(self.anchor_ids, m - len(self.shifts))
        return m - _occurrences(self.anchor_ids, self.candidate_ids)

    def mask(self, rows: slice, columns: slice) -> Bool[Tensor, "a b"] | None:
        """Which pairs of a tile are excluded; None if the pattern says that none is."""
        if self.shifts is not None:
            m = len(self.candidate_ids)
            low, high = rows.start - (columns.stop - 1), (rows.stop - 1) - columns.start
            # Pair (i, j) is excluded iff j = i + s or j = i + s - m; i - j runs over [low, high].
            if not any(low <= gap <= high for s in self.shifts for gap in (-s, m - s)):
                return None
        return self.anchor_ids[rows, None] == self.candidate_ids[None, columns]

    def groups(self) -> Groups:
        """The excluded pairs, group by group: each anchor of a group with each candidate of it."""
        ids, anchor_sizes = torch.unique(self.anchor_ids, return_counts=True)
        candidate_sizes = _occurrences(ids, self.candidate_ids)
        both = candidate_sizes > 0
        return Groups(
            _ordered_rows(self.anchor_ids, ids[both]),
            _ordered_rows(self.candidate_ids, ids[both]),
            anchor_sizes[both],
            candidate_sizes[both],
        )


def _occurrences(ids: Tensor, among: Tensor) -> Tensor:
    ordered = among.sort().values
    return torch.searchsorted(ordered, ids, right=True) - torch.searchsorted(ordered, ids)


def _ordered_rows(ids: Tensor, wanted: Tensor) -> Tensor:
    order = ids.argsort(stable=True)
    return order[torch.isin(ids[order], wanted)]

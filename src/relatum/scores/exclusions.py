"""Which candidates of an anchor are *not* its negatives, said by ids in linear memory."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from jaxtyping import Bool, Int
from torch import Tensor

__all__ = ["Exclusions"]


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
        n, m = len(anchor_ids), len(candidate_ids)
        self._order: Tensor | None = None
        if shifts is not None:
            self.size = torch.full((n,), len(shifts), device=anchor_ids.device)
            return
        self._order = candidate_ids.argsort(stable=True)
        ordered = candidate_ids[self._order]
        self._start = torch.searchsorted(ordered, anchor_ids)
        self.size = torch.searchsorted(ordered, anchor_ids, right=True) - self._start
        assert int(self.size.max()) <= m

    @classmethod
    def none(cls, n: int, m: int, device: torch.device) -> Exclusions:
        """Every candidate is a negative of every anchor."""
        zeros = torch.zeros(n, dtype=torch.int64, device=device)
        return cls(zeros, torch.ones(m, dtype=torch.int64, device=device), shifts=())

    @property
    def counts(self) -> Int[Tensor, " n"]:
        """The number of negatives of each anchor."""
        return len(self.candidate_ids) - self.size

    def mask(self, rows: slice, columns: slice) -> Bool[Tensor, "a b"] | None:
        """Which pairs of a tile are excluded; None if the pattern says that none is."""
        if self.shifts is not None:
            m = len(self.candidate_ids)
            low, high = rows.start - (columns.stop - 1), (rows.stop - 1) - columns.start
            # Pair (i, j) is excluded iff j - i = s (mod m); i - j runs over [low, high].
            if not any(low <= -s + c * m <= high for s in self.shifts for c in (-1, 0, 1, 2)):
                return None
        return self.anchor_ids[rows, None] == self.candidate_ids[None, columns]

    def pairs(self, rows: slice) -> tuple[Int[Tensor, " e"], Int[Tensor, " e"]]:
        """The excluded pairs of these rows as (anchor, candidate) indices."""
        anchors = torch.arange(rows.start, rows.stop, device=self.anchor_ids.device)
        if self.shifts is not None:
            shifts = torch.tensor(self.shifts, device=anchors.device, dtype=torch.int64)
            candidates = (anchors[:, None] + shifts) % len(self.candidate_ids)
            return anchors.repeat_interleave(len(self.shifts)), candidates.flatten()
        assert self._order is not None
        size = self.size[rows]
        repeated = anchors.repeat_interleave(size)
        first = (size.cumsum(0) - size).repeat_interleave(size)
        offset = torch.arange(len(repeated), device=anchors.device) - first
        return repeated, self._order[self._start[repeated] + offset]

    def chunks(self, limit: int) -> Iterator[slice]:
        """Consecutive rows whose excluded pairs number at most `limit` (one row at least)."""
        total = self.size.cumsum(0)
        n, start = len(total), 0
        while start < n:
            done = int(total[start - 1]) if start else 0
            stop = int(torch.searchsorted(total, done + limit, right=True))
            stop = max(stop, start + 1)
            yield slice(start, stop)
            start = stop

    def groups(self) -> tuple[Int[Tensor, " g"], Int[Tensor, " g"], Int[Tensor, " g"]]:
        """Ids on both sides, with their numbers of anchors and of candidates."""
        ids, anchors = torch.unique(self.anchor_ids, return_counts=True)
        ordered = self.candidate_ids.sort().values
        candidates = torch.searchsorted(ordered, ids, right=True) - torch.searchsorted(ordered, ids)
        both = candidates > 0
        return ids[both], anchors[both], candidates[both]

"""The reductions of tiled scores: what each keeps per anchor, and its slope at a score.

Written by hand because a tile is scored again in the backward pass, when autograd has forgotten it.

Exponentials are powers of two, log2 Σ 2^f: torch computes those twice as fast as powers of e, since
they are vectorised on every processor. Tiles hand over scores that are scaled for it.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol, runtime_checkable

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from ..base import Elementwise

__all__ = [
    "LARGEST_BOUND",
    "BoundedLogSumExp",
    "LogSumExp",
    "PhiSum",
    "PowerSums",
    "Reduction",
    "Tile",
]

LARGEST_BOUND = 40.0
"""Up to this bound on |f| exponentials need no running maximum. e^(±40) are numbers of float32 with
17 decimal orders to spare on both sides, for sums of many and for small gradients."""


class Tile(NamedTuple):
    """Scores of the anchors ``rows`` and, where given, of the anchors ``columns``, transposed.

    Attributes:
        rows: Anchors along the first axis.
        columns: Anchors along the second axis, if columns are anchors.
        scores: A buffer that the next tile reuses: whoever has the tile may overwrite it.
        excluded: True where a pair is not a negative; None if all are.
    """

    rows: slice
    columns: slice | None
    scores: Float[Tensor, "a b"]
    excluded: Bool[Tensor, "a b"] | None

    def sides(self) -> list[tuple[slice, int]]:
        """The anchors, with the axis along which their candidates lie."""
        across = [] if self.columns is None else [(self.columns, 0)]
        return [(self.rows, 1), *across]

    def filled(self, value: float) -> Tensor:
        """The scores, in place, with `value` where a pair is excluded."""
        return (
            self.scores if self.excluded is None else self.scores.masked_fill_(self.excluded, value)
        )

    def without_excluded(self, values: Tensor) -> Tensor:
        """`values`, in place, with 0 where a pair is excluded."""
        return values if self.excluded is None else values.masked_fill_(self.excluded, 0)

    @property
    def times(self) -> int:
        """For how many anchors each score counts."""
        return 1 if self.columns is None else 2


@runtime_checkable
class Reduction(Protocol):
    """What one reduction adds to the loop over tiles."""

    def start(self, anchors: int, like: Tensor) -> list[Tensor]:
        """Per-anchor or total state."""
        ...

    def add(self, state: list[Tensor], tile: Tile) -> None:
        """Takes in one tile."""
        ...

    def finish(self, state: list[Tensor]) -> Tensor:
        """The result from the state."""
        ...

    def weight(self, value: Tensor, grad: Tensor, tile: Tile) -> Tensor:
        """dL/dS of a tile, of both its roles together."""
        ...


class LogSumExp:
    """log2 Σ 2^f per anchor, with a running maximum."""

    def start(self, anchors: int, like: Tensor) -> list[Tensor]:
        return [like.new_full((anchors,), -torch.inf), like.new_zeros(anchors)]

    def add(self, state: list[Tensor], tile: Tile) -> None:
        scores = tile.filled(-torch.inf)
        for at, axis in tile.sides():
            top, total = state[0][at], state[1][at]
            new_top = torch.maximum(top, scores.amax(axis))
            # Before an anchor has seen a negative its maximum is −inf, and −inf − −inf is NaN.
            shift = new_top.masked_fill(new_top == -torch.inf, 0)
            added = (scores - shift.unsqueeze(axis)).exp2_().sum(axis)
            total.mul_((top - shift).exp2_()).add_(added)
            top.copy_(new_top)

    def finish(self, state: list[Tensor]) -> Tensor:
        top, total = state
        return top.masked_fill(top == -torch.inf, 0) + total.log2()

    def weight(self, value: Tensor, grad: Tensor, tile: Tile) -> Tensor:
        weight = None
        for at, axis in tile.sides():
            empty = value[at] == -torch.inf
            # 2^(f − value) is at most 1: no overflow; an empty anchor has no softmax.
            logsum = value[at].masked_fill(empty, torch.inf)
            softmax = (tile.scores - logsum.unsqueeze(axis)).exp2_()
            softmax.mul_(grad[at].masked_fill(empty, 0).unsqueeze(axis))
            weight = softmax if weight is None else weight.add_(softmax)
        assert weight is not None
        return tile.without_excluded(weight)


class BoundedLogSumExp:
    """log2 Σ 2^f per anchor for scores within the bound: one power serves rows and columns."""

    def start(self, anchors: int, like: Tensor) -> list[Tensor]:
        return [like.new_zeros(anchors)]

    def add(self, state: list[Tensor], tile: Tile) -> None:
        powers = tile.without_excluded(tile.scores.exp2_())
        for at, axis in tile.sides():
            state[0][at] += powers.sum(axis)

    def finish(self, state: list[Tensor]) -> Tensor:
        return state[0].log2()

    def weight(self, value: Tensor, grad: Tensor, tile: Tile) -> Tensor:
        # 2^(f_ij − value_i) g_i + 2^(f_ij − value_j) g_j = 2^f_ij (c_i + c_j)
        both: Tensor | float = 0.0
        for at, axis in tile.sides():
            empty = value[at] == -torch.inf
            factor = grad[at].masked_fill(empty, 0) * (-value[at].masked_fill(empty, 0)).exp2()
            both = both + factor.unsqueeze(axis)
        return tile.without_excluded(tile.scores.exp2_()).mul_(both)


class PowerSums:
    """Σ f and Σ f², accumulated in float64: the tiles may be many."""

    def start(self, anchors: int, like: Tensor) -> list[Tensor]:
        self._dtype = like.dtype
        return [like.new_zeros(2, dtype=torch.float64)]

    def add(self, state: list[Tensor], tile: Tile) -> None:
        scores = tile.filled(0)
        # sum() adds in pairs; one long dot product would lose digits of float32.
        state[0] += tile.times * torch.stack([scores.sum(), scores.square_().sum()])

    def finish(self, state: list[Tensor]) -> Tensor:
        return state[0].to(self._dtype)

    def weight(self, value: Tensor, grad: Tensor, tile: Tile) -> Tensor:
        weight = tile.scores.mul_(2 * tile.times * grad[1]).add_(tile.times * grad[0])
        return tile.without_excluded(weight)


class PhiSum:
    """Σ φ(f); the slope of φ comes from autograd inside the tile."""

    def __init__(self, phi: Elementwise) -> None:
        self.phi = phi

    def start(self, anchors: int, like: Tensor) -> list[Tensor]:
        self._dtype = like.dtype
        return [like.new_zeros((), dtype=torch.float64)]

    def add(self, state: list[Tensor], tile: Tile) -> None:
        # Excluded scores become 0 before φ (whose value there may be infinite) and go after it.
        values = self.phi(tile.filled(0))
        kept = values if tile.excluded is None else values.masked_fill(tile.excluded, 0)
        state[0] += kept.sum() * tile.times

    def finish(self, state: list[Tensor]) -> Tensor:
        return state[0].to(self._dtype)

    def weight(self, value: Tensor, grad: Tensor, tile: Tile) -> Tensor:
        with torch.enable_grad():
            kept = tile.filled(0).detach().requires_grad_()
            (slope,) = torch.autograd.grad(self.phi(kept).sum(), kept)
        # φ may hand back an expanded or shared slope: scaling makes it our own.
        return tile.without_excluded(slope * (tile.times * grad))

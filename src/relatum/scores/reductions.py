"""The reductions of tiled scores: what each keeps per anchor, and its slope at a score.

Written by hand because a tile is scored again in the backward pass, when autograd has forgotten it.
"""

from __future__ import annotations

from typing import Protocol, runtime_checkable

import torch
from torch import Tensor

from ..base import Elementwise

__all__ = [
    "LARGEST_BOUND",
    "BoundedLogSumExp",
    "LogSumExp",
    "PhiSum",
    "PowerSums",
    "Reduction",
]

LARGEST_BOUND = 40.0
"""Up to this bound on |f| exponentials need no running maximum: e^(−80) is a normal float32."""


@runtime_checkable
class Reduction(Protocol):
    """What one reduction adds to the loop over tiles.

    A tile holds the scores of the anchors ``rows`` and, where ``columns`` is given, those of the
    anchors ``columns`` as well, transposed.
    """

    def start(self, anchors: int, like: Tensor) -> list[Tensor]:
        """Per-anchor or total state."""
        ...

    def add(
        self,
        state: list[Tensor],
        rows: slice,
        columns: slice | None,
        scores: Tensor,
        excluded: Tensor | None,
    ) -> None:
        """Takes in one tile; may overwrite its scores."""
        ...

    def finish(self, state: list[Tensor]) -> Tensor:
        """The result from the state."""
        ...

    def weight(
        self,
        value: Tensor,
        grad: Tensor,
        rows: slice,
        columns: slice | None,
        scores: Tensor,
        excluded: Tensor | None,
    ) -> Tensor:
        """dL/dS of a tile, of both its roles together; may overwrite its scores."""
        ...


class LogSumExp:
    """log Σ exp per anchor, with a running maximum."""

    def start(self, anchors: int, like: Tensor) -> list[Tensor]:
        return [like.new_full((anchors,), -torch.inf), like.new_zeros(anchors)]

    def add(
        self,
        state: list[Tensor],
        rows: slice,
        columns: slice | None,
        scores: Tensor,
        excluded: Tensor | None,
    ) -> None:
        if excluded is not None:
            scores.masked_fill_(excluded, -torch.inf)
        for at, axis in ((rows, 1), (columns, 0)):
            if at is None:
                continue
            top, total = state[0][at], state[1][at]
            new_top = torch.maximum(top, scores.amax(axis))
            # Before an anchor has seen a negative its maximum is −inf, and −inf − −inf is NaN.
            shift = new_top.masked_fill(new_top == -torch.inf, 0)
            added = (scores - shift.unsqueeze(axis)).exp_().sum(axis)
            total.mul_((top - shift).exp_()).add_(added)
            top.copy_(new_top)

    def finish(self, state: list[Tensor]) -> Tensor:
        top, total = state
        return top.masked_fill(top == -torch.inf, 0) + total.log()

    def weight(
        self,
        value: Tensor,
        grad: Tensor,
        rows: slice,
        columns: slice | None,
        scores: Tensor,
        excluded: Tensor | None,
    ) -> Tensor:
        weight = None
        for at, axis in ((rows, 1), (columns, 0)):
            if at is None:
                continue
            empty = value[at] == -torch.inf
            # exp(f − lse) is at most 1: no overflow; an empty anchor has no softmax.
            lse = value[at].masked_fill(empty, torch.inf)
            softmax = (scores - lse.unsqueeze(axis)).exp_()
            softmax.mul_(grad[at].masked_fill(empty, 0).unsqueeze(axis))
            weight = softmax if weight is None else weight.add_(softmax)
        assert weight is not None
        return weight if excluded is None else weight.masked_fill_(excluded, 0)


class BoundedLogSumExp:
    """log Σ exp per anchor for |f| <= bound: one exponential serves rows and columns.

    With exp(f − b) in [e^(−2b), 1] nothing over- or underflows for b up to
    :data:`LARGEST_BOUND`, so no maximum is needed.
    """

    def __init__(self, bound: float) -> None:
        self.bound = bound

    def start(self, anchors: int, like: Tensor) -> list[Tensor]:
        return [like.new_zeros(anchors)]

    def add(
        self,
        state: list[Tensor],
        rows: slice,
        columns: slice | None,
        scores: Tensor,
        excluded: Tensor | None,
    ) -> None:
        exponentials = self._exponentials(scores, excluded)
        state[0][rows] += exponentials.sum(1)
        if columns is not None:
            state[0][columns] += exponentials.sum(0)

    def finish(self, state: list[Tensor]) -> Tensor:
        return state[0].log() + self.bound

    def weight(
        self,
        value: Tensor,
        grad: Tensor,
        rows: slice,
        columns: slice | None,
        scores: Tensor,
        excluded: Tensor | None,
    ) -> Tensor:
        # exp(f_ij − lse_i) g_i + exp(f_ij − lse_j) g_j = exp(f_ij − b) (c_i + c_j)
        empty = value == -torch.inf
        factor = grad.masked_fill(empty, 0) * (self.bound - value.masked_fill(empty, 0)).exp()
        both = factor[rows, None]
        if columns is not None:
            both = both + factor[columns]
        return self._exponentials(scores, excluded).mul_(both)

    def _exponentials(self, scores: Tensor, excluded: Tensor | None) -> Tensor:
        exponentials = scores.sub_(self.bound).exp_()
        return exponentials if excluded is None else exponentials.masked_fill_(excluded, 0)


class PowerSums:
    """Σ f and Σ f², accumulated in float64: the tiles may be many."""

    def start(self, anchors: int, like: Tensor) -> list[Tensor]:
        self._dtype = like.dtype
        return [like.new_zeros(2, dtype=torch.float64)]

    def add(
        self,
        state: list[Tensor],
        rows: slice,
        columns: slice | None,
        scores: Tensor,
        excluded: Tensor | None,
    ) -> None:
        if excluded is not None:
            scores.masked_fill_(excluded, 0)
        times = 1 if columns is None else 2
        # sum() adds in pairs; one long dot product would lose digits of float32.
        state[0] += times * torch.stack([scores.sum(), scores.square_().sum()])

    def finish(self, state: list[Tensor]) -> Tensor:
        return state[0].to(self._dtype)

    def weight(
        self,
        value: Tensor,
        grad: Tensor,
        rows: slice,
        columns: slice | None,
        scores: Tensor,
        excluded: Tensor | None,
    ) -> Tensor:
        times = 1 if columns is None else 2
        weight = scores.mul_(2 * times * grad[1]).add_(times * grad[0])
        return weight if excluded is None else weight.masked_fill_(excluded, 0)


class PhiSum:
    """Σ φ(f); the slope of φ comes from autograd inside the tile."""

    def __init__(self, phi: Elementwise) -> None:
        self.phi = phi

    def start(self, anchors: int, like: Tensor) -> list[Tensor]:
        self._dtype = like.dtype
        return [like.new_zeros((), dtype=torch.float64)]

    def add(
        self,
        state: list[Tensor],
        rows: slice,
        columns: slice | None,
        scores: Tensor,
        excluded: Tensor | None,
    ) -> None:
        # Excluded scores become 0 before φ (whose value there may be infinite) and go after it.
        values = self.phi(scores if excluded is None else scores.masked_fill_(excluded, 0))
        kept = values if excluded is None else values.masked_fill(excluded, 0)
        state[0] += kept.sum() * (1 if columns is None else 2)

    def finish(self, state: list[Tensor]) -> Tensor:
        return state[0].to(self._dtype)

    def weight(
        self,
        value: Tensor,
        grad: Tensor,
        rows: slice,
        columns: slice | None,
        scores: Tensor,
        excluded: Tensor | None,
    ) -> Tensor:
        kept = scores if excluded is None else scores.masked_fill_(excluded, 0)
        with torch.enable_grad():
            kept = kept.detach().requires_grad_()
            (slope,) = torch.autograd.grad(self.phi(kept).sum(), kept)
        # φ may hand back an expanded or shared slope: scaling makes it our own.
        slope = slope * (grad if columns is None else 2 * grad)
        return slope if excluded is None else slope.masked_fill_(excluded, 0)

r"""All-pair reductions of separable critics in tiles, recomputed in the backward pass.

One autograd Function serves every reduction: forward visits the score matrix :math:`S = U V^\top`
tile by tile and keeps per-anchor state only; backward visits it again and needs, from the
reduction, the weight :math:`w_{ij} = \partial L / \partial S_{ij}` of a tile. Memory beyond the
factors is one tile and O(n + m).

Symmetry is used where there is some. If u *is* v (two views), a tile above the diagonal speaks for
its mirror image too. If rows and columns are both anchors (symmetric in-batch), one visit of a
tile serves both directions.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor
from torch.autograd.function import once_differentiable

from ..base import Elementwise
from .exclusions import Exclusions
from .strategies import Sums

__all__ = ["Tiled"]

Tile = tuple[slice, slice, Tensor, "Tensor | None"]


class Tiled:
    """Separable scores, reduced in square tiles.

    Args:
        u: Factors of the anchors.
        v: Factors of the candidates; the same tensor object as u for a symmetric pairing.
        exclusions: Which candidates are not negatives.
        tile: Side of a tile; a memory setting that changes no result.
        both: Whether columns are anchors too: per-anchor results are then those of the rows
            followed by those of the columns, and sums count every pair once for each.
    """

    def __init__(
        self,
        u: Float[Tensor, "n d"],
        v: Float[Tensor, "m d"],
        exclusions: Exclusions,
        tile: int,
        both: bool = False,
    ) -> None:
        self.u, self.v, self.exclusions, self.tile, self.both = u, v, exclusions, tile, both
        counts = exclusions.counts
        self.counts = torch.cat([counts, counts]) if both else counts

    def __repr__(self) -> str:
        kind = ", symmetric" if self.u is self.v else ", both directions" if self.both else ""
        return f"Tiled({len(self.u)} x {len(self.v)} by {self.tile}{kind})"

    def sums(self) -> Sums:
        """Σ f and Σ f²."""
        first, second = self._reduce(_PowerSums())
        return Sums(first, second)

    def sum(self, phi: Elementwise) -> Float[Tensor, ""]:
        """Σ φ(f)."""
        return self._reduce(_PhiSum(phi))

    def logsumexp(self) -> Float[Tensor, " n"]:
        """Log Σ_j exp f_ij per anchor."""
        return self._reduce(_LogSumExp())

    def max(self) -> Float[Tensor, " n"]:
        """max_j f_ij per anchor."""
        # Only the winners carry gradient: find them without it, then score them alone.
        u, v, n = self.u, self.v, len(self.u)
        value, winner = _winners(u.detach(), v.detach(), self)
        rows, columns = winner[:n], winner[n:]
        best = (u * v[rows]).sum(-1)
        if self.both:
            best = torch.cat([best, (u[columns] * v).sum(-1)])
        return best.masked_fill(value == -torch.inf, -torch.inf)

    def _reduce(self, reduction: _Reduction) -> Tensor:
        out: Tensor = _Reduce.apply(self.u, self.v, self, reduction)
        return out

    def tiles(self, u: Tensor, v: Tensor) -> Iterator[Tile]:
        """(rows, columns, scores, excluded) of every tile; of a symmetric matrix its upper half.

        Scores live in one buffer that the next tile overwrites.
        """
        n, m, t = len(u), len(v), self.tile
        buffer = u.new_empty(min(t, n) * min(t, m))
        for i in range(0, n, t):
            rows = slice(i, min(i + t, n))
            for j in range(i if self.u is self.v else 0, m, t):
                columns = slice(j, min(j + t, m))
                a, b = rows.stop - i, columns.stop - j
                scores = torch.mm(u[rows], v[columns].T, out=buffer[: a * b].view(a, b))
                yield rows, columns, scores, self.exclusions.mask(rows, columns)


@runtime_checkable
class _Reduction(Protocol):
    """What one reduction adds to the shared loop."""

    def start(self, anchors: int, like: Tensor) -> list[Tensor]:
        """Per-anchor or total state."""
        ...

    def add(self, state: list[Tensor], at: slice, scores: Tensor, excluded: Tensor | None) -> None:
        """Takes in the scores (rows = anchors `at`) of one tile; may overwrite nothing of them."""
        ...

    def finish(self, state: list[Tensor]) -> Tensor:
        """The result from the state."""
        ...

    def weight(
        self, value: Tensor, grad: Tensor, at: slice, scores: Tensor, excluded: Tensor | None
    ) -> Tensor:
        """dL/dS of a tile."""
        ...


class _Reduce(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, u: Tensor, v: Tensor, tiled: Tiled, reduction: _Reduction) -> Tensor:
        n = len(u)
        symmetric = tiled.u is tiled.v
        with torch.autocast(u.device.type, enabled=False):
            state = reduction.start(len(tiled.counts), u)
            for rows, columns, scores, excluded in tiled.tiles(u, v):
                reduction.add(state, rows, scores, excluded)
                if tiled.both or (symmetric and rows != columns):
                    shift = n if tiled.both else 0
                    at = slice(columns.start + shift, columns.stop + shift)
                    reduction.add(state, at, scores.T, None if excluded is None else excluded.T)
            value = reduction.finish(state)
        ctx.save_for_backward(u, v, value)
        ctx.tiled, ctx.reduction = tiled, reduction
        return value

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        u, v, value = ctx.saved_tensors
        tiled, reduction = ctx.tiled, ctx.reduction
        n = len(u)
        symmetric = tiled.u is tiled.v
        grad_u = torch.zeros_like(u)
        grad_v = grad_u if symmetric else torch.zeros_like(v)
        with torch.autocast(u.device.type, enabled=False):
            for rows, columns, scores, excluded in tiled.tiles(u, v):
                weight = reduction.weight(value, grad, rows, scores, excluded)
                if tiled.both or symmetric:
                    shift = n if tiled.both else 0
                    at = slice(columns.start + shift, columns.stop + shift)
                    mirrored = None if excluded is None else excluded.T
                    weight = weight + reduction.weight(value, grad, at, scores.T, mirrored).T
                grad_u[rows].addmm_(weight, v[columns])
                if not symmetric or rows != columns:
                    grad_v[columns].addmm_(weight.T, u[rows])
        if symmetric:
            # u and v are one tensor given twice: autograd adds the two answers.
            return grad_u, None, None, None
        return grad_u, grad_v, None, None


class _LogSumExp:
    """log Σ exp per anchor, with a running maximum."""

    def start(self, anchors: int, like: Tensor) -> list[Tensor]:
        return [like.new_full((anchors,), -torch.inf), like.new_zeros(anchors)]

    def add(self, state: list[Tensor], at: slice, scores: Tensor, excluded: Tensor | None) -> None:
        if excluded is not None:
            scores = scores.masked_fill(excluded, -torch.inf)
        top, total = state[0][at], state[1][at]
        new_top = torch.maximum(top, scores.amax(1))
        # While an anchor has seen no negative its maximum is −inf, and −inf − −inf is NaN.
        shift = new_top.masked_fill(new_top == -torch.inf, 0)
        added = (scores - shift[:, None]).exp_().sum(1)
        total.mul_((top - shift).exp_()).add_(added)
        top.copy_(new_top)

    def finish(self, state: list[Tensor]) -> Tensor:
        top, total = state
        return top.masked_fill(top == -torch.inf, 0) + total.log()

    def weight(
        self, value: Tensor, grad: Tensor, at: slice, scores: Tensor, excluded: Tensor | None
    ) -> Tensor:
        lse, slope = value[at], grad[at]
        empty = lse == -torch.inf
        softmax = (scores - lse.masked_fill(empty, torch.inf)[:, None]).exp_()
        softmax.mul_(slope.masked_fill(empty, 0)[:, None])
        return softmax if excluded is None else softmax.masked_fill_(excluded, 0)


class _PowerSums:
    """Σ f and Σ f², accumulated in float64: the tiles may be many."""

    def start(self, anchors: int, like: Tensor) -> list[Tensor]:
        self._dtype = like.dtype
        return [like.new_zeros(2, dtype=torch.float64)]

    def add(self, state: list[Tensor], at: slice, scores: Tensor, excluded: Tensor | None) -> None:
        if excluded is not None:
            scores = scores.masked_fill(excluded, 0)
        state[0][0] += scores.sum()
        state[0][1] += scores.square().sum()

    def finish(self, state: list[Tensor]) -> Tensor:
        return state[0].to(self._dtype)

    def weight(
        self, value: Tensor, grad: Tensor, at: slice, scores: Tensor, excluded: Tensor | None
    ) -> Tensor:
        weight = scores * (2 * grad[1]) + grad[0]
        return weight if excluded is None else weight.masked_fill_(excluded, 0)


class _PhiSum:
    """Σ φ(f); the slope of φ comes from autograd inside the tile."""

    def __init__(self, phi: Elementwise) -> None:
        self.phi = phi

    def start(self, anchors: int, like: Tensor) -> list[Tensor]:
        self._dtype = like.dtype
        return [like.new_zeros((), dtype=torch.float64)]

    def add(self, state: list[Tensor], at: slice, scores: Tensor, excluded: Tensor | None) -> None:
        # Excluded scores become 0 before φ (whose value there may be infinite) and go after it.
        kept = scores if excluded is None else scores.masked_fill(excluded, 0)
        values = self.phi(kept)
        state[0] += (values if excluded is None else values.masked_fill(excluded, 0)).sum()

    def finish(self, state: list[Tensor]) -> Tensor:
        return state[0].to(self._dtype)

    def weight(
        self, value: Tensor, grad: Tensor, at: slice, scores: Tensor, excluded: Tensor | None
    ) -> Tensor:
        kept = scores.clone() if excluded is None else scores.masked_fill(excluded, 0)
        with torch.enable_grad():
            kept.requires_grad_()
            (slope,) = torch.autograd.grad(self.phi(kept).sum(), kept)
        slope = slope * grad
        return slope if excluded is None else slope.masked_fill(excluded, 0)


def _winners(u: Tensor, v: Tensor, tiled: Tiled) -> tuple[Tensor, Tensor]:
    """The highest score of each anchor and where it stands (no gradient)."""
    n = len(u)
    value = u.new_full((len(tiled.counts),), -torch.inf)
    winner = torch.zeros(len(value), dtype=torch.int64, device=u.device)

    def update(at: slice, scores: Tensor, excluded: Tensor | None, offset: int) -> None:
        if excluded is not None:
            scores = scores.masked_fill(excluded, -torch.inf)
        top, index = scores.max(1)
        better = top > value[at]
        value[at] = torch.where(better, top, value[at])
        winner[at] = torch.where(better, index + offset, winner[at])

    with torch.autocast(u.device.type, enabled=False):
        for rows, columns, scores, excluded in tiled.tiles(u, v):
            update(rows, scores, excluded, columns.start)
            if tiled.both or (tiled.u is tiled.v and rows != columns):
                shift = n if tiled.both else 0
                at = slice(columns.start + shift, columns.stop + shift)
                update(at, scores.T, None if excluded is None else excluded.T, rows.start)
    return value, winner

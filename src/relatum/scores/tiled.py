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
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.autograd.function import once_differentiable

from ..base import Elementwise
from . import reductions
from .exclusions import Exclusions
from .reductions import BoundedLogSumExp, LogSumExp, PhiSum, PowerSums, Reduction
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
        kind = ", symmetric" if self.symmetric else ", both directions" if self.both else ""
        return f"Tiled({len(self.u)} x {len(self.v)} by {self.tile}{kind})"

    def sums(self) -> Sums:
        """Σ f and Σ f²."""
        first, second = self._reduce(PowerSums())
        return Sums(first, second)

    def sum(self, phi: Elementwise) -> Float[Tensor, ""]:
        """Σ φ(f)."""
        return self._reduce(PhiSum(phi))

    def logsumexp(self) -> Float[Tensor, " n"]:
        """Log Σ_j exp f_ij per anchor."""
        bound = self._bound()
        bounded = bound <= reductions.LARGEST_BOUND
        return self._reduce(BoundedLogSumExp(bound) if bounded else LogSumExp())

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

    @property
    def symmetric(self) -> bool:
        """Whether the score matrix is its own transpose."""
        return self.u is self.v

    def anchors_of(self, columns: slice) -> slice | None:
        """The anchors that these columns are, if columns are anchors too."""
        if self.both:
            return slice(columns.start + len(self.u), columns.stop + len(self.u))
        return columns if self.symmetric else None

    def _reduce(self, reduction: Reduction) -> Tensor:
        out: Tensor = _Reduce.apply(self.u, self.v, self, reduction)
        return out

    @torch.no_grad()
    def _bound(self) -> float:
        """A bound on |f| over all pairs (Cauchy-Schwarz)."""
        largest = [torch.linalg.vector_norm(w, dim=1).amax() for w in (self.u, self.v)]
        return float(largest[0] * largest[1])

    def tiles(self, u: Tensor, v: Tensor) -> Iterator[Tile]:
        """(rows, columns, scores, excluded) of every tile; of a symmetric matrix its upper half.

        Scores live in one buffer that the next tile overwrites.
        """
        n, m, t = len(u), len(v), self.tile
        buffer = u.new_empty(min(t, n) * min(t, m))
        for i in range(0, n, t):
            rows = slice(i, min(i + t, n))
            for j in range(i if self.symmetric else 0, m, t):
                columns = slice(j, min(j + t, m))
                a, b = rows.stop - i, columns.stop - j
                scores = torch.mm(u[rows], v[columns].T, out=buffer[: a * b].view(a, b))
                yield rows, columns, scores, self.exclusions.mask(rows, columns)


class _Reduce(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, u: Tensor, v: Tensor, tiled: Tiled, reduction: Reduction) -> Tensor:
        with torch.autocast(u.device.type, enabled=False):
            state = reduction.start(len(tiled.counts), u)
            for rows, columns, scores, excluded in tiled.tiles(u, v):
                across = tiled.anchors_of(columns)
                if tiled.symmetric and rows == columns:
                    across = None  # its own mirror image
                reduction.add(state, rows, across, scores, excluded)
            value = reduction.finish(state)
        ctx.save_for_backward(u, v, value)
        ctx.tiled, ctx.reduction = tiled, reduction
        return value

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        u, v, value = ctx.saved_tensors
        tiled, reduction = ctx.tiled, ctx.reduction
        grad_u = torch.zeros_like(u)
        grad_v = grad_u if tiled.symmetric else torch.zeros_like(v)
        with torch.autocast(u.device.type, enabled=False):
            for rows, columns, scores, excluded in tiled.tiles(u, v):
                across = tiled.anchors_of(columns)
                weight = reduction.weight(value, grad, rows, across, scores, excluded)
                grad_u[rows].addmm_(weight, v[columns])
                if not tiled.symmetric or rows != columns:
                    grad_v[columns].addmm_(weight.T, u[rows])
        # With u and v one tensor given twice, autograd adds the two answers: one has them all.
        return grad_u, None if tiled.symmetric else grad_v, None, None


def _winners(u: Tensor, v: Tensor, tiled: Tiled) -> tuple[Tensor, Tensor]:
    """The highest score of each anchor and where it stands (no gradient)."""
    value = u.new_full((len(tiled.counts),), -torch.inf)
    winner = torch.zeros(len(value), dtype=torch.int64, device=u.device)
    with torch.autocast(u.device.type, enabled=False):
        for rows, columns, scores, excluded in tiled.tiles(u, v):
            if excluded is not None:
                scores.masked_fill_(excluded, -torch.inf)
            across = tiled.anchors_of(columns)
            for at, axis, offset in ((rows, 1, columns.start), (across, 0, rows.start)):
                if at is not None:
                    top, index = scores.max(axis)
                    better = top > value[at]
                    value[at] = torch.where(better, top, value[at])
                    winner[at] = torch.where(better, index + offset, winner[at])
    return value, winner

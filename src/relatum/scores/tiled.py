r"""All-pair reductions of separable critics in tiles, recomputed in the backward pass.

One autograd Function serves every reduction: forward visits the score matrix :math:`S = U V^\top`
tile by tile and keeps per-anchor state only; backward visits it again and needs, from the
reduction, the weight :math:`w_{ij} = \partial L / \partial S_{ij}` of a tile. Memory beyond the
factors is one tile and O(n + m).

Symmetry is used where there is some. If u *is* v (two views), a tile above the diagonal speaks for
its mirror image too. If rows and columns are both anchors (symmetric in-batch), one visit of a
tile serves both directions.

``torch.compile`` leaves this loop, as all of the loss, out of its graphs: it would unroll every
tile, and anew for every batch size.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from ..base import Elementwise
from . import reductions
from .exclusions import Exclusions
from .reductions import BoundedLogSumExp, LogSumExp, PhiSum, PowerSums, Reduction, Tile
from .strategies import Sums

__all__ = ["Tiled"]


@dataclass(frozen=True)
class _Tiling:
    """How the score matrix is walked through.

    Attributes:
        exclusions: Which candidates are not negatives.
        side: Side of a tile.
        both: Whether columns are anchors too.
        symmetric: Whether the matrix is its own transpose, and its upper half stands for all.
    """

    exclusions: Exclusions
    side: int
    both: bool
    symmetric: bool

    def tiles(self, u: Tensor, v: Tensor) -> Iterator[tuple[slice, Tile]]:
        """Each tile that is visited, and its candidates; one buffer holds the scores of all."""
        n, m, side = len(u), len(v), self.side
        buffer = u.new_empty(min(side, n) * min(side, m))
        for i in range(0, n, side):
            rows = slice(i, min(i + side, n))
            for j in range(i if self.symmetric else 0, m, side):
                columns = slice(j, min(j + side, m))
                a, b = rows.stop - i, columns.stop - j
                scores = torch.mm(u[rows], v[columns].T, out=buffer[: a * b].view(a, b))
                across = columns if self.symmetric else None
                if self.both:  # columns are the anchors that follow the n rows
                    across = slice(columns.start + n, columns.stop + n)
                yield columns, Tile(rows, across, scores, self.exclusions.mask(rows, columns))


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
        self.u, self.v = u, v
        self._tiling = _Tiling(exclusions, tile, both, u is v and not both)
        counts = exclusions.counts
        self.counts = torch.cat([counts, counts]) if both else counts

    def __repr__(self) -> str:
        tiling = self._tiling
        kind = ", symmetric" if tiling.symmetric else ", both directions" if tiling.both else ""
        return f"Tiled({len(self.u)} x {len(self.v)} by {tiling.side}{kind})"

    def sums(self) -> Sums:
        """Σ f and Σ f²."""
        first, second = self._reduce(PowerSums(), self.u, self.v)
        return Sums(first, second)

    def sum(self, phi: Elementwise) -> Float[Tensor, ""]:
        """Σ φ(f).

        Raises:
            ValueError: If φ has parameters of its own, whose gradient tiles would lose.
        """
        if phi(self.u.new_zeros(1)).requires_grad:
            raise ValueError(
                "phi has parameters that want a gradient, which tiles do not give: reduce without "
                "block_size, or move the parameter into the critic"
            )
        return self._reduce(PhiSum(phi), self.u, self.v)

    def logsumexp(self) -> Float[Tensor, " n"]:
        """Log Σ_j exp f_ij per anchor."""
        bounded = self._bound() <= reductions.LARGEST_BOUND
        root = math.log(2) ** -0.5  # 2^(f / ln 2) = e^f, and half of it for each factor
        u = self.u * root
        v = u if self.v is self.u else self.v * root
        reduction = BoundedLogSumExp() if bounded else LogSumExp()
        return self._reduce(reduction, u, v) * math.log(2)

    def max(self) -> Float[Tensor, " n"]:
        """max_j f_ij per anchor."""
        # Only the winners carry gradient: find them without it, then score them alone.
        u, v, n = self.u, self.v, len(self.u)
        value, winner = _winners(u.detach(), v.detach(), self._tiling, len(self.counts))
        best = (u * v[winner[:n]]).sum(-1)
        if self._tiling.both:
            best = torch.cat([best, (u[winner[n:]] * v).sum(-1)])
        return best.masked_fill(value == -torch.inf, -torch.inf)

    def _reduce(self, reduction: Reduction, u: Tensor, v: Tensor) -> Tensor:
        out: Tensor = _Reduce.apply(u, v, self._tiling, len(self.counts), reduction)
        return out

    @torch.no_grad()
    def _bound(self) -> float:
        """A bound on |f| over all pairs (Cauchy-Schwarz)."""
        largest = [torch.linalg.vector_norm(w, dim=1).amax() for w in (self.u, self.v)]
        return float(largest[0] * largest[1])


class _Reduce(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, u: Tensor, v: Tensor, tiling: _Tiling, anchors: int, reduction: Reduction
    ) -> Tensor:
        with torch.autocast(u.device.type, enabled=False):
            state = reduction.start(anchors, u)
            for columns, tile in tiling.tiles(u, v):
                its_own_mirror = tiling.symmetric and tile.rows == columns
                reduction.add(state, tile._replace(columns=None) if its_own_mirror else tile)
            value = reduction.finish(state)
        ctx.save_for_backward(u, v, value)
        ctx.tiling, ctx.reduction = tiling, reduction
        return value

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        # Grad mode is on here exactly under create_graph=True; what follows has no graph.
        if torch.is_grad_enabled():
            raise RuntimeError(
                "tiled reductions have first derivatives only; for a second one use a smaller "
                "batch without block_size, so that the scores are held dense"
            )
        u, v, value = ctx.saved_tensors
        tiling, reduction = ctx.tiling, ctx.reduction
        wants_u, wants_v = ctx.needs_input_grad[:2]
        grad_u = torch.zeros_like(u) if wants_u else None
        grad_v = grad_u if tiling.symmetric else torch.zeros_like(v) if wants_v else None
        with torch.autocast(u.device.type, enabled=False):
            for columns, tile in tiling.tiles(u, v):
                weight = reduction.weight(value, grad, tile)
                if grad_u is not None:
                    grad_u[tile.rows].addmm_(weight, v[columns])
                if grad_v is not None and not (tiling.symmetric and tile.rows == columns):
                    grad_v[columns].addmm_(weight.T, u[tile.rows])
        # With u and v one tensor given twice, autograd adds the two answers: one has them all.
        return grad_u, None if tiling.symmetric else grad_v, None, None, None


def _winners(u: Tensor, v: Tensor, tiling: _Tiling, anchors: int) -> tuple[Tensor, Tensor]:
    """The highest score of each anchor and where it stands (no gradient)."""
    value = u.new_full((anchors,), -torch.inf)
    winner = torch.zeros(anchors, dtype=torch.int64, device=u.device)
    with torch.autocast(u.device.type, enabled=False):
        for columns, tile in tiling.tiles(u, v):
            scores = tile.filled(-torch.inf)
            for at, axis in tile.sides():
                top, index = scores.max(axis)
                better = (top > value[at]) | top.isnan()  # NaN is not to be outshone
                first = columns.start if axis == 1 else tile.rows.start
                value[at] = torch.where(better, top, value[at])
                winner[at] = torch.where(better, index + first, winner[at])
    return value, winner

"""How all-pair scores are held and reduced: dense, checkpointed, explicit.

A strategy gives *sums* over the pairs that remain, so that parts add up; `negatives.py` turns sums
into expectations. Masked pairs are removed (−inf, or ``where``), never multiplied by zero.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol, runtime_checkable

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from ..base import Critic, Elementwise

__all__ = ["Checkpointed", "Dense", "Strategy", "Sums"]


class Sums(NamedTuple):
    """Σ f and Σ f² over the pairs that remain."""

    first: Float[Tensor, ""]
    second: Float[Tensor, ""]

    def plus(self, other: Sums) -> Sums:
        """The sums over both sets of pairs."""
        return Sums(self.first + other.first, self.second + other.second)


@runtime_checkable
class Strategy(Protocol):
    """Sums and per-anchor reductions of the scores of all negatives.

    Attributes:
        counts: The number of negatives of each anchor.
    """

    counts: Int[Tensor, " n"]

    def sums(self) -> Sums:
        """Σ f and Σ f²."""
        ...

    def sum(self, phi: Elementwise) -> Float[Tensor, ""]:
        """Σ φ(f)."""
        ...

    def logsumexp(self) -> Float[Tensor, " n"]:
        """Log Σ_j exp f_ij per anchor; −inf for an anchor without negatives."""
        ...

    def max(self) -> Float[Tensor, " n"]:
        """max_j f_ij per anchor; −inf for an anchor without negatives."""
        ...


class Dense:
    """The scores themselves, n x m or n x k, with the pairs that do not count masked.

    Args:
        scores: All scores.
        excluded: True where a pair is not a negative; None if all are.
    """

    def __init__(
        self, scores: Float[Tensor, "n m"], excluded: Bool[Tensor, "n m"] | None = None
    ) -> None:
        # A critic of the user's own may score in half precision; sums of many do not fit there.
        self.scores = scores.float() if scores.dtype.itemsize < 4 else scores
        self.excluded = excluded
        n, m = scores.shape
        self.counts = (
            torch.full((n,), m, device=scores.device) if excluded is None else (~excluded).sum(1)
        )

    def __repr__(self) -> str:
        n, m = self.scores.shape
        return f"Dense({n} x {m})"

    def sums(self) -> Sums:
        """Σ f and Σ f²."""
        kept = self._filled(0)
        return Sums(kept.sum(), kept.square().sum())

    def sum(self, phi: Elementwise) -> Float[Tensor, ""]:
        """Σ φ(f)."""
        if self.excluded is None:
            return phi(self.scores).sum()
        # Scores that do not count are set to 0 *before* φ, whose value or slope at them may be
        # infinite, and φ(0) is removed after it.
        return phi(self._filled(0)).masked_fill(self.excluded, 0).sum()

    def logsumexp(self) -> Float[Tensor, " n"]:
        """Log Σ_j exp f_ij per anchor."""
        empty = self.counts == 0
        # A row of −inf only has gradient NaN; such rows are taken out before and named −inf after.
        rows = self._filled(-torch.inf).masked_fill(empty[:, None], 0)
        return rows.logsumexp(1).masked_fill(empty, -torch.inf)

    def max(self) -> Float[Tensor, " n"]:
        """max_j f_ij per anchor."""
        # The gradient goes to one winner, as in tiles; amax would share it among equals.
        return self._filled(-torch.inf).max(1).values

    def _filled(self, value: float) -> Tensor:
        return (
            self.scores if self.excluded is None else self.scores.masked_fill(self.excluded, value)
        )


class Checkpointed:
    """Blocks of rows, each scored again in the backward pass: bounded memory for any critic.

    Args:
        critic: The critic.
        x: Anchors.
        y: Candidates: (1, m, ...) shared by all anchors, or (n, k, ...) of each anchor.
        rows: Anchors per block.
        counts: The number of negatives of each anchor.
        excluded: The excluded candidates of some rows; None if there are none.
    """

    def __init__(
        self,
        critic: Critic,
        x: Float[Tensor, "n dx"],
        y: Tensor,
        rows: int,
        counts: Int[Tensor, " n"],
        excluded: Callable[[slice], Tensor | None],
    ) -> None:
        self.critic, self.x, self.y, self.rows = critic, x, y, rows
        self.counts, self.excluded = counts, excluded

    def __repr__(self) -> str:
        return f"Checkpointed({len(self.x)} anchors, {self.rows} at a time)"

    def sums(self) -> Sums:
        """Σ f and Σ f²."""
        first, second = zip(*(self._block(i, _sums) for i in self._starts()), strict=True)
        return Sums(torch.stack(first).sum(), torch.stack(second).sum())

    def sum(self, phi: Elementwise) -> Float[Tensor, ""]:
        """Σ φ(f)."""
        return torch.stack(
            [self._block(i, lambda d: (d.sum(phi),))[0] for i in self._starts()]
        ).sum()

    def logsumexp(self) -> Float[Tensor, " n"]:
        """Log Σ_j exp f_ij per anchor."""
        return torch.cat([self._block(i, lambda d: (d.logsumexp(),))[0] for i in self._starts()])

    def max(self) -> Float[Tensor, " n"]:
        """max_j f_ij per anchor."""
        return torch.cat([self._block(i, lambda d: (d.max(),))[0] for i in self._starts()])

    def _starts(self) -> range:
        return range(0, len(self.x), self.rows)

    def _block(self, start: int, reduce: _Reduce) -> tuple[Tensor, ...]:
        rows = slice(start, min(start + self.rows, len(self.x)))
        y = self.y if len(self.y) == 1 else self.y[rows]

        def run(x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
            # Made again with the scores: the masks of all blocks are a matrix too.
            return reduce(Dense(self.critic(x[:, None], y), self.excluded(rows)))

        out: tuple[Tensor, ...] = checkpoint(run, self.x[rows], y, use_reentrant=False)
        return out


@runtime_checkable
class _Reduce(Protocol):
    def __call__(self, dense: Dense) -> tuple[Tensor, ...]: ...


def _sums(dense: Dense) -> tuple[Tensor, ...]:
    return tuple(dense.sums())

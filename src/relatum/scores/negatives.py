"""Negatives: expectations over the pairs that remain, whatever strategy holds them."""

from __future__ import annotations

import math

import torch
from jaxtyping import Float
from torch import Tensor

from ..base import Elementwise, Moments
from ..distributed import ALONE, Group
from .strategies import Strategy, Sums

__all__ = ["BothDirections", "PooledNegatives"]


class PooledNegatives:
    """Sums of a strategy over all processes, divided by the number of pairs that remain.

    Args:
        strategy: How the scores of this process's anchors are held.
        group: The processes that share the batch.

    Raises:
        ValueError: If no pair remains: every expectation over negatives would be 0 / 0, and the
            losses that need none would be perfect for nothing.
    """

    def __init__(self, strategy: Strategy, group: Group = ALONE) -> None:
        self.strategy, self.group = strategy, group
        self.counts = strategy.counts
        self.total = int(group.sum(self.counts.sum()))
        if self.total == 0:
            raise ValueError(
                f"no negatives: none of the {len(self.counts)} anchors has a candidate besides its "
                "own positive; a contrastive loss needs at least two pairs with different ids"
            )

    def __repr__(self) -> str:
        return f"PooledNegatives({self.total} pairs, {self.strategy!r})"

    def moments(self) -> Moments:
        """E_Q f and E_Q f²."""
        first, second = self.group.sum(torch.stack([*self.strategy.sums()])) / self.total
        return Moments(first, second)

    def mean(self, phi: Elementwise) -> Float[Tensor, ""]:
        """E_Q φ(f)."""
        return self.group.sum(self.strategy.sum(phi)) / self.total

    def logsumexp(self) -> Float[Tensor, " n"]:
        """Log Σ_j exp f_ij per anchor."""
        return self.strategy.logsumexp()

    def log_mean_exp(self) -> Float[Tensor, ""]:
        """Log E_Q exp f; between processes one number per anchor travels."""
        return self.group.gather(self.logsumexp()).logsumexp(0) - math.log(self.total)

    def max(self) -> Float[Tensor, " n"]:
        """The highest negative score of each anchor."""
        return self.strategy.max()


class BothDirections:
    """Rows and columns of one score matrix, both as anchors: two strategies side by side."""

    def __init__(self, forward: Strategy, backward: Strategy) -> None:
        self.forward, self.backward = forward, backward
        self.counts = torch.cat([forward.counts, backward.counts])

    def __repr__(self) -> str:
        return f"BothDirections({self.forward!r}, {self.backward!r})"

    def sums(self) -> Sums:
        """Σ f and Σ f² of both."""
        return self.forward.sums().plus(self.backward.sums())

    def sum(self, phi: Elementwise) -> Float[Tensor, ""]:
        """Σ φ(f) of both."""
        return self.forward.sum(phi) + self.backward.sum(phi)

    def logsumexp(self) -> Float[Tensor, " n"]:
        """Per anchor, first rows then columns."""
        return torch.cat([self.forward.logsumexp(), self.backward.logsumexp()])

    def max(self) -> Float[Tensor, " n"]:
        """Per anchor, first rows then columns."""
        return torch.cat([self.forward.max(), self.backward.max()])

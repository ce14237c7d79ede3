"""A fitted critic: the log density ratio of any pairs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Float64, Int64
from torch import Tensor, nn

from ..base import Objective
from .links import Link
from .margins import NormalScores
from .start import Side, Start

__all__ = ["FittedCritic", "Prepared", "log_ratios"]

_PAIRS = 1 << 20  # scored at a time, which bounds the memory of the hidden layers


@dataclass(frozen=True)
class Prepared:
    """Two sides in normal scores, and the same with squares beside them as tensors."""

    x: Side
    y: Side
    tensor_x: Float[Tensor, "n a"]
    tensor_y: Float[Tensor, "n b"]

    @classmethod
    def of(cls, x: Side, y: Side) -> Prepared:
        """Squares spare the network from having to find radii, which many dependences turn on."""
        wide = [torch.from_numpy(np.concatenate([z, z**2 - 1], 1)).float() for z in (x, y)]
        return cls(x, y, *wide)


def log_ratios(
    start: Start | None,
    network: nn.Module | None,
    sides: Prepared,
    rows: Int64[np.ndarray, " b"],
    columns: Int64[np.ndarray, "b k"],
) -> Float[Tensor, "b k"]:
    """u(x_i, y_j) for rows i and their columns j, by start and network together."""
    total = torch.zeros(columns.shape)
    if start is not None and any(start.shares):
        total = total + torch.from_numpy(start.pairs(sides.x, sides.y, rows, columns)).float()
    if network is not None:
        total = total + network(sides.tensor_x[rows][:, None], sides.tensor_y[columns])
    return total


@dataclass(frozen=True)
class FittedCritic:
    """A critic that was fitted to pairs; it takes the columns as they were given to the fit.

    Attributes:
        objective: What it maximised.
        link: The score of the objective as a function of u.
        scores_x: Normal scores of x's columns.
        scores_y: Normal scores of y's columns.
        start: The log ratio that the network is added to; None without.
        network: Adds to it; None where the start stands alone.
        steps: Updates made.
        best_step: After how many the validation value was highest; the network is that one.
        notes: What a person should know, in plain words.
    """

    objective: Objective
    link: Link
    scores_x: NormalScores
    scores_y: NormalScores
    start: Start | None
    network: nn.Module | None
    steps: int
    best_step: int
    notes: tuple[str, ...]

    def log_ratio(self, x: Side, y: Side) -> Float64[np.ndarray, " n"]:
        """Log r̂(x_i, y_i) of each row, in nats."""
        return self._pairs(self.prepared(x, y), np.arange(len(x))[:, None])[:, 0]

    def shifted(
        self, x: Side, y: Side, shifts: Int64[np.ndarray, " k"]
    ) -> Float64[np.ndarray, "n k"]:
        """Log r̂(x_i, y_(i + s) mod n) for each shift s, in nats."""
        rows = np.arange(len(x))
        return self._pairs(self.prepared(x, y), (rows[:, None] + shifts) % len(x))

    def gaussian_log_ratio(self, x: Side, y: Side) -> Float64[np.ndarray, " n"]:
        """The Gaussian part of the start, alone; 0 where it has no share."""
        if self.start is None or self.start.shares[0] == 0:
            return np.zeros(len(x))
        return self.start.gaussian.log_ratio(self.scores_x(x), self.scores_y(y))

    def prepared(self, x: Side, y: Side) -> Prepared:
        """Both sides as the network sees them."""
        return Prepared.of(self.scores_x(x), self.scores_y(y))

    def _pairs(self, sides: Prepared, columns: np.ndarray) -> Float64[np.ndarray, "n k"]:
        n, k = columns.shape
        logs = np.empty((n, k))
        with torch.no_grad():
            for rows in np.array_split(np.arange(n), 1 + n * k // _PAIRS):
                logs[rows] = log_ratios(self.start, self.network, sides, rows, columns[rows])
        return logs

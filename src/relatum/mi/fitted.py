"""A fitted critic: the log density ratio of any pairs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Float64, Int64
from torch import Tensor, nn

from ..base import DensityRatioObjective, Objective
from .links import Link, raw_scores
from .margins import NormalScores
from .start import Side, Start

__all__ = ["Begun", "FittedCritic", "Prepared", "log_ratios"]

_HELD = 4096  # rows of which the start's word on all pairs is held
_NUMBERS = 1 << 26  # of inputs or hidden units held at a time


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
    begun: Float[Tensor, "b k"],
    network: nn.Module | None,
    sides: Prepared,
    rows: Int64[np.ndarray, " b"],
    columns: Int64[np.ndarray, "b k"],
) -> Float[Tensor, "b k"]:
    """u(x_i, y_j) for rows i and their columns j: what the start says, and the network on top."""
    if network is None:
        return begun
    added: Tensor = network(sides.tensor_x[rows][:, None], sides.tensor_y[columns])
    return begun + added


@dataclass(frozen=True)
class Begun:
    """What the start says of pairs of the same rows, looked up where all pairs fit in memory.

    Attributes:
        start: The start; None says 0.
        sides: The rows.
        matrix: All pairs, if there are few enough.
    """

    start: Start | None
    sides: Prepared
    matrix: Float[Tensor, "n n"] | None

    @classmethod
    def of(cls, start: Start | None, sides: Prepared) -> Begun:
        """With all pairs up to 4,096 rows."""
        if start is None or not any(start.shares) or len(sides.x) > _HELD:
            return cls(start, sides, None)
        return cls(start, sides, torch.from_numpy(start.matrix(sides.x, sides.y)).float())

    def __call__(
        self, rows: Int64[np.ndarray, " b"], columns: Int64[np.ndarray, "b k"]
    ) -> Float[Tensor, "b k"]:
        """u_0 for rows i and their columns j."""
        if self.matrix is not None:
            return self.matrix[rows[:, None], columns]
        if self.start is None or not any(self.start.shares):
            return torch.zeros(columns.shape)
        return torch.from_numpy(self.start.pairs(self.sides.x, self.sides.y, rows, columns)).float()


@dataclass(frozen=True)
class FittedCritic:
    """A critic that was fitted to pairs; it takes the columns as they were given to the fit.

    Attributes:
        objective: What it maximised.
        link: The score of the objective as a function of what the critic outputs.
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
        """Log r̂(x_i, y_i) of each row, in nats; NaN where a raw score has no ratio."""
        outputs = self._pairs(self.prepared(x, y), np.arange(len(x))[:, None])[:, 0]
        if self.link is not raw_scores or not isinstance(self.objective, DensityRatioObjective):
            return outputs
        return self.objective.log_density_ratio(torch.from_numpy(outputs)).numpy()

    def shifted(
        self, x: Side, y: Side, shifts: Int64[np.ndarray, " k"]
    ) -> Float64[np.ndarray, "n k"]:
        """What the critic outputs at (x_i, y_(i + s) mod n) for each shift s: log r̂, or scores."""
        rows = np.arange(len(x))
        return self._pairs(self.prepared(x, y), (rows[:, None] + shifts) % len(x))

    @property
    def gaussian_share(self) -> float:
        """How much of :meth:`gaussian_log_ratio` the log ratio contains."""
        return 0.0 if self.start is None else self.start.shares[0]

    def gaussian_log_ratio(self, x: Side, y: Side) -> Float64[np.ndarray, " n"]:
        """The Gaussian ratio of the start, alone and whole; 0 without a start."""
        if self.start is None:
            return np.zeros(len(x))
        return self.start.gaussian.log_ratio(self.scores_x(x), self.scores_y(y))

    def prepared(self, x: Side, y: Side) -> Prepared:
        """Both sides as the network sees them."""
        return Prepared.of(self.scores_x(x), self.scores_y(y))

    def _pairs(self, sides: Prepared, columns: np.ndarray) -> Float64[np.ndarray, "n k"]:
        n, k = columns.shape
        logs = np.empty((n, k))
        begun = Begun(self.start, sides, None)
        width = max(64, sides.tensor_x.shape[1], sides.tensor_y.shape[1])
        with torch.no_grad():
            for rows in np.array_split(np.arange(n), 1 + n * k * width // _NUMBERS):
                logs[rows] = log_ratios(
                    begun(rows, columns[rows]), self.network, sides, rows, columns[rows]
                )
        return logs

"""Where training starts: density ratios in closed form, mixed by what new rows say of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float64, Int64

from ..base import Objective
from ..objectives import RPC
from .gaussian_ratio import GaussianRatio
from .kernel import KernelRatio

__all__ = ["Start"]

Side = Float64[np.ndarray, "n d"]

_WASTE = 8  # times as many pairs in a matrix as are asked for: then pair by pair is cheaper
_PAIRS = 1 << 22  # whose log ratios are held at a time

# Shares of the Gaussian and of the kernel log ratio; (0, 0) is a ratio of 1 everywhere.
_MIXTURES = (
    (0.0, 0.0), (1.0, 0.0), (0.0, 1.0), (0.5, 0.5), (1.0, 0.5), (0.5, 1.0), (1.0, 0.25),
    (0.25, 1.0), (0.25, 0.75), (0.75, 0.25),
)  # fmt: skip


@dataclass(frozen=True)
class Start:
    r"""A log ratio to begin from, :math:`u_0 = w_G \log r_G + w_K \log r_K`.

    :math:`r_G` is the Gaussian ratio, best where dependence is linear in normal scores, and
    :math:`r_K` the exact solution of RPC in product kernels, good in few dimensions. The shares are
    those with the highest objective on the validation rows; both may be 0.

    Attributes:
        gaussian: :math:`r_G`.
        kernel: :math:`r_K`; None where the objective is not RPC.
        shares: :math:`(w_G, w_K)`.
    """

    gaussian: GaussianRatio
    kernel: KernelRatio | None
    shares: tuple[float, float]

    @classmethod
    def fit(
        cls,
        x: Side,
        y: Side,
        valid: tuple[Side, Side],
        *,
        value: Callable[[Float64[np.ndarray, "m m"]], float],
        objective: Objective,
        seed: int,
    ) -> Start:
        """Fits both ratios and chooses their shares.

        Args:
            x: Prepared rows of x.
            y: Prepared rows of y.
            valid: Rows outside the fit.
            value: The objective at the log ratios of all pairs of the validation rows; a value that
                is not finite is never chosen.
            objective: What is maximised; other than RPC leaves the kernel ratio out.
            seed: Of the kernel's centres.
        """
        gaussian = GaussianRatio.fit(x, y)
        kernel = None
        if isinstance(objective, RPC):
            kernel = KernelRatio.fit(x, y, valid, objective=objective, seed=seed)
        mixtures = _MIXTURES if kernel else _MIXTURES[:2]
        alone = [
            cls(gaussian, kernel, shares).matrix(*valid) for shares in ((1.0, 0.0), (0.0, 1.0))
        ]
        values = [value(g * alone[0] + k * alone[1]) for g, k in mixtures]
        best = int(np.argmax(np.where(np.isfinite(values), values, -np.inf)))
        return cls(gaussian, kernel, mixtures[best])

    def refit(self, x: Side, y: Side) -> Start:
        """What has a share, from other rows; the shares, and what was chosen inside, stay."""
        of_gaussian, of_kernel = self.shares
        gaussian = GaussianRatio.fit(x, y) if of_gaussian else self.gaussian
        kernel = self.kernel.refit(x, y) if self.kernel and of_kernel else self.kernel
        return Start(gaussian, kernel, self.shares)

    def pairs(
        self, x: Side, y: Side, rows: Int64[np.ndarray, " b"], columns: Int64[np.ndarray, "b k"]
    ) -> Float64[np.ndarray, "b k"]:
        """:math:`u_0(x_i, y_j)` for rows i and their columns j."""
        if columns.shape[1] == 1:
            return self.log_ratio(x[rows], y[columns[:, 0]])[:, None]
        candidates, place = np.unique(columns, return_inverse=True)
        place, among = place.reshape(columns.shape), y[candidates]
        logs = np.empty(columns.shape)
        if len(rows) * len(among) > max(_PAIRS, _WASTE * columns.size):
            for index, column in enumerate(columns.T):
                logs[:, index] = self.log_ratio(x[rows], y[column])
            return logs
        for part in np.array_split(np.arange(len(rows)), 1 + len(rows) * len(among) // _PAIRS):
            every = self.matrix(x[rows[part]], among)
            logs[part] = np.take_along_axis(every, place[part], 1)
        return logs

    def log_ratio(self, x: Side, y: Side) -> Float64[np.ndarray, " n"]:
        """:math:`u_0(x_i, y_i)` of each row."""
        logs = np.zeros(len(x))
        for share, part in zip(self.shares, (self.gaussian, self.kernel), strict=True):
            if part is not None and share:
                logs += share * part.log_ratio(x, y)
        return logs

    def matrix(self, x: Side, y: Side) -> Float64[np.ndarray, "n m"]:
        """:math:`u_0(x_i, y_j)` of all pairs."""
        logs = np.zeros((len(x), len(y)))
        for share, part in zip(self.shares, (self.gaussian, self.kernel), strict=True):
            if part is not None and share:
                logs += share * part.matrix(x, y)
        return logs

"""The exact solution of RPC for scores that are linear in product kernels."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float64
from scipy.linalg import cho_factor, cho_solve

from ..objectives import RPC
from ..relative import rpc_bounds
from ..scores import from_matrix

__all__ = ["KernelRatio"]

_WIDEST, _HALVINGS = 1.2, 3  # widths of the kernel for one column of normal scores
_RIDGES = (1e-4, 1e-3, 1e-2, 1e-1)  # of the mean eigenvalue
_MARGIN = 0.01  # of the range of scores, that a log ratio stays away from its ends


class _Sums(NamedTuple):
    """J(θ) = θ·linear − ½ θᵀ quadratic θ on some rows."""

    linear: Float64[np.ndarray, " k"]
    quadratic: Float64[np.ndarray, "k k"]
    rounding: float  # of the quadratic form, which is a difference


@dataclass(frozen=True)
class KernelRatio:
    r"""RPC maximised in closed form over :math:`f(x,y) = \sum_l \theta_l K(x,x_l) K(y,y_l)`.

    J is a concave quadratic in θ. With :math:`A_{il} = K(x_i, x_l)` and :math:`B_{jl}` alike,

    .. math:: J(\theta) = \theta^\top (h_P - \alpha h_Q)
        - \tfrac12 \theta^\top (\beta H_P + \gamma H_Q) \theta, \qquad
        H_Q = \frac{A^\top A \odot B^\top B - H}{n (n - 1)}

    (H that of the positives), so all n(n − 1) negatives cost O(n k²). K is Gaussian, its centres
    are rows of the fit; width and ridge are those with the highest J on the validation rows. Linear
    scores know no range, so :meth:`log_ratio` holds f inside that of the optimal critic, a
    hundredth of its width away from the ends (of the lower alone where β = 0).

    Attributes:
        centres_x: Centres of x, (k, dx).
        centres_y: Centres of y, (k, dy).
        weights: θ, (k,).
        width_x: Standard deviation of the kernel of x.
        width_y: Standard deviation of the kernel of y.
        ridge: λ, in units of the mean eigenvalue of the quadratic form.
        relative: (α, β, γ).
        value: J on the validation rows.

    References:
        A Least-squares Approach to Direct Importance Estimation (Kanamori et al., 2009), section 2,
        is (0, 0, 1); Relative Density-Ratio Estimation (Yamada et al., 2011) is (0, β, 1 − β).
    """

    centres_x: Float64[np.ndarray, "k dx"]
    centres_y: Float64[np.ndarray, "k dy"]
    weights: Float64[np.ndarray, " k"]
    width_x: float
    width_y: float
    ridge: float
    relative: tuple[float, float, float]
    value: float

    @classmethod
    def fit(
        cls,
        x: Float64[np.ndarray, "n dx"],
        y: Float64[np.ndarray, "n dy"],
        valid: tuple[Float64[np.ndarray, "m dx"], Float64[np.ndarray, "m dy"]],
        *,
        objective: RPC,
        centres: int = 200,
        seed: int = 0,
    ) -> KernelRatio:
        """Fits the rows; `valid` chooses width and ridge. Centres are drawn by `seed`."""
        chosen = np.random.default_rng(seed).permutation(len(x))[:centres]
        cx, cy = x[chosen], y[chosen]
        widest = _WIDEST * math.sqrt(x.shape[1]), _WIDEST * math.sqrt(y.shape[1])
        kernels = [
            _kernel(rows, centres, width)
            for rows, centres, width in zip(
                (x, y, *valid), (cx, cy, cx, cy), widest * 2, strict=True
            )
        ]
        relative, best = (objective.alpha, objective.beta, objective.gamma), None
        for halving in range(_HALVINGS + 1):
            if halving:  # K of half the width is K⁴
                kernels = [np.square(np.square(kernel)) for kernel in kernels]
            held = kernels[2], kernels[3]
            for ridge, theta in _solutions(_sums(kernels[0], kernels[1], relative), _RIDGES):
                # By the scores of all pairs: for few rows cheaper than sums over pairs of centres.
                scores = torch.from_numpy((held[0] * theta) @ held[1].T)
                value = float(objective(from_matrix(scores)))
                if best is None or value > best.value:
                    widths = widest[0] / 2**halving, widest[1] / 2**halving
                    best = cls(cx, cy, theta, *widths, ridge, relative, value)
        assert best is not None
        return best

    def refit(self, x: Float64[np.ndarray, "n dx"], y: Float64[np.ndarray, "n dy"]) -> KernelRatio:
        """θ from other rows, with centres, width and ridge as they are."""
        a = _kernel(x, self.centres_x, self.width_x)
        b = _kernel(y, self.centres_y, self.width_y)
        [(_, theta)] = _solutions(_sums(a, b, self.relative), (self.ridge,))
        return replace(self, weights=theta)

    def log_ratio(
        self, x: Float64[np.ndarray, "n dx"], y: Float64[np.ndarray, "n dy"]
    ) -> Float64[np.ndarray, " n"]:
        """Log r̂(x_i, y_i) of each row, in nats."""
        left, right = self._sides(x, y)
        return self._log(np.einsum("nk,nk->n", left, right))

    def matrix(
        self, x: Float64[np.ndarray, "n dx"], y: Float64[np.ndarray, "m dy"]
    ) -> Float64[np.ndarray, "n m"]:
        """Log r̂(x_i, y_j) of all pairs, in nats."""
        left, right = self._sides(x, y)
        return self._log(left @ right.T)

    def _sides(self, x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        left = _kernel(x, self.centres_x, self.width_x) * self.weights
        return left, _kernel(y, self.centres_y, self.width_y)

    def _log(self, scores: np.ndarray) -> np.ndarray:
        alpha, beta, gamma = self.relative
        low, high = rpc_bounds(*self.relative).score_range
        margin = _MARGIN * (high - low if beta > 0 else 1.0)
        kept = np.clip(scores, low + margin, high - margin)
        logs: np.ndarray = np.log(gamma * kept + alpha) - np.log1p(-beta * kept)
        return logs


def _kernel(x: np.ndarray, centres: np.ndarray, width: float) -> np.ndarray:
    squared = (x**2).sum(1)[:, None] + (centres**2).sum(1) - 2 * x @ centres.T
    kernel: np.ndarray = np.exp(-np.maximum(squared, 0) / (2 * width**2))
    return kernel


def _sums(
    a: Float64[np.ndarray, "n k"],
    b: Float64[np.ndarray, "n k"],
    relative: tuple[float, float, float],
) -> _Sums:
    n, (alpha, beta, gamma) = len(a), relative
    paired = a * b
    joint, pairs = paired.T @ paired, n * (n - 1)
    positive = paired.sum(0)
    negative = (a.sum(0) * b.sum(0) - positive) / pairs
    every = (a.T @ a) * (b.T @ b)
    squares = (every - joint) / pairs
    rounding = gamma * np.finfo(float).eps * len(every) * float(np.trace(every)) / pairs
    return _Sums(positive / n - alpha * negative, beta / n * joint + gamma * squares, rounding)


def _solutions(
    sums: _Sums, ridges: Sequence[float]
) -> Iterator[tuple[float, Float64[np.ndarray, " k"]]]:
    """The maximum of J − ½ λ |θ|² for each ridge λ, which keeps the form positive definite."""
    mean = np.trace(sums.quadratic) / len(sums.linear)
    for ridge in ridges:
        form = sums.quadratic.copy()
        form.flat[:: len(form) + 1] += ridge * mean + sums.rounding
        yield ridge, cho_solve(cho_factor(form, overwrite_a=True, check_finite=False), sums.linear)

r"""The theory of relative predictive coding: relative ratio, ranges, least squares, bounds.

The objective is :math:`J(f) = E_P f - \alpha E_Q f - \frac\beta2 E_P f^2 - \frac\gamma2 E_Q f^2`,
with :math:`P` the joint law, :math:`Q` the product of marginals and :math:`r = dP/dQ`. Everything
the paper proves about it is a function here, with the constants of the proofs; nats throughout.

References:
    Self-supervised Representation Learning with Relative Predictive Coding (Tsai et al., 2021),
    Lemma 1, Propositions 1 and 2. https://arxiv.org/abs/2103.11275
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor

__all__ = [
    "RPCBounds",
    "brier_score_form",
    "check_relative_parameters",
    "density_ratio",
    "least_squares_form",
    "log_density_ratio",
    "optimal_value",
    "relative_density_ratio",
    "relative_score",
    "rpc_bounds",
]

Array = Float[Tensor, "*any"]


def check_relative_parameters(alpha: float, beta: float, gamma: float) -> None:
    """Refuses weights outside their range: each a finite number, at least 0.

    Raises:
        ValueError: Naming the weight and its value.
    """
    for name, value in (("alpha", alpha), ("beta", beta), ("gamma", gamma)):
        try:
            right = math.isfinite(value) and value >= 0
        except TypeError:
            right = False
        if not right:
            raise ValueError(f"{name} must be a finite number >= 0, got {value!r}")


def _check_optimum(alpha: float, beta: float, gamma: float) -> None:
    check_relative_parameters(alpha, beta, gamma)
    if beta == 0 and gamma == 0:
        raise ValueError(
            "beta and gamma must not both be 0: the objective is then linear in the critic "
            "and has no optimum"
        )


def relative_density_ratio(ratio: Array, alpha: float, beta: float, gamma: float) -> Array:
    r"""The optimal critic :math:`f^* = (r - \alpha) / (\beta r + \gamma)` (Lemma 1).

    It increases in :math:`r` and lies in :math:`[-\alpha/\gamma, 1/\beta)`.

    Args:
        ratio: The density ratio r = p(x, y) / (p(x) p(y)), at least 0 and finite.
        alpha: Weight of the mean negative score.
        beta: Weight of the squared positive scores.
        gamma: Weight of the squared negative scores.

    Example:
        >>> import torch
        >>> relative_density_ratio(torch.tensor([0.0, 1.0, 3.0]), 1.0, 0.5, 1.0)
        tensor([-1.0000,  0.0000,  0.8000])
    """
    _check_optimum(alpha, beta, gamma)
    return (ratio - alpha) / (beta * ratio + gamma)


def relative_score(log_ratio: Array, alpha: float, beta: float, gamma: float) -> Array:
    r"""The optimal critic at :math:`r = e^u`, written so that it cannot overflow.

    .. math:: f = -\frac\alpha\gamma + \Big(\frac1\beta + \frac\alpha\gamma\Big)
        \,\sigma\Big(u + \log\frac\beta\gamma\Big)

    A network that outputs u can leave the range of the optimal critic nowhere, and u is its log
    density ratio. With β = 0 this is :math:`(e^u - \alpha) / \gamma`, which can overflow.

    Args:
        log_ratio: u, any shape, in nats.
        alpha: Weight of the mean negative score.
        beta: Weight of the squared positive scores.
        gamma: Weight of the squared negative scores, above 0.

    Raises:
        ValueError: If a weight is outside its range, or gamma is 0, where scores have no lower end.

    Example:
        >>> import torch
        >>> relative_score(torch.tensor([0.0, 1000.0]), 1.0, 0.5, 1.0)
        tensor([0., 2.])
    """
    check_relative_parameters(alpha, beta, gamma)
    if gamma == 0:
        raise ValueError("gamma must be > 0: with gamma = 0 the optimal critic has no lower end")
    if beta == 0:
        return (log_ratio.exp() - alpha) / gamma
    low, high = -alpha / gamma, 1 / beta
    return low + (high - low) * (log_ratio + math.log(beta / gamma)).sigmoid()


def density_ratio(score: Array, alpha: float, beta: float, gamma: float) -> Array:
    r"""The inverse of the optimal critic, :math:`r = (\gamma f + \alpha) / (1 - \beta f)`.

    A score outside :math:`[-\alpha/\gamma, 1/\beta)` has no density ratio: the result is then
    negative or infinite, and is returned as it is; nothing is clamped. With β = γ = 0 the score
    says nothing of r, and the result is NaN.
    """
    check_relative_parameters(alpha, beta, gamma)
    if beta == 0 and gamma == 0:
        return score * math.nan
    return (gamma * score + alpha) / (1 - beta * score)


def log_density_ratio(score: Array, alpha: float, beta: float, gamma: float) -> Array:
    r""":math:`\log r = \log(\gamma f + \alpha) - \log(1 - \beta f)`, in nats.

    Scores outside the range of the optimal critic have no density ratio and give NaN (or an
    infinity at its ends), and so do all with β = γ = 0; nothing is clamped.
    """
    check_relative_parameters(alpha, beta, gamma)
    if beta == 0 and gamma == 0:
        return score * math.nan
    return (gamma * score + alpha).log() - (-beta * score).log1p()


def optimal_value(ratio: Array, alpha: float, beta: float, gamma: float) -> Array:
    r"""One point's share of :math:`J(f^*) = \frac12 E_Q[(r-\alpha)^2 / (\beta r+\gamma)]`.

    Average it under Q for the value at the optimum. Special cases: (0, 0, 1) gives
    (χ² + 1)/2, (1, 0, 1) gives χ²/2, (1, 1, 1) the Le Cam distance ½ ∫ (p − q)² / (p + q).
    """
    _check_optimum(alpha, beta, gamma)
    return (ratio - alpha).square() / (beta * ratio + gamma) / 2


def least_squares_form(
    positives: Float[Tensor, "*p"],
    negatives: Float[Tensor, "*q"],
    alpha: float,
    beta: float,
    gamma: float,
) -> Float[Tensor, ""]:
    r"""RPC as weighted least squares, equal to J(f) for every critic.

    .. math:: J(f) = \frac1{2\beta} + \frac{\alpha^2}{2\gamma}
        - \frac\beta2 E_P (f - 1/\beta)^2 - \frac\gamma2 E_Q (f + \alpha/\gamma)^2

    So RPC regresses positives to :math:`1/\beta` and negatives to :math:`-\alpha/\gamma`; its
    boundedness is immediate from this form.

    Raises:
        ValueError: If beta or gamma is 0, where the form does not exist.
    """
    bounds = _finite_bounds(alpha, beta, gamma)
    low, high = bounds.score_range
    positive = (positives - high).square().mean()
    negative = (negatives - low).square().mean()
    return bounds.value_range[1] - beta / 2 * positive - gamma / 2 * negative


def brier_score_form(score: Array, alpha: float, beta: float, gamma: float) -> Array:
    r"""The score as a probability, :math:`s = (f + \alpha/\gamma) / (1/\beta + \alpha/\gamma)`.

    Its optimum is :math:`s^* = \beta r / (\beta r + \gamma)`, and RPC is a weighted Brier score
    in it: :math:`J = c - \frac12 w^2 [\beta E_P (1-s)^2 + \gamma E_Q s^2]` with
    :math:`w = 1/\beta + \alpha/\gamma` and :math:`c` the maximum of J.

    Raises:
        ValueError: If beta or gamma is 0.
    """
    low, high = _finite_bounds(alpha, beta, gamma).score_range
    return (score - low) / (high - low)


@dataclass(frozen=True)
class RPCBounds:
    r"""Ranges and variance bounds of RPC (Propositions 1 and 2), from :func:`rpc_bounds`.

    Attributes:
        alpha: Weight of the mean negative score.
        beta: Weight of the squared positive scores.
        gamma: Weight of the squared negative scores.
        score_range: Range of the optimal critic, :math:`[-\alpha/\gamma, 1/\beta]`.
        value_range: Range of J(f*), :math:`[(1-\alpha)^2 / 2(\beta+\gamma), 1/2\beta +
            \alpha^2/2\gamma]`. The upper end bounds the empirical value of *every* critic.
        positive_term_length: :math:`R_A = (\gamma+\alpha\beta)^2 / 2\beta\gamma^2`, length of the
            interval that holds one positive term when scores stay in ``score_range``.
        negative_term_length: :math:`R_B = (\gamma+\alpha\beta)^2 / 2\beta^2\gamma`, the same for
            one negative term.

    The bounds are loose: for (1, 0.005, 1), R_B is 20,200. Report observed variances beside them.
    """

    alpha: float
    beta: float
    gamma: float
    score_range: tuple[float, float]
    value_range: tuple[float, float]
    positive_term_length: float
    negative_term_length: float

    def deviation_probability(self, t: float, positives: int, negatives: int) -> float:
        r"""Bounds Pr(|Ĵ − J| >= t) for a fixed critic and independent samples (Hoeffding).

        :math:`2 \exp(-2 t^2 / (R_A^2/n + R_B^2/m))`, at most 1.
        """
        spread = self.positive_term_length**2 / positives + self.negative_term_length**2 / negatives
        return min(1.0, 2 * math.exp(-2 * t**2 / spread)) if math.isfinite(spread) else 1.0

    def variance_as_published(self, positives: int, negatives: int) -> float:
        """The second-moment bound on Var Ĵ of Proposition 2, independent samples."""
        a, b, g = self.alpha, self.beta, self.gamma
        if b == 0 or g == 0:
            return math.inf
        positive = max(((2 * a * g + b * a**2) / (2 * g**2)) ** 2, (1 / (2 * b)) ** 2)
        negative = max((a**2 / (2 * g)) ** 2, ((2 * a * b + g) / (2 * b**2)) ** 2)
        return positive / positives + negative / negatives

    def variance(self, positives: int, negatives: int) -> float:
        """The sharper bound R_A²/4n + R_B²/4m (Popoviciu), never above the published one."""
        return self.positive_term_length**2 / (4 * positives) + self.negative_term_length**2 / (
            4 * negatives
        )

    def variance_score_matrix(self, pairs: int) -> float:
        """Bound on Var Ĵ when the negatives are the off-diagonal pairs of one batch of N pairs.

        These negatives depend on each other; changing one pair moves Ĵ by at most
        (R_A + 2 R_B)/N, hence (R_A + 2 R_B)²/4N by bounded differences.
        """
        return (self.positive_term_length + 2 * self.negative_term_length) ** 2 / (4 * pairs)

    def large_negatives_at_optimum(self) -> float:
        r"""Bound on :math:`E_Q[B(f^*)^2 1\{f^* > 0\}]`, :math:`B = \alpha f + \gamma f^2/2`.

        :math:`(2\alpha\beta + \gamma)^2 / 4\beta^3\gamma`: at the optimal critic large scores are
        rare among negatives, and this is below the worst case by a factor β/γ.
        """
        a, b, g = self.alpha, self.beta, self.gamma
        return (2 * a * b + g) ** 2 / (4 * b**3 * g) if b > 0 and g > 0 else math.inf


def rpc_bounds(alpha: float, beta: float, gamma: float) -> RPCBounds:
    """All ranges and bound constants for one setting of the relative parameters.

    Where beta or gamma is 0 some ends do not exist: the affected entries are infinite.

    Raises:
        ValueError: If a weight is outside its range.

    Example:
        >>> bounds = rpc_bounds(1.0, 0.005, 1.0)
        >>> bounds.score_range, round(bounds.value_range[1], 6)
        ((-1.0, 200.0), 100.5)
    """
    _check_optimum(alpha, beta, gamma)
    low = -alpha / gamma if gamma > 0 else (-math.inf if alpha > 0 else 0.0)
    high = 1 / beta if beta > 0 else math.inf
    top = 1 / (2 * beta) if beta > 0 else math.inf
    top += alpha**2 / (2 * gamma) if gamma > 0 else (math.inf if alpha > 0 else 0.0)
    bounded = beta > 0 and gamma > 0
    square = (gamma + alpha * beta) ** 2
    return RPCBounds(
        alpha=alpha,
        beta=beta,
        gamma=gamma,
        score_range=(low, high),
        value_range=((1 - alpha) ** 2 / (2 * (beta + gamma)), top),
        positive_term_length=square / (2 * beta * gamma**2) if bounded else math.inf,
        negative_term_length=square / (2 * beta**2 * gamma) if bounded else math.inf,
    )


def _finite_bounds(alpha: float, beta: float, gamma: float) -> RPCBounds:
    if beta == 0 or gamma == 0:
        raise ValueError(f"beta and gamma must be > 0, got beta={beta}, gamma={gamma}")
    return rpc_bounds(alpha, beta, gamma)

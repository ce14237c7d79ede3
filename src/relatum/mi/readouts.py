r"""From a relative critic's scores to mutual information, with what lies outside its range counted.

The optimal critic :math:`f^* = (r - \alpha) / (\beta r + \gamma)` lies in
:math:`(-\alpha/\gamma, 1/\beta)`. A trained one may leave that range, and such a score belongs to
no density ratio. What becomes of it is a choice (``outside``), never a silent repair:

========== =====================================================================================
"nan"      the reading is NaN
"drop"     the mean is over the other scores
"end"      both factors of the ratio, γ f + α and 1 − β f, are at least ``epsilon``
"published floor"  the ratio is at least 1e-4, as in the published code: a score *above* 1/β, the
           most confident of all, then reads log 1e-4 = −9.21. Only for comparison.
========== =====================================================================================
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
import torch
from jaxtyping import Float, Float64
from numpy.typing import NDArray
from torch import Tensor

from ..relative import density_ratio, log_density_ratio, rpc_bounds

__all__ = ["Outside", "ReadOut", "log_ratio_of_mean_score", "mean_log_ratio"]

Outside = Literal["nan", "drop", "end", "published floor"]
PUBLISHED_FLOOR = 1e-4

Array = Float[Tensor, "*any"] | NDArray[np.floating]


@dataclass(frozen=True)
class ReadOut:
    r"""A reading of mutual information, and the scores that had no density ratio.

    Attributes:
        value: In nats; no bound.
        below: Number of scores at most −α/γ.
        above: Number of scores at least 1/β.
        adjusted: Number of ratios that the policy replaced (those near an end are with "end").
        used: Number of scores in the mean.
        outside: The policy.
        pointwise: :math:`\log \hat r` of each score, (n,); NaN where it has none. None for
            :func:`log_ratio_of_mean_score`, which takes one logarithm.
    """

    value: float
    below: int
    above: int
    adjusted: int
    used: int
    outside: Outside
    pointwise: Float64[np.ndarray, " n"] | None = None


def mean_log_ratio(
    positives: Array,
    alpha: float,
    beta: float,
    gamma: float,
    *,
    outside: Outside = "nan",
    epsilon: float = 1e-4,
) -> ReadOut:
    r"""The plug-in :math:`\hat I = E_P\big[\log \frac{\gamma f + \alpha}{1 - \beta f}\big]`, nats.

    The logarithm stands inside the mean, so the perfect critic reads the mutual information.

    Args:
        positives: Scores of pairs of the joint law, (n,).
        alpha: Weight α of the objective the critic was trained by.
        beta: Weight β.
        gamma: Weight γ.
        outside: What to do with scores outside the range of the optimal critic.
        epsilon: Least value of both factors with ``outside="end"``.

    Raises:
        ValueError: If there are no scores, the policy is unknown, or a weight is out of range.

    References:
        Self-supervised Representation Learning with Relative Predictive Coding (Tsai et al.,
        2021), section 3.2. https://arxiv.org/abs/2103.11275

    Example:
        >>> scores = np.array([0.0, 0.8, 3.0])  # the ratios 1 and 3, and none: 3 is above 1/β = 2
        >>> reading = mean_log_ratio(scores, 1.0, 0.5, 1.0, outside="drop")
        >>> round(reading.value, 4), reading.above, reading.used
        (0.5493, 1, 2)
    """
    scores = _scores(positives)
    logs, adjusted = _log_ratios(scores, (alpha, beta, gamma), outside, epsilon)
    used = logs[~logs.isnan()] if outside == "drop" else logs
    below, above = _outside(scores, (alpha, beta, gamma))
    value = float(used.mean()) if len(used) else math.nan
    return ReadOut(value, below, above, adjusted, len(used), outside, logs.numpy())


def log_ratio_of_mean_score(
    positives: Array,
    alpha: float,
    beta: float,
    gamma: float,
    *,
    outside: Outside = "nan",
    epsilon: float = 1e-4,
) -> ReadOut:
    r"""As published: :math:`\log\frac{\gamma m + \alpha}{1 - \beta m}` of the mean score m, nats.

    This is not mutual information: at the perfect critic it is
    :math:`\log(\gamma/\beta) + \mathrm{logit}\, E_P[\beta r / (\beta r + \gamma)]`, too high where
    there is little information and too low where there is much. It stands here to repeat published
    curves; read :func:`mean_log_ratio`.

    Args and errors are those of :func:`mean_log_ratio`; the policy is applied to the mean, while
    ``below`` and ``above`` count the scores that went into it.

    Example:
        >>> log_ratio_of_mean_score(np.array([0.0, 1.6]), 1.0, 0.5, 1.0).value  # log 1.8 / 0.6
        1.0986...
    """
    scores = _scores(positives)
    below, above = _outside(scores, (alpha, beta, gamma))
    mean = scores.mean(0, keepdim=True)
    logs, adjusted = _log_ratios(mean, (alpha, beta, gamma), outside, epsilon)
    return ReadOut(float(logs), below, above, adjusted, len(scores), outside)


def _log_ratios(
    scores: Float64[Tensor, " n"],
    weights: tuple[float, float, float],
    outside: Outside,
    epsilon: float,
) -> tuple[Float64[Tensor, " n"], int]:
    """Log r̂ of each score under the policy, NaN where there is none; and how many it replaced."""
    if outside not in get_args(Outside):
        known = ", ".join(repr(name) for name in get_args(Outside))
        raise ValueError(f"outside must be one of {known}, got {outside!r}")
    low, high = rpc_bounds(*weights).score_range
    if outside == "published floor":
        ratio = density_ratio(scores, *weights)
        return ratio.clamp(min=PUBLISHED_FLOOR).log(), int((ratio < PUBLISHED_FLOOR).sum())
    if outside == "end":
        if not 0 < epsilon < 1:
            raise ValueError(f"epsilon must be in (0, 1), got {epsilon}")
        alpha, beta, gamma = weights
        low = (epsilon - alpha) / gamma if gamma > 0 else low
        high = (1 - epsilon) / beta if beta > 0 else high
        kept = scores.clamp(low, high)
        return log_density_ratio(kept, *weights), int((kept != scores).sum())
    inside = (scores > low) & (scores < high)
    return log_density_ratio(scores, *weights).where(inside, math.nan), 0


def _outside(scores: Float64[Tensor, " n"], weights: tuple[float, float, float]) -> tuple[int, int]:
    """How many scores lie at or below the lower end, and at or above the upper one."""
    low, high = rpc_bounds(*weights).score_range
    return int((scores <= low).sum()), int((scores >= high).sum())


def _scores(positives: Array) -> Float64[Tensor, " n"]:
    """The scores in float64, one axis."""
    scores = torch.as_tensor(positives).detach().to("cpu", torch.float64)
    if scores.ndim != 1 or len(scores) == 0:
        raise ValueError(f"positives must have shape (n,), n >= 1, got {tuple(scores.shape)}")
    return scores

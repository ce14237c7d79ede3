r"""The perfect critic: what read-outs and sampling alone do, without any training.

Under P the log ratio of the Gaussian task is :math:`I + \rho (G_1 - G_2)` with independent
:math:`G \sim \mathrm{Gamma}(10)`: ρ/2 and −ρ/2 are the eigenvalues of each coordinate's quadratic
form. Its variance is 20 ρ², so the mean of n log ratios has standard deviation
:math:`\sqrt{20 \rho^2 / n}`, the floor of every plug-in. Under Q, :math:`E_Q r^2 = e^{2I}`, so the
mean of r over m independent negatives has variance :math:`(e^{2I} - 1)/m`.
"""

from __future__ import annotations

import math
from typing import Any, TypedDict

import numpy as np
import torch
from jaxtyping import Float
from scipy import integrate, special
from torch import Tensor

from ...mi.objectives import SMILE
from ...mi.readouts import log_ratio_of_mean_score, mean_log_ratio
from ...objectives import DV, JS, RPC
from ...relative import relative_score, rpc_bounds
from ...scores import from_matrix
from .estimators import PAPER
from .task import DIM, correlation, log_ratio_matrix, sample_pairs

__all__ = ["ORACLE_LEVELS", "Oracle", "oracle", "published_reading"]

ORACLE_LEVELS = (1.0, 2.0, 4.0, 6.0, 8.0, 10.0)


class Oracle(TypedDict):
    """Readings of the perfect critic: by level, (mean, sd) of each over the batches; and bounds."""

    batches: int
    batch_size: int
    levels: list[dict[str, Any]]
    bounds: dict[str, float]


def oracle(batches: int = 400, batch_size: int = 128, seed: int = 0) -> Oracle:
    """Every reading on fresh batches at the exact log ratio, in float64.

    Args:
        batches: Batches at each level.
        batch_size: Pairs in a batch; all other pairs are negatives.
        seed: Of the samples.
    """
    bounds = rpc_bounds(*PAPER)
    negatives = batch_size * (batch_size - 1)
    return Oracle(
        batches=batches,
        batch_size=batch_size,
        levels=[_level(truth, batches, batch_size, seed) for truth in ORACLE_LEVELS],
        bounds={
            "published": math.sqrt(bounds.variance_as_published(batch_size, negatives)),
            "sharper": math.sqrt(bounds.variance(batch_size, negatives)),
            "matrix": math.sqrt(bounds.variance_score_matrix(batch_size)),
        },
    )


def published_reading(information: float, alpha: float, beta: float, gamma: float) -> float:
    r"""The published read-out of the perfect critic in the population, by quadrature, in nats.

    .. math:: \log\frac\gamma\beta + \mathrm{logit}\, E_P[s], \qquad
        s = \frac{\beta r}{\beta r + \gamma}

    It depends on β/γ alone; α has gone.

    Example:
        >>> round(published_reading(10.0, 1.0, 1e-4, 1.0), 2)
        9.54
    """
    rho, shift = correlation(information), math.log(beta / gamma)

    def integrand(t: float) -> float:
        return float(special.expit(information + rho * t + shift)) * _difference_density(t)

    mean, _ = integrate.quad(integrand, -80, 80, points=[0.0], limit=400)
    return float(special.logit(mean)) - shift


def _difference_density(t: float) -> float:
    r"""Density of the difference of two independent Gamma(k) numbers, k = 10.

    .. math:: \frac{|t|^{k - 1/2} K_{k - 1/2}(|t|)}{\sqrt\pi\, \Gamma(k)\, 2^{k - 1/2}}
    """
    k = DIM / 2
    # Its limit at 0, where the product is 0 · ∞.
    size = max(abs(t), 1e-6)
    log_norm = math.log(math.pi) / 2 + special.gammaln(k) + (k - 0.5) * math.log(2)
    log_bessel = math.log(special.kve(k - 0.5, size)) - size
    return math.exp((k - 0.5) * math.log(size) + log_bessel - log_norm)


def _level(truth: float, batches: int, batch_size: int, seed: int) -> dict[str, Any]:
    generator = torch.Generator().manual_seed(seed)
    values: dict[str, list[float]] = {}
    for _ in range(batches):
        x, y = sample_pairs(truth, batch_size, generator=generator, dtype=torch.float64)
        for name, value in _readings(log_ratio_matrix(x, y, truth)).items():
            values.setdefault(name, []).append(value)
    negatives = batch_size * (batch_size - 1)
    return {
        "truth": truth,
        "floor": math.sqrt(DIM / batch_size) * correlation(truth),
        "published": published_reading(truth, *PAPER),
        "partition": math.sqrt(math.expm1(2 * truth) / negatives),
        "readings": {
            name: {"mean": float(np.mean(these)), "sd": float(np.std(these, ddof=1))}
            for name, these in values.items()
        },
    }


def _readings(log_ratio: Float[Tensor, "n n"]) -> dict[str, float]:
    scores = from_matrix(log_ratio)
    critic = relative_score(log_ratio, *PAPER)
    positives = critic.diagonal()
    return {
        "dv": float(DV()(scores)),
        "nwj": float(JS().mutual_information(scores)),  # NWJ at its optimum 1 + log r
        "partition": float(scores.negatives.log_mean_exp().exp()),
        "smile": float(SMILE(5.0).mutual_information(scores)),
        "rpc": mean_log_ratio(positives, *PAPER).value,
        "rpc-published": log_ratio_of_mean_score(positives, *PAPER).value,
        "rpc-value": float(RPC(*PAPER)(from_matrix(critic))),
    }

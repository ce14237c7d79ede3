r"""The contrastive risk of one encoder, or of a posterior over encoders, from a sample.

For an encoder that was fixed before the data, a mean loss and the width of a confidence interval
are the certificate: no complexity is needed. Independent triplets of the law of the theory are
assumed throughout; :math:`B_R` is the oscillation of the loss on scores within ±2R². Vacuous from 1
on: the zero encoder has the risk 1.
"""

from __future__ import annotations

import math
from typing import Literal

from numpy.typing import ArrayLike
from scipy.optimize import brentq
from scipy.special import rel_entr

from ..checks import check_count, check_delta, check_non_negative, checked_array, loss_range
from .chain import Bound
from .training import IID, hold_out_width

__all__ = ["hold_out_bound", "pac_bayes_bound"]


def hold_out_bound(
    losses: ArrayLike,
    radius: float,
    loss: str = "hinge",
    *,
    delta: float = 0.05,
    method: Literal["hoeffding", "bernstein"] = "hoeffding",
    k: int = 1,
) -> Bound:
    r"""The risk of one encoder from fresh data: no complexity is needed.

    With probability 1 − δ, by Hoeffding's inequality, or the empirical Bernstein inequality with
    the sample variance V,

    .. math:: L_{un} \le \bar\ell + B_R \sqrt{\frac{\ln(1/\delta)}{2M}}, \qquad
              L_{un} \le \bar\ell + \sqrt{\frac{2 V \ln(2/\delta)}{M}} +
              \frac{7 B_R \ln(2/\delta)}{3 (M - 1)}

    The method is to be chosen before the data are seen. Put the value in
    :func:`relatum.latent_class.bounds.mean_classifier_bound` for a certificate.

    Args:
        losses: ℓ(q_f(z_j)) of M triplets that share no data, with each other or with training.
        radius: A bound R on |f(x)|, known before the data.
        loss: "hinge" or "logistic" (base 2).
        delta: δ.
        method: Which inequality. Bernstein's is the narrower one for many, rarely large losses.
        k: The number of negatives of each anchor.

    Raises:
        ValueError: If a number is out of range, or Bernstein's inequality has one loss only.

    References:
        Empirical Bernstein Bounds and Sample Variance Penalization (Maurer and Pontil, 2009),
        Theorem 4. https://arxiv.org/abs/0907.3740

    Example:
        >>> round(hold_out_bound([0.5] * 1000, 1.0).value, 3)
        0.616
    """
    values = checked_array("losses", losses)
    count = len(values)
    low, high = loss_range(loss, radius, k)
    if method == "hoeffding":
        width = hold_out_width(count, radius, loss, delta, k)
    elif method == "bernstein":
        check_delta(delta)
        if count < 2:
            raise ValueError("losses must be two at least for the empirical Bernstein inequality")
        log = math.log(2 / delta)
        width = math.sqrt(2 * float(values.var(ddof=1)) * log / count)
        width += 7 * (high - low) * log / (3 * (count - 1))
    else:
        raise ValueError(f"method must be 'hoeffding' or 'bernstein', got {method!r}")
    mean = float(values.mean())
    slack = 1e-9 * (1 + high)
    inside = bool(values.min() >= low - slack and values.max() <= high + slack)
    assumptions = {IID: None, "losses within the range that the radius allows": inside}
    return Bound(mean + width, {"sample": mean, "width": width}, assumptions, mean + width >= 1)


def pac_bayes_bound(
    empirical_risk: float,
    divergence: float,
    samples: int,
    radius: float,
    loss: str = "hinge",
    *,
    delta: float = 0.05,
    k: int = 1,
) -> Bound:
    r"""The mean risk of encoders drawn from a posterior Q, chosen on the sample.

    With losses rescaled to [0, 1] by their range, with probability 1 − δ for all Q at once,

    .. math:: \mathrm{kl}\big(\hat L(Q) \,\|\, L(Q)\big) \le
              \frac{\mathrm{KL}(Q \| P) + \ln (2 \sqrt M / \delta)}{M}

    where P is a prior over encoders fixed before the data and kl that of two Bernoulli laws; the
    value is the largest L(Q) that satisfies it. The bound on the mean classifier's risk then holds
    of the Q-averages. The route least likely to be vacuous for networks.

    Args:
        empirical_risk: :math:`\hat L(Q)`, the mean over Q and the sample.
        divergence: KL(Q‖P), in nats.
        samples: M.
        radius: A bound R on |f(x)| for all encoders, known before the data.
        loss: "hinge" or "logistic" (base 2).
        delta: δ.
        k: The number of negatives of each anchor.

    Raises:
        ValueError: If a number is out of range, or the risk outside the range of the loss.

    References:
        A Note on the PAC Bayesian Theorem (Maurer, 2004). https://arxiv.org/abs/cs/0411099
        PAC-Bayesian Contrastive Unsupervised Representation Learning (Nozawa et al., 2020).
        https://arxiv.org/abs/1910.04464

    Example:
        >>> round(pac_bayes_bound(0.5, 10.0, 10**4, 1.0).value, 3)
        0.57
    """
    check_non_negative(divergence=divergence)
    check_count("samples", samples)
    check_delta(delta)
    low, high = loss_range(loss, radius, k)
    if not low <= empirical_risk <= high:
        raise ValueError(
            f"empirical_risk must lie in the range [{low}, {high}] of the loss at radius {radius}, "
            f"got {empirical_risk}"
        )
    budget = (divergence + math.log(2 * math.sqrt(samples) / delta)) / samples
    share = _largest_mean((empirical_risk - low) / (high - low), budget)
    value = low + (high - low) * share
    terms = {"sample": float(empirical_risk), "kl": budget, "width": value - empirical_risk}
    prior = "prior over encoders fixed before the data"
    return Bound(value, terms, {IID: None, prior: None}, value >= 1)


def _largest_mean(observed: float, budget: float) -> float:
    """The largest p with kl(observed ‖ p) <= budget, from above."""

    def over(p: float) -> float:
        return float(rel_entr(observed, p) + rel_entr(1 - observed, 1 - p)) - budget

    end = 1 - 2.0**-52
    if observed >= end or over(end) <= 0:
        return 1.0
    return min(1.0, float(brentq(over, observed, end, xtol=1e-15)) + 1e-14)

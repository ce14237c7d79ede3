r"""InfoNCE and the cross-entropy of the mean classifier, in nats.

.. math:: \mathrm{InfoNCE}_k = E \ln\Big( 1 + \sum_{i=1}^k e^{z \cdot (z_i^- - z^+)} \Big), \qquad
          \mathrm{CE} = E_{c, x} \Big[ {-z \cdot \mu_c} + \ln \sum_e e^{z \cdot \mu_e} \Big]

with classes of prior ρ, means μ_c of z = f(x), |z| <= R, the mean of all
:math:`\bar\mu = \sum_c \rho_c \mu_c` and the spread between classes
:math:`V_B = \sum_c \rho_c |\mu_c|^2 - |\bar\mu|^2`. The difference CE − InfoNCE lies in an interval
that shrinks like ln(K/k): no penalty for collisions or coverage. Upper bounds are vacuous from
ln K on (the zero encoder), lower ones up to 0.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from jaxtyping import Float64
from numpy.typing import ArrayLike
from scipy.optimize import minimize_scalar
from scipy.special import entr

from ..checks import (
    check_count,
    check_finite,
    check_non_negative,
    check_positive,
    checked_array,
    checked_prior,
    checked_weights,
    finite_array,
)
from .chain import Bound

__all__ = [
    "cross_entropy_lower",
    "cross_entropy_upper",
    "cross_entropy_upper_any_prior",
    "jensen_gap",
    "published_cross_entropy_lower",
    "published_cross_entropy_upper",
]


def jensen_gap(span: ArrayLike) -> Float64[np.ndarray, "*any"]:
    r"""The largest Jensen gap ln E e^a − E a for a in an interval of length D.

    .. math:: \operatorname{gap}(D) = \ln \frac{e^D - 1}{D} - 1 + \frac{D}{e^D - 1}
              \le \frac{D^2}{8}

    Args:
        span: D >= 0.

    Raises:
        ValueError: If a span is negative or not finite.

    Example:
        >>> jensen_gap([0.0, 2.0]).round(4)
        array([0.    , 0.4745])
    """
    d = np.asarray(span, np.float64)
    if not ((d >= 0) & np.isfinite(d)).all():
        raise ValueError(f"span must be finite and >= 0, got {span!r}")
    small = d < 1e-4  # where the formula loses digits; the next term is d⁴/576
    x = np.where(small, 1.0, d)
    decay = -np.expm1(-x)
    gap = x + np.log(decay / x) - 1 + x * np.exp(-x) / decay
    return np.asarray(np.where(small, d**2 / 8, gap))


def cross_entropy_upper(
    infonce: float,
    prior: ArrayLike,
    means: ArrayLike,
    *,
    k: int,
    radius: float | None = None,
    spans: ArrayLike | None = None,
    weights: ArrayLike | None = None,
) -> Bound:
    r"""The cross-entropy of the mean classifier from above.

    .. math:: \mathrm{CE} \le \mathrm{InfoNCE}_k - \ln \rho_{min} + E \operatorname{gap}(D_x) -
              \ln\big( k + e^{V_B} \big)

    with the range D_x <= 2R² of z·μ_e over the classes. Equality at f = 0 with a uniform prior. The
    positive terms agree in mean; ln Σ e^a is bounded by its Jensen gap, and Jensen's inequality
    twice gives :math:`E \ln(e^{z z^+} + \sum_i e^{z z_i}) \ge |\bar\mu|^2 + \ln(k + e^{V_B})`.

    Args:
        infonce: InfoNCE_k, in nats.
        prior: ρ, of K classes.
        means: μ, (K, d).
        k: The number of negatives.
        radius: A bound R on |f(x)|; not needed with `spans`.
        spans: D_x of every x: sharper.
        weights: Their probabilities; equal where absent.

    Raises:
        ValueError: If neither or both of `radius` and `spans` are given, shapes do not fit, or a
            number is out of range.

    Example:
        >>> zero = np.zeros((2, 1))
        >>> bound = cross_entropy_upper(math.log(4), [0.5, 0.5], zero, k=3, spans=[0.0])
        >>> round(bound.value / math.log(2), 12)
        1.0
    """
    law = _between_classes(infonce, prior, means, k)
    rarest = -math.log(law.prior.min())
    terms = {"InfoNCE": float(infonce), "classes": rarest, **_gap(radius, spans, weights)}
    return _upper(terms, law, k)


def cross_entropy_upper_any_prior(
    infonce: float,
    prior: ArrayLike,
    means: ArrayLike,
    *,
    k: int,
    radius: float | None = None,
    spans: ArrayLike | None = None,
    weights: ArrayLike | None = None,
) -> Bound:
    r"""The same where some classes are rare: their mean takes the place of the rarest one.

    .. math:: \mathrm{CE} \le \mathrm{InfoNCE}_k + \ln K +
              \bar\mu \cdot \Big( \frac1K \sum_e \mu_e - \bar\mu \Big) +
              E \operatorname{gap}(D_x) - \ln\big( k + e^{V_B} \big)

    Arguments and errors are those of :func:`cross_entropy_upper`; with a uniform prior both agree.

    Example:
        >>> bound = cross_entropy_upper_any_prior(1.0, [0.9, 0.1], np.eye(2), k=1, radius=1.0)
        >>> bound.value < cross_entropy_upper(1.0, [0.9, 0.1], np.eye(2), k=1, radius=1.0).value
        True
    """
    law = _between_classes(infonce, prior, means, k)
    tilt = float(law.centre @ (law.means.mean(axis=0) - law.centre))
    terms = {"InfoNCE": float(infonce), "classes": math.log(len(law.prior)), "tilt": tilt}
    return _upper({**terms, **_gap(radius, spans, weights)}, law, k)


def cross_entropy_lower(
    infonce: float, prior: ArrayLike, means: ArrayLike, radius: float, *, k: int
) -> Bound:
    r"""The cross-entropy of the mean classifier from below.

    .. math:: \mathrm{CE} \ge \mathrm{InfoNCE}_k - \operatorname{gap}(2R^2) + \max\Big\{
              \max_{0 \le t \le 1} \Big[ E_c H(t \delta_c + (1-t) \rho) +
              \Big( t - \frac{1}{k+1} \Big) V_B \Big] - \ln(k+1),\; -\ln(1 + k \rho_{max}) \Big\}

    with Shannon's entropy H. Reverse Jensen with k + 1 equal weights, and Gibbs' variational bound
    ln Σ e^a >= H(w) + w·a.

    Args:
        infonce: InfoNCE_k, in nats.
        prior: ρ, of K classes.
        means: μ, (K, d).
        radius: A bound R on |f(x)|.
        k: The number of negatives.

    Raises:
        ValueError: If shapes do not fit or a number is out of range.

    Example:
        >>> zero = np.zeros((2, 1))
        >>> round(cross_entropy_lower(math.log(4), [0.5, 0.5], zero, 1e-6, k=3).value, 6)
        0.693147
    """
    law = _between_classes(infonce, prior, means, k)
    check_positive(radius=radius)
    rho = law.prior

    def gibbs(t: float) -> float:
        mixed = t * np.eye(len(rho)) + (1 - t) * rho
        return float(rho @ entr(mixed).sum(axis=1)) + (t - 1 / (k + 1)) * law.between

    inner = float(minimize_scalar(lambda t: -gibbs(t), bounds=(0, 1), method="bounded").x)
    tilt = max((0.0, inner, 1.0), key=gibbs)
    choice = max(gibbs(tilt) - math.log(k + 1), -math.log1p(k * float(rho.max())))
    gap = -float(jensen_gap(2 * radius**2))
    terms = {"InfoNCE": float(infonce), "gap": gap, "classes": choice, "t": tilt}
    value = infonce + gap + choice
    return Bound(value, terms, {}, value <= 0)


def published_cross_entropy_upper(
    infonce: float, prior: ArrayLike, radius: float, *, k: int
) -> Bound:
    r"""The published upper bound, which does not read the means; for comparison.

    .. math:: \mathrm{CE} \le \mathrm{InfoNCE}_k + \ln \frac{\rho_{max} K^2 \cosh^2(R^2)}{k}

    For a uniform prior :func:`cross_entropy_upper` is never above it.

    References:
        On the Surrogate Gap between Contrastive and Supervised Losses (Bao et al., 2022).
        https://arxiv.org/abs/2110.02501

    Example:
        >>> round(published_cross_entropy_upper(1.0, [0.5, 0.5], 1e-6, k=2).value, 6)
        1.0
    """
    rho = _checked(infonce, prior, radius, k)
    classes = math.log(float(rho.max())) + 2 * math.log(len(rho)) - math.log(k)
    gap = 2 * _log_cosh(radius**2)
    value = infonce + classes + gap
    terms = {"InfoNCE": float(infonce), "classes": classes, "gap": gap}
    return Bound(value, terms, {}, value >= math.log(len(rho)))


def published_cross_entropy_lower(
    infonce: float, prior: ArrayLike, radius: float, *, k: int
) -> Bound:
    r"""The published lower bound; for comparison.

    .. math:: \mathrm{CE} \ge \mathrm{InfoNCE}_k + H(\rho) + \ln k - 2 \ln(1 + k) - 2 \ln \cosh(R^2)

    References:
        Bao et al. (2022). https://arxiv.org/abs/2110.02501

    Example:
        >>> published_cross_entropy_lower(math.log(2), [0.5, 0.5], 1e-6, k=1).vacuous
        True
    """
    rho = _checked(infonce, prior, radius, k)
    classes = float(entr(rho).sum()) + math.log(k) - 2 * math.log(1 + k)
    gap = -2 * _log_cosh(radius**2)
    value = infonce + classes + gap
    return Bound(value, {"InfoNCE": float(infonce), "classes": classes, "gap": gap}, {}, value <= 0)


class _Between(NamedTuple):
    """The prior, the means, their centre and V_B."""

    prior: Float64[np.ndarray, " K"]
    means: Float64[np.ndarray, "K d"]
    centre: Float64[np.ndarray, " d"]
    between: float


def _between_classes(infonce: float, prior: ArrayLike, means: ArrayLike, k: int) -> _Between:
    check_finite(infonce=infonce)
    check_count("k", k)
    rho, mu = checked_prior(prior), finite_array("means", means, 2)
    if len(mu) != len(rho):
        raise ValueError(f"means must have a row for each of {len(rho)} classes, got {len(mu)}")
    centre = rho @ mu
    return _Between(rho, mu, centre, float(rho @ ((mu - centre) ** 2).sum(axis=1)))


def _checked(infonce: float, prior: ArrayLike, radius: float, k: int) -> Float64[np.ndarray, " K"]:
    check_non_negative(infonce=infonce)
    check_positive(radius=radius)
    check_count("k", k)
    rho: Float64[np.ndarray, " K"] = checked_prior(prior)
    return rho


def _gap(
    radius: float | None, spans: ArrayLike | None, weights: ArrayLike | None
) -> dict[str, float]:
    """E gap(D_x), or gap(2R²)."""
    if (radius is None) == (spans is None):
        raise ValueError(f"give either radius or spans, got radius={radius} and spans={spans!r}")
    if spans is None:
        assert radius is not None
        check_positive(radius=radius)
        return {"gap": float(jensen_gap(2 * radius**2))}
    gaps = jensen_gap(checked_array("spans", spans))
    return {"gap": float(checked_weights(weights, np.shape(spans)) @ gaps)}


def _upper(terms: dict[str, float], law: _Between, k: int) -> Bound:
    terms["candidates"] = -float(np.logaddexp(math.log(k), law.between))
    value = sum(terms.values())
    return Bound(value, terms, {}, value >= math.log(len(law.prior)))


def _log_cosh(u: float) -> float:
    return float(np.logaddexp(u, -u)) - math.log(2)

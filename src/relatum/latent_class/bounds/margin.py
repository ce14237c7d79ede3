r"""Margins: the one-shot risk by how far apart the class means are.

In the notation of :mod:`relatum.latent_class.bounds.one_shot`, the margin risk at γ > 0 is
:math:`L_\gamma^\mu = E (1 + m/\gamma)_+`, whichever the loss is. The bounds of :math:`L^{\ne}` are
vacuous from 1 on, the risk of the zero encoder. Put one of them in the place of :math:`L^{\ne}` in
:func:`relatum.latent_class.bounds.competitive_bound` for the whole chain,

.. math:: L_{sup}(\hat f) \le \gamma L_\gamma^\mu(f) + \epsilon + \beta\, s(f) + \eta\, E
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from jaxtyping import Float64
from numpy.typing import ArrayLike
from scipy.optimize import minimize_scalar

from ..checks import (
    check_non_negative,
    check_positive,
    checked_array,
    checked_variances,
    checked_weights,
    losses_of,
    surrogate,
)
from .chain import Bound

__all__ = [
    "margin_bound",
    "scarf",
    "sub_gaussian_bound",
    "sub_gaussian_margin",
]


def scarf(v: ArrayLike, u: ArrayLike) -> Float64[np.ndarray, "*any"]:
    r"""The largest mean excess that a variance allows.

    .. math:: \operatorname{scarf}(v, u) = \tfrac12 \big( \sqrt{v + u^2} - u \big)
              = \sup \{ E (Z - u)_+ : E Z = 0, \operatorname{Var} Z \le v \}

    References:
        A min-max solution of an inventory problem (Scarf, 1958).

    Example:
        >>> scarf(3.0, [1.0, -1.0])
        array([0.5, 1.5])
    """
    variance, level = np.asarray(v, np.float64), np.asarray(u, np.float64)
    root = np.sqrt(variance + level**2)
    total = root + np.abs(level)
    # For u > 0 the difference of two near numbers is written as a quotient.
    far = np.divide(variance, 2 * total, out=np.zeros_like(total), where=total > 0)
    result: Float64[np.ndarray, "*any"] = np.where(level > 0, far, total / 2)
    return result


def margin_bound(
    scores: ArrayLike,
    variances: ArrayLike,
    loss: str = "hinge",
    weights: ArrayLike | None = None,
    *,
    margin: float | None = None,
) -> Bound:
    r"""The one-shot risk by margins and variances alone, without tails.

    Hinge, for every γ > 0, and logistic, for every a besides:

    .. math:: L^{\ne} \le \gamma L_\gamma^\mu + E \operatorname{scarf}(v, \gamma - 1)

    .. math:: L^{\ne} \le \tfrac{1}{\ln 2} \big[ \gamma L_\gamma^\mu +
              E \operatorname{scarf}(v, \gamma - a) + \ln(1 + e^{-a}) \big]

    From (1 + m + Z)₊ <= (γ + m)₊ + (Z − (γ − 1))₊ and ln(1 + e^t) <= (t + a)₊ + ln(1 + e^{−a}).
    Convex in (γ, a); the best values lie in 0 <= a <= γ <= max(1, −min m).

    Args:
        scores: m, of any shape.
        variances: v, of that shape.
        loss: "hinge" or "logistic" (base 2).
        weights: Their probabilities.
        margin: γ; the best one where absent.

    Raises:
        ValueError: If the shapes differ, a number is out of range, a variance negative, or the
            weights no law.

    Example:
        >>> margin_bound([-2.0], [3.0], margin=2.0).value
        0.5
    """
    m, v, law = _margins(scores, variances, weights)
    if margin is not None:
        check_positive(margin=margin)
    upper = max(1.0, -float(m.min()))

    def at(gamma: float) -> tuple[float, float, float, float]:
        """The value, γ L_γ, the Scarf term and the offset a, all in units of the loss."""
        margin_term = surrogate(loss).lipschitz * gamma * _margin_risk(m, law, gamma)

        def excess(offset: float) -> float:
            return surrogate(loss).lipschitz * float(law @ scarf(v, gamma - offset))

        if loss == "hinge":
            return margin_term + excess(1.0), margin_term, excess(1.0), 1.0
        offset = _minimiser(
            lambda a: excess(a) + float(losses_of(loss, np.array(-a))), max(gamma, 1e-9)
        )
        remainder = excess(offset) + float(losses_of(loss, np.array(-offset)))
        return margin_term + remainder, margin_term, remainder, offset

    gamma = _minimiser(lambda g: at(g)[0], upper) if margin is None else float(margin)
    value, margin_term, remainder, offset = at(gamma)
    terms = {"gamma": gamma, "a": offset, "margin": margin_term, "remainder": remainder}
    return Bound(value, terms, {}, value >= 1)


def sub_gaussian_margin(sigma: float, radius: float, epsilon: float, loss: str = "hinge") -> float:
    r"""The margin γ at which sub-Gaussian classes leave a remainder ε.

    .. math:: \gamma = 1 + 2 \sigma R \sqrt{\ln_+ \frac{\sqrt\pi \sigma R}{\epsilon}}
              \ \text{(hinge)}, \qquad
              \gamma = a + 2 \sigma R \sqrt{\ln_+ \frac{2\sqrt\pi \sigma R}{\epsilon \ln 2}},\
              a = \ln \frac{2}{\epsilon \ln 2}\ \text{(logistic)}

    Args:
        sigma: The proxy σ >= 0: E exp(λ u·(f(X) − μ_c)) <= exp(λ²σ²/2) for every unit vector u.
        radius: A bound R on |f(x)|.
        epsilon: The remainder ε > 0.
        loss: "hinge" or "logistic" (base 2).

    Raises:
        ValueError: If a number is out of range, or ε so large that the logistic γ is not positive.

    Example:
        >>> sub_gaussian_margin(0.01, 1.0, 0.1)
        1.0
    """
    check_non_negative(sigma=sigma)
    check_positive(radius=radius, epsilon=epsilon)
    scale = sigma * radius
    if surrogate(loss).name == "hinge":
        level, offset = epsilon, 1.0
    else:
        level = epsilon * math.log(2) / 2
        offset = -math.log(level)
    ratio = math.sqrt(math.pi) * scale / level
    gamma = offset + 2 * scale * math.sqrt(math.log(ratio) if ratio > 1 else 0.0)
    if gamma <= 0:
        raise ValueError(f"epsilon must be below 2 / ln 2, got {epsilon}: no margin is left")
    return gamma


def sub_gaussian_bound(
    scores: ArrayLike,
    sigma: float,
    radius: float,
    epsilon: float,
    loss: str = "hinge",
    weights: ArrayLike | None = None,
) -> Bound:
    r"""The one-shot risk by a margin, for sub-Gaussian classes.

    .. math:: L^{\ne} \le L_0\, \gamma L_\gamma^\mu + \epsilon

    with γ of :func:`sub_gaussian_margin`. For bounded classes half the largest class diameter is a
    proxy (Hoeffding), so R always is; a smaller σ cannot be certified from a sample. Prefer
    :func:`margin_bound`, which needs covariances only.

    Args:
        scores: m, of any shape.
        sigma: The proxy σ >= 0.
        radius: A bound R on |f(x)|.
        epsilon: The remainder ε > 0.
        loss: "hinge" or "logistic" (base 2).
        weights: The probabilities of the scores.

    Raises:
        ValueError: If a number is out of range or the weights are no law.

    Example:
        >>> sub_gaussian_bound([-1.0], 0.01, 1.0, 0.125).value
        0.125
    """
    gamma = sub_gaussian_margin(sigma, radius, epsilon, loss)
    m, law = checked_array("scores", scores), checked_weights(weights, np.shape(scores))
    margin_term = surrogate(loss).lipschitz * gamma * _margin_risk(m, law, gamma)
    value = margin_term + epsilon
    terms = {"gamma": gamma, "margin": margin_term, "epsilon": float(epsilon)}
    known = True if sigma >= radius else None
    return Bound(value, terms, {"classes sub-Gaussian with proxy sigma": known}, value >= 1)


def _margins(
    scores: ArrayLike, variances: ArrayLike, weights: ArrayLike | None
) -> tuple[Float64[np.ndarray, " n"], Float64[np.ndarray, " n"], Float64[np.ndarray, " n"]]:
    if np.shape(scores) != np.shape(variances):
        raise ValueError(
            f"scores and variances must have one shape, got {np.shape(scores)} and "
            f"{np.shape(variances)}"
        )
    return checked_array("scores", scores), *checked_variances(variances, weights)


def _margin_risk(
    scores: Float64[np.ndarray, " n"], law: Float64[np.ndarray, " n"], gamma: float
) -> float:
    return float(law @ losses_of("hinge", scores / gamma))


def _minimiser(function: Callable[[float], float], upper: float) -> float:
    """Where a convex function of (0, upper) is least, nearly: every point gives a bound."""
    found = minimize_scalar(
        function, bounds=(0.0, upper), method="bounded", options={"xatol": 1e-4 * upper}
    )
    return float(found.x)

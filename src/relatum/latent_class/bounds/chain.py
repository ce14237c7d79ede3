r"""What the contrastive risk says about classification: the main chain of bounds.

For an encoder f with |f(x)| <= R, classes c of prior ρ, τ = Σ ρ_c², and a surrogate loss ℓ,

.. math:: L_{sup}(f) \le L_{sup}^\mu(f) \le \frac{L_{un}(f) - \tau}{1 - \tau}
          \le L_{un}^{\ne}(f) + \beta\, s(f), \qquad
          \beta = c' \frac{\tau}{1 - \tau}, \quad c' = \frac{L_0}{\sqrt 3}

where the contrastive risk has the parts :math:`L_{un} = \tau L_{un}^= + (1 - \tau) L_{un}^{\ne}`.
Every theorem is one function of numbers, exact or estimated; an estimate makes the result an
estimate. Risks are in units of the loss at zero, ℓ(0) = 1.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from ..checks import (
    at_least,
    check_count,
    check_finite,
    check_non_negative,
    check_positive,
    check_tau,
    checked_array,
    checked_weights,
    losses_of,
    surrogate,
)

__all__ = [
    "Bound",
    "collision_bound",
    "collision_second_order",
    "competitive_bound",
    "mean_classifier_bound",
    "views_bound",
]


@dataclass(frozen=True)
class Bound:
    """One theorem, evaluated.

    Attributes:
        value: The bound: an upper one, unless the function's name says ``lower``.
        terms: The numbers it is made of, by name.
        assumptions: The theorem's conditions: whether they hold on the input, or None where the
            input cannot tell.
        vacuous: Whether `value` says nothing beyond what holds without any data; each function says
            what it compares with.

    Example:
        >>> mean_classifier_bound(0.4, 0.1).holds
        True
    """

    value: float
    terms: dict[str, float]
    assumptions: dict[str, bool | None]
    vacuous: bool

    @property
    def holds(self) -> bool | None:
        """False if an assumption fails, else None if one cannot be told from the input."""
        states = list(self.assumptions.values())
        return False if False in states else None if None in states else True


def mean_classifier_bound(
    unsupervised_risk: float, tau: float, *, tau_is_lower_bound: bool = False
) -> Bound:
    r"""From the contrastive risk to the mean classifier.

    .. math:: L_{sup}(f) \le L_{sup}^\mu(f) \le \frac{L_{un}(f) - \tau}{1 - \tau}

    Jensen's inequality over (x⁺, x⁻) given (x, c⁺, c⁻); a collision costs at least ℓ(0) = 1.
    Equality where the encoder is constant on each class. Where L_un <= 1 the right side falls in τ,
    so that a lower bound on τ may stand in for it (τ = 0 gives L_sup^μ <= L_un). Vacuous from 1
    on: the classifier w = 0 has risk 1, so L_sup <= 1 without any data.

    Args:
        unsupervised_risk: L_un, or an upper bound on it.
        tau: The probability τ in [0, 1) that two draws share their class.
        tau_is_lower_bound: Whether `tau` is only a lower bound on it; then L_un <= 1 is assumed.

    Raises:
        ValueError: If a number is out of range.

    References:
        A Theoretical Analysis of Contrastive Unsupervised Representation Learning
        (Saunshi et al., 2019), Lemma 4.3. https://arxiv.org/abs/1902.09229

    Example:
        >>> mean_classifier_bound(0.75, 0.5).value
        0.5
    """
    check_finite(unsupervised_risk=unsupervised_risk)
    check_tau(tau)
    assumptions: dict[str, bool | None] = {"L_un >= tau": at_least(unsupervised_risk, tau)}
    if tau_is_lower_bound:
        assumptions["L_un <= 1"] = at_least(1, unsupervised_risk)
    value = (unsupervised_risk - tau) / (1 - tau)
    terms = {"L_un": float(unsupervised_risk), "tau": float(tau), "eta": 1 / (1 - tau)}
    return Bound(value, terms, assumptions, value >= 1)


def collision_bound(
    spread: float, loss: str = "hinge", *, block: int = 1, radius: float | None = None
) -> Bound:
    r"""What pairs of the same class taken for negatives can cost, by the spread of the classes.

    .. math:: 1 \le L_{un}^=(f) \le 1 + c'\, s_{dir}(f) \le 1 + c'\, s(f),
              \qquad c' = \frac{L_0}{\sqrt 3}

    For blocks of b class mates, :math:`L_{block}^= \le 1 + c'\, s / \sqrt b`. Given a collision the
    score q is symmetric, and (ℓ(q) + ℓ(−q))/2 − 1 <= L0 |q|/2; given x it is the difference of two
    iid variables of variance f(x)ᵀ Σ f(x), and E|Y − Y'| <= 2 sd/√3. The constant is sharp (uniform
    law on an interval). Vacuous from (ℓ(2R²) + ℓ(−2R²))/2 on: no symmetric score within ±2R² costs
    more; not said where the radius is not.

    Args:
        spread: s(f) = Σ ν_c √‖Σ_c‖ E_c|f(x)|, or the sharper s_dir(f) = Σ ν_c E_c √(fᵀ Σ_c f).
        loss: "hinge" or "logistic" (base 2).
        block: The block size b.
        radius: A bound R on the norms |f(x)|, to say whether the result is vacuous.

    Raises:
        ValueError: If a number is out of range.

    Example:
        >>> round(collision_bound(3**0.5, "hinge").value, 12)
        2.0
    """
    check_non_negative(spread=spread)
    check_count("block", block)
    excess = surrogate(loss).collision * spread / math.sqrt(block)
    terms = {"zero": 1.0, "c' s": excess, "c'": surrogate(loss).collision}
    largest = math.inf
    if radius is not None:
        check_positive(radius=radius)
        largest = float(losses_of(loss, radius**2 * np.array([2.0, -2.0])).mean())
    return Bound(1 + excess, terms, {}, 1 + excess >= largest)


def collision_second_order(trace: float, loss: str = "hinge") -> Bound:
    r"""The collision risk by second moments: exact to second order where classes are narrow.

    .. math:: L_{un}^=(f) \le 1 + \frac{L_0}{4}\, E_{c \sim \nu} \operatorname{tr}(\Sigma_c S_c)

    with the covariances Σ_c and the uncentred second moments S_c of f(x) in class c, and
    ν_c = ρ_c²/τ. From (\|q\| − 1)₊ <= q²/4 (hinge), ln cosh u <= u²/2 (logistic), and
    E q² = 2 f(x)ᵀ Σ f(x).

    Args:
        trace: E_ν tr(Σ_c S_c).
        loss: "hinge" or "logistic" (base 2).

    Raises:
        ValueError: If `trace` is negative.

    Example:
        >>> collision_second_order(0.4, "hinge").value
        1.1
    """
    check_non_negative(trace=trace)
    excess = surrogate(loss).lipschitz / 4 * trace
    return Bound(1 + excess, {"zero": 1.0, "second order": excess}, {}, False)


def competitive_bound(
    noncollision_risk: float | Bound,
    tau: float,
    loss: str = "hinge",
    *,
    spread: float | None = None,
    collision_risk: float | None = None,
    excess: float = 0.0,
) -> Bound:
    r"""A trained encoder against any other one: the price of collisions and of training.

    .. math:: L_{sup}^\mu(\hat f) \le L_{un}^{\ne}(f) + \frac{\tau}{1-\tau} (L_{un}^=(f) - 1) +
              \eta\, E \le L_{un}^{\ne}(f) + \beta\, s(f) + \eta\, E

    with :math:`\beta = c'\tau/(1-\tau)`, :math:`\eta = 1/(1-\tau)` and the excess
    :math:`E \ge L_{un}(\hat f) - L_{un}(f)`; for an empirical minimiser, E = Gen_M + ε_opt
    (:func:`relatum.latent_class.bounds.training.minimiser_gap`) and f is any encoder of the class.
    With E = 0 it speaks of one encoder. At τ = 0 there are no collisions and their terms are zero.
    Vacuous from 1 on, as in :func:`mean_classifier_bound`.

    Args:
        noncollision_risk: :math:`L_{un}^{\ne}(f)`, or a bound on it, whose assumptions are kept.
        tau: The collision probability τ in [0, 1).
        loss: "hinge" or "logistic" (base 2).
        spread: s(f) or s_dir(f): the right-hand form.
        collision_risk: :math:`L_{un}^=(f)`, where it could be measured: the middle form, sharper.
        excess: E.

    Raises:
        ValueError: If not exactly one of `spread` and `collision_risk` is given (neither is needed
            at τ = 0), or a number is out of range.

    References:
        Saunshi et al. (2019), Theorem 4.5. https://arxiv.org/abs/1902.09229

    Example:
        >>> competitive_bound(0.25, 0.5, "hinge", collision_risk=1.125).value
        0.375
    """
    assumptions: dict[str, bool | None] = {}
    if isinstance(noncollision_risk, Bound):
        risk, assumptions = noncollision_risk.value, dict(noncollision_risk.assumptions)
    else:
        risk = float(noncollision_risk)
    check_finite(noncollision_risk=risk, excess=excess)
    price = collision_price(tau, loss, spread, collision_risk)
    training = excess / (1 - tau)
    value = risk + price + training
    terms = {"L_un^!=": risk, "collisions": price, "eta E": training}
    if collision_risk is not None and tau > 0:
        assumptions["L_un^= >= 1"] = at_least(collision_risk, 1)
    return Bound(value, terms, assumptions, value >= 1)


def views_bound(
    view_risk: float, shifts: ArrayLike, loss: str = "hinge", weights: ArrayLike | None = None
) -> Bound:
    r"""From augmented views to class mates: what the positives' law may cost.

    .. math:: L_{un}(\text{class mates}) \le L_{un}(\text{views}) +
              L_0\, E\big( f(x)^\top (f(a) - f(x^+)) \big)_+

    for any coupling of a view a of x with a class mate x⁺. Without the second term nothing
    transfers: with views alone, the theory's class is the source item. Vacuous from 1 on, the
    contrastive risk of the zero encoder.

    Args:
        view_risk: The contrastive risk with views as positives.
        shifts: The numbers f(x)ᵀ(f(a) − f(x⁺)), of any shape.
        loss: "hinge" or "logistic" (base 2).
        weights: Their probabilities, of the same shape; equal where absent.

    Raises:
        ValueError: If the weights are no probabilities or a number is not finite.

    Example:
        >>> views_bound(0.25, [1.0, -1.0], "hinge").value
        0.75
    """
    check_finite(view_risk=view_risk)
    law = checked_weights(weights, np.shape(shifts))
    gap = surrogate(loss).lipschitz * float(law @ np.maximum(checked_array("shifts", shifts), 0))
    value = view_risk + gap
    terms = {"views": float(view_risk), "augmentation gap": gap}
    return Bound(value, terms, {"a class mate exists for every x": None}, value >= 1)


def collision_price(
    tau: float, loss: str, spread: float | None, collision_risk: float | None
) -> float:
    """τ/(1−τ) times (L^= − 1), or times c' s; zero without collisions."""
    check_tau(tau)
    if tau == 0:
        return 0.0
    if (spread is None) == (collision_risk is None):
        raise ValueError(
            f"give either spread or collision_risk, got spread={spread} and "
            f"collision_risk={collision_risk}"
        )
    if spread is not None:
        return tau / (1 - tau) * collision_bound(spread, loss).terms["c' s"]
    assert collision_risk is not None
    check_finite(collision_risk=collision_risk)
    return tau / (1 - tau) * (collision_risk - 1)

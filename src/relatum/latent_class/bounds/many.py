r"""Many negatives, and all classes at once.

With k negatives drawn from the prior ρ, some of them collide with the anchor's class with
probability :math:`\tau_k = 1 - \sum_c \rho_c (1 - \rho_c)^k`, and then cost at least
:math:`\tau_k \kappa_k` whatever the encoder is
(:func:`relatum.latent_class.collisions.collision_floor`). Compare a k-negative risk with that
floor, never with 0. What is left beside the collisions falls geometrically in k: where it is below
1e-9, rounding would decide, and the bounds are infinite.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike

from ..checks import (
    ROUNDING,
    at_least,
    check_finite,
    check_non_negative,
    loss_at_zero,
    surrogate,
)
from ..collisions import collision_floor, collision_probability, coverage
from .chain import Bound

__all__ = [
    "full_way_bound",
    "top1_bound",
    "tuple_bound",
    "tuple_competitive_bound",
]


def tuple_bound(tuple_risk: float, prior: ArrayLike, loss: str = "hinge", *, k: int = 1) -> Bound:
    r"""From the k-negative risk to the mean classifier on the classes that a tuple brings.

    .. math:: L_{sup}^{(k)} \le L_{sup}^{\mu,(k)} \le
              \frac{L_{un}^{(k)} - \tau_k \kappa_k}{1 - \tau_k}

    where a task is an anchor's class c and the set of classes of its k negatives, given that c is
    not among them. Jensen's inequality in all arguments; duplicates, and on collision the other
    negatives, only raise the loss. At k = 1 it is the bound by τ. Vacuous from the loss of w = 0
    against min(k, K − 1) classes on.

    Args:
        tuple_risk: :math:`L_{un}^{(k)}`, or an upper bound on it.
        prior: ρ, of K classes.
        loss: "hinge" or "logistic" (base 2).
        k: The number of negatives.

    Raises:
        ValueError: If a number is out of range or the prior is no law.

    References:
        Saunshi et al. (2019), Theorem 6.1, with other constants. https://arxiv.org/abs/1902.09229

    Example:
        >>> round(tuple_bound(0.875, [0.5, 0.5], k=2).value, 9)
        0.5
    """
    excess, terms, assumptions = above_the_floor(tuple_risk, prior, loss, k)
    value = quotient(excess, 1 - terms["tau_k"])
    return Bound(value, terms, assumptions, value >= zero_risk(prior, loss, k))


def tuple_competitive_bound(
    rest_risk: float,
    spread: float,
    prior: ArrayLike,
    loss: str = "hinge",
    *,
    k: int = 1,
    excess: float = 0.0,
) -> Bound:
    r"""A trained encoder against any other one, with k negatives.

    .. math:: L_{sup}^{\mu,(k)}(\hat f) \le \frac{1}{1 - \tau_k}
              \Big[ L_{rest}^{(k)}(f) + L_0\, s^{(k)}(f) + E \Big]

    with the loss of the negatives of other classes alone, the spread :math:`s^{(k)}`
    (:func:`relatum.latent_class.tuples.tuple_spread`) and the excess
    :math:`E \ge L_{un}^{(k)}(\hat f) - L_{un}^{(k)}(f)`. The loss is sub-additive over sets of
    negatives, and E(max of m + 1 iid less one of them) <= sd m/√(2m + 1). At k = 1 it is
    :func:`relatum.latent_class.bounds.competitive_bound`. Vacuous as :func:`tuple_bound`.

    Args:
        rest_risk: :math:`L_{rest}^{(k)}(f)`; at k = 1 it is (1 − τ) times the collision-free risk.
        spread: :math:`s^{(k)}(f)`.
        prior: ρ.
        loss: "hinge" or "logistic" (base 2).
        k: The number of negatives.
        excess: E.

    Raises:
        ValueError: If a number is out of range or the prior is no law.

    Example:
        >>> tuple_competitive_bound(0.0625, 0.0625, [0.5, 0.5], k=2).value
        0.5
    """
    check_finite(rest_risk=rest_risk, excess=excess)
    check_non_negative(spread=spread)
    collisions = surrogate(loss).lipschitz * spread
    terms = {"rest": float(rest_risk), "collisions": collisions, "E": float(excess)}
    value = quotient(sum(terms.values()), 1 - collision_probability(prior, k))
    return Bound(value, terms, {}, value >= zero_risk(prior, loss, k))


def full_way_bound(
    tuple_risk: float, prior: ArrayLike, loss: str = "hinge", *, k: int = 1
) -> Bound:
    r"""From the k-negative risk to the mean classifier on all K classes at once.

    .. math:: \sum_c \rho_c (1 - \rho_c)^k A_c \le \frac{L_{un}^{(k)} - \tau_k \kappa_k}{p_k},
              \qquad p_k = \min_{c \ne e} 1 - \Big( 1 - \frac{\rho_e}{1 - \rho_c} \Big)^k

    with :math:`A_c = E_{x \sim D_c} \ell_{K-1}\big( f(x) \cdot (\mu_e - \mu_c) \big)_{e \ne c}`.
    Given c and no collision each other class appears with probability p_k at least, and the loss
    is fractionally sub-additive. The weights sum to 1 − τ_k; with a uniform prior
    divide by it for the plain mean of A_c. Vacuous from (1 − τ_k) ℓ_{K−1}(0) on.

    Args:
        tuple_risk: :math:`L_{un}^{(k)}`, or an upper bound on it.
        prior: ρ, of K classes.
        loss: "hinge" or "logistic" (base 2).
        k: The number of negatives.

    Raises:
        ValueError: If a number is out of range or the prior is no law.

    Example:
        >>> round(full_way_bound(0.875, [0.5, 0.5], k=2).value, 9)  # two classes: nothing to cover
        0.125
    """
    excess, terms, assumptions = above_the_floor(tuple_risk, prior, loss, k)
    terms["coverage"] = coverage(prior, k)
    value = quotient(excess, terms["coverage"])
    trivial = (1 - terms["tau_k"]) * loss_at_zero(loss, np.size(prior) - 1)
    return Bound(value, terms, assumptions, value >= trivial)


def top1_bound(tuple_risk: float, prior: ArrayLike, loss: str = "hinge", *, k: int = 1) -> Bound:
    r"""From the k-negative risk to the top-1 error of the mean classifier, ties being errors.

    .. math:: P\big( \arg\max_e f(x) \cdot \mu_e \ne c \big) \le
              \frac{L_{un}^{(k)} - \tau_k \kappa_k}{p_k (1 - \rho_{max})^k}

    for (c, x) from the prior, by :func:`full_way_bound`. For a uniform prior and k = 1 the factor
    is K. Vacuous from 1 on.

    Args:
        tuple_risk: :math:`L_{un}^{(k)}`, or an upper bound on it.
        prior: ρ, of K classes.
        loss: "hinge" or "logistic" (base 2).
        k: The number of negatives.

    Raises:
        ValueError: If a number is out of range or the prior is no law.

    Example:
        >>> round(top1_bound(0.875, [0.5, 0.5], k=2).value, 9)
        0.5
    """
    full = full_way_bound(tuple_risk, prior, loss, k=k)
    rarest = float((1 - np.max(prior)) ** k)
    value = quotient(full.value, rarest)
    return Bound(value, {**full.terms, "least weight": rarest}, full.assumptions, value >= 1)


def above_the_floor(
    tuple_risk: float, prior: ArrayLike, loss: str, k: int
) -> tuple[float, dict[str, float], dict[str, bool | None]]:
    """The risk less its floor, the terms, and whether the risk is above it."""
    check_finite(tuple_risk=tuple_risk)
    floor = collision_floor(prior, k, loss)
    terms = {
        "L_un^(k)": float(tuple_risk),
        "tau_k": collision_probability(prior, k),
        "floor": floor,
    }
    return tuple_risk - floor, terms, {"L_un^(k) >= tau_k kappa_k": at_least(tuple_risk, floor)}


def quotient(excess: float, part: float) -> float:
    """The excess by the part of the tuples that carries it; infinite where that is rounding."""
    return excess / part if part >= ROUNDING else math.inf


def zero_risk(prior: ArrayLike, loss: str, k: int) -> float:
    """The most that the classifier w = 0 can cost against the classes of k negatives."""
    return loss_at_zero(loss, min(k, np.size(prior) - 1))

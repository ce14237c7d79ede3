r"""How far the one-shot risk lies above the mean classifier's; blocks.

The collision-free contrastive risk :math:`L^{\ne}` is the expected risk of a mean classifier that
knows one example of each class. With the mean scores :math:`m = f(x)^\top(\mu_e - \mu_c)` and the
variances :math:`v = f(x)^\top (\Sigma_c + \Sigma_e) f(x)`, expectations over pairs of different
classes (c, e) ~ π and x ~ D_c,

.. math:: L_{sup}^\mu = E\,\ell(m) \le L^{\ne} \le L_{sup}^\mu + J, \qquad
          J = \tfrac{L_0}{2}\, E \sqrt v

The functions take m, v and their probabilities as arrays of one shape (equal probabilities where
absent). The bounds of :math:`L^{\ne}` are vacuous from 1 on, the risk of the zero encoder.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike

from ..checks import check_count, check_finite, check_tau, checked_variances, surrogate
from .chain import Bound, collision_bound, mean_classifier_bound

__all__ = ["block_bound", "curvature_bound", "jensen_bound", "sandwich"]


def jensen_bound(
    mean_classifier_risk: float,
    variances: ArrayLike,
    loss: str = "hinge",
    weights: ArrayLike | None = None,
    *,
    block: int = 1,
) -> Bound:
    r"""The risk of b examples of each class, from above; the one-shot risk at b = 1.

    .. math:: L^{\ne} \le L_{sup}^\mu + J, \qquad
              L_{block}^{\ne} \le L_{sup}^\mu + \frac{J}{\sqrt b}, \qquad
              J = \tfrac{L_0}{2}\, E \sqrt v

    The same holds of the mean classifier learned from b labelled examples per class: its expected
    risk lies in [L_sup^μ, L_sup^μ + J/√b], the few-shot curve. From ℓ(m + Z) − ℓ(m) <= L0 Z₊ and
    E Z₊ = E|Z|/2 <= √v/2.

    Args:
        mean_classifier_risk: L_sup^μ.
        variances: v, of any shape.
        loss: "hinge" or "logistic" (base 2).
        weights: Their probabilities.
        block: The number b of examples.

    Raises:
        ValueError: If a number is out of range, a variance negative, or the weights no law.

    Example:
        >>> jensen_bound(0.25, [0.25], "hinge", block=4).value
        0.375
    """
    check_finite(mean_classifier_risk=mean_classifier_risk)
    check_count("block", block)
    v, law = checked_variances(variances, weights)
    gap = surrogate(loss).lipschitz / 2 * float(law @ np.sqrt(v)) / math.sqrt(block)
    value = mean_classifier_risk + gap
    return Bound(value, {"L_sup^mu": float(mean_classifier_risk), "J": gap}, {}, value >= 1)


def curvature_bound(
    mean_classifier_risk: float,
    variances: ArrayLike,
    weights: ArrayLike | None = None,
) -> Bound:
    r"""The one-shot risk of the logistic loss by its curvature: sharper where classes are narrow.

    .. math:: L^{\ne} \le L_{sup}^\mu + \frac{1}{8 \ln 2}\, E v

    From ℓ'' <= 1/(4 ln 2). The constant cannot be lowered. The hinge has no curvature to bound.

    Args:
        mean_classifier_risk: L_sup^μ.
        variances: v, of any shape.
        weights: Their probabilities.

    Raises:
        ValueError: If a number is out of range, a variance negative, or the weights no law.

    Example:
        >>> curvature_bound(0.5, [8 * math.log(2)]).terms["curvature"]
        1.0
    """
    check_finite(mean_classifier_risk=mean_classifier_risk)
    v, law = checked_variances(variances, weights)
    gap = surrogate("logistic").lipschitz / 8 * float(law @ v)
    value = mean_classifier_risk + gap
    return Bound(value, {"L_sup^mu": float(mean_classifier_risk), "curvature": gap}, {}, value >= 1)


def sandwich(
    mean_classifier_risk: float,
    tau: float,
    variances: ArrayLike,
    spread: float,
    loss: str = "hinge",
    weights: ArrayLike | None = None,
) -> Bound:
    r"""The contrastive risk between two readings of the mean classifier.

    .. math:: (1-\tau) L_{sup}^\mu + \tau \le L_{un}
              \le (1-\tau) (L_{sup}^\mu + J) + \tau (1 + c' s)

    The value is the upper end; ``terms["lower"]`` the lower one. At τ = 0 the spread plays no part.

    Args:
        mean_classifier_risk: L_sup^μ.
        tau: The collision probability τ in [0, 1).
        variances: v, of any shape.
        spread: s(f) or s_dir(f).
        loss: "hinge" or "logistic" (base 2).
        weights: The probabilities of the variances.

    Raises:
        ValueError: If a number is out of range, a variance negative, or the weights no law.

    Example:
        >>> sandwich(0.5, 0.5, [0.0], 0.0, "hinge").terms
        {'lower': 0.75, 'different classes': 0.25, 'collisions': 0.5}
    """
    check_tau(tau)
    different = (1 - tau) * jensen_bound(mean_classifier_risk, variances, loss, weights).value
    collisions = tau * collision_bound(spread, loss).value if tau > 0 else 0.0
    lower = (1 - tau) * mean_classifier_risk + tau
    terms = {"lower": lower, "different classes": different, "collisions": collisions}
    return Bound(different + collisions, terms, {}, different + collisions >= 1)


def block_bound(block_risk: float, tau: float, *, tau_is_lower_bound: bool = False) -> Bound:
    r"""From the risk of blocks to the mean classifier.

    .. math:: L_{sup} \le L_{sup}^\mu \le \frac{L_{block} - \tau}{1 - \tau}
              \le \frac{L_{un} - \tau}{1 - \tau}, \qquad
              q_{block} = f(x) \cdot \Big( \tfrac1b \sum_i f(x_i^-) - \tfrac1b \sum_i f(x_i^+) \Big)

    Averaging over b class mates takes one-shot noise away, and the risk does not rise with b. See
    :func:`relatum.latent_class.bounds.mean_classifier_bound`, whose proof and arguments it has;
    the two parts of the block risk are bounded by
    :func:`jensen_bound` and :func:`~relatum.latent_class.bounds.collision_bound` with `block`.

    Example:
        >>> block_bound(0.75, 0.5).value
        0.5
    """
    return mean_classifier_bound(block_risk, tau, tau_is_lower_bound=tau_is_lower_bound)

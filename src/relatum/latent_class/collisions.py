r"""Counting classes among k negatives: collisions, coverage, and what they cost at least."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float64
from numpy.typing import ArrayLike
from scipy.stats import binom

from .checks import check_count, checked_prior, loss_at_zero

__all__ = [
    "collision_counts",
    "collision_floor",
    "collision_probability",
    "coverage",
    "distinct_classes",
]


def collision_counts(prior: ArrayLike, k: int) -> Float64[np.ndarray, " k+1"]:
    r"""The law of the number m = 0, ..., k of negatives that are of the anchor's class.

    .. math:: P(m) = \sum_c \rho_c \binom km \rho_c^m (1 - \rho_c)^{k-m}

    Example:
        >>> collision_counts([0.5, 0.5], 2)
        array([0.25, 0.5 , 0.25])
    """
    rho = checked_prior(prior)
    check_count("k", k)
    return np.asarray(rho @ binom.pmf(np.arange(k + 1), k, rho[:, None]))


def collision_probability(prior: ArrayLike, k: int) -> float:
    r"""The probability that some negative collides, :math:`\tau_k = 1 - \sum \rho_c (1-\rho_c)^k`.

    At k = 1 it is τ.

    Example:
        >>> collision_probability([0.5, 0.5], 2)
        0.75
    """
    rho = checked_prior(prior)
    check_count("k", k)
    return float(rho @ -np.expm1(k * np.log1p(-rho)))


def collision_floor(prior: ArrayLike, k: int, loss: str = "hinge") -> float:
    r"""The part :math:`\tau_k \kappa_k` of the k-negative risk that no encoder can avoid.

    .. math:: \tau_k \kappa_k = \sum_{m \ge 1} P(m)\, \ell_k(0_m)

    with :math:`\ell_k(0_m)` = 1 for the hinge and :math:`\log_2(1 + m)` for the logistic loss. With
    many negatives compare a k-negative risk with this, never with 0.

    Example:
        >>> round(collision_floor([0.5, 0.5], 2), 9)
        0.75
    """
    ties = [loss_at_zero(loss, m) for m in range(k + 1)]
    return float(collision_counts(prior, k) @ ties)


def coverage(prior: ArrayLike, k: int) -> float:
    r"""How surely k negatives without collision hold each other class, for the rarest case.

    .. math:: p_k = \min_{c \ne e} 1 - \Big( 1 - \frac{\rho_e}{1 - \rho_c} \Big)^k

    Example:
        >>> coverage([0.5, 0.25, 0.25], 2)
        0.5555...
    """
    rho = checked_prior(prior)
    check_count("k", k)
    share = rho / (1 - rho[:, None])
    np.fill_diagonal(share, 1)
    return float((1 - (1 - share) ** k).min())


def distinct_classes(prior: ArrayLike, n: int) -> Float64[np.ndarray, " K+1"]:
    r"""The law of the number t = 0, ..., K of distinct classes among n draws.

    .. math:: P(t) = n!\, [y^t z^n] \prod_c \big( 1 + y (e^{\rho_c z} - 1) \big)

    computed class by class: of the draws that are left, class c takes a binomial number. Its mean
    is :math:`\sum_c 1 - (1 - \rho_c)^n`.

    Example:
        >>> distinct_classes([0.5, 0.5], 2)
        array([0. , 0.5, 0.5])
    """
    rho = checked_prior(prior)
    check_count("n", n)
    number = len(rho)
    # law[t, r]: t classes were drawn so far, r draws are left for the classes to come.
    law = np.zeros((number + 1, n + 1))
    law[0, n] = 1
    left = np.arange(n + 1)
    for c in range(number):
        share = rho[c] / rho[c:].sum()
        takes = binom.pmf(left[:, None] - left, left[:, None], share)  # from r (rows) to r'
        stays = np.diag(takes) * law
        moves = law @ (takes - np.diag(np.diag(takes)))
        law = stays
        law[1:] += moves[:-1]
    return np.asarray(law[:, 0])

"""Many negatives in the forms that others have published, and what a change of tasks costs."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from ..checks import check_law, finite_array, loss_at_zero
from .chain import Bound
from .many import above_the_floor, quotient, zero_risk

__all__ = ["published_full_way_bound", "sub_task_bound", "task_prior_factor"]


def task_prior_factor(posterior: ArrayLike, task_prior: ArrayLike) -> float:
    r"""What a task counts for under another law of its classes: :math:`\min_c D_T(c) / p_T(c)`.

    In :func:`~relatum.latent_class.bounds.many.tuple_bound` the class of the anchor has, given the
    set T of classes, the law D_T. For tasks with classes drawn from p_T instead (uniform, say), the
    mean-classifier losses satisfy

    .. math:: E_T \Big[ \min_c \frac{D_T(c)}{p_T(c)}\, L_{p_T}(T) \Big] \le
              \frac{L_{un}^{(k)} - \tau_k \kappa_k}{1 - \tau_k}

    For a uniform prior D_T is uniform, and the factor of a uniform p_T is 1.

    Args:
        posterior: D_T, over the classes of T.
        task_prior: p_T, over the same classes.

    Raises:
        ValueError: If one is no law or their lengths differ.

    References:
        Saunshi et al. (2019), Theorem 6.1. https://arxiv.org/abs/1902.09229

    Example:
        >>> task_prior_factor([0.25, 0.75], [0.5, 0.5])
        0.5
    """
    drawn, wanted = (
        finite_array("posterior", posterior, 1),
        finite_array("task_prior", task_prior, 1),
    )
    if drawn.shape != wanted.shape:
        raise ValueError(
            f"posterior and task_prior must be of one length: {drawn.shape}, {wanted.shape}"
        )
    check_law("posterior", drawn)
    check_law("task_prior", wanted)
    there = wanted > 0
    return float((drawn[there] / wanted[there]).min())


def published_full_way_bound(
    tuple_risk: float, classes: int, loss: str = "hinge", *, k: int = 1
) -> Bound:
    r"""The published bound on all K classes of a uniform prior, for comparison.

    .. math:: \frac1K \sum_c A_c \le
              \frac{2}{1 - \tau_k} \max\Big( 1, \frac{2 (K - 1) H_{K-1}}{k} \Big)
              \big( L_{un}^{(k)} - \tau_k \kappa_k \big)

    with harmonic numbers H. :func:`~relatum.latent_class.bounds.many.full_way_bound` over 1 − τ_k
    is about half of it or less.

    Args:
        tuple_risk: :math:`L_{un}^{(k)}`.
        classes: K.
        loss: "hinge" or "logistic" (base 2).
        k: The number of negatives.

    Raises:
        ValueError: If a number is out of range.

    References:
        Investigating the Role of Negatives in Contrastive Representation Learning (Ash et al.,
        2022). https://arxiv.org/abs/2106.09943

    Example:
        >>> round(published_full_way_bound(0.875, 2, k=2).value, 9)
        1.0
    """
    prior = np.full(classes, 1 / classes)
    excess, terms, assumptions = above_the_floor(tuple_risk, prior, loss, k)
    harmonic = float((1 / np.arange(1, classes)).sum())
    factor = 2 * max(1.0, 2 * (classes - 1) * harmonic / k)
    value = quotient(factor * excess, 1 - terms["tau_k"])
    trivial = loss_at_zero(loss, classes - 1)
    return Bound(value, {**terms, "factor": factor}, assumptions, value >= trivial)


def sub_task_bound(
    tuple_risk: float, prior: ArrayLike, loss: str = "hinge", *, k: int = 1
) -> Bound:
    r"""The mean classifier on all distinct classes drawn, tuples with collisions included.

    .. math:: E L_{sub} \le 2 L_{un}^{(k)} - \tau_k \kappa_k

    from :math:`L_{un}^{(k)} \ge \tfrac12 (E L_{sub} + E \ell_k(0_m))` with m colliding negatives.
    No division by 1 − τ_k, for twice the risk. Vacuous from the loss of w = 0 against
    min(k, K − 1) classes on.

    Args:
        tuple_risk: :math:`L_{un}^{(k)}`, or an upper bound on it.
        prior: ρ, of K classes.
        loss: "hinge" or "logistic" (base 2).
        k: The number of negatives.

    Raises:
        ValueError: If a number is out of range or the prior is no law.

    References:
        Understanding Negative Samples in Instance Discriminative Self-supervised Representation
        Learning (Nozawa and Sato, 2021). https://arxiv.org/abs/2102.06866

    Example:
        >>> round(sub_task_bound(0.875, [0.5, 0.5], k=2).value, 9)
        1.0
    """
    _, terms, assumptions = above_the_floor(tuple_risk, prior, loss, k)
    value = 2 * tuple_risk - terms["floor"]
    return Bound(value, terms, assumptions, value >= zero_risk(prior, loss, k))

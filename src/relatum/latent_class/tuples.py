r"""Exact risks with k negatives, of all K classes at once, and of InfoNCE and the spectral loss.

With score differences :math:`v_i = f(x) \cdot (f(x_i^-) - f(x^+))`, the losses are
:math:`\ell_k(v) = \max(0, 1 + \max_i v_i)` and :math:`\log_2(1 + \sum_i e^{v_i})`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
from jaxtyping import Float64
from scipy.special import logsumexp
from scipy.stats import binom

from .checks import Array, check_count, losses_of, many_losses_of, surrogate
from .collisions import collision_probability
from .model import FiniteModel
from .quadrature import expected_logarithms
from .risks import class_spreads, mean_scores

__all__ = [
    "full_way_losses",
    "infonce_limit",
    "infonce_risk",
    "mean_cross_entropy",
    "mean_tuple_risk",
    "rest_risk",
    "spectral_minimum",
    "spectral_risk",
    "top1_errors",
    "tuple_risk",
    "tuple_spread",
]

_LN2 = math.log(2)
_MOST_CLASSES = 14


def tuple_risk(model: FiniteModel, loss: str = "hinge", *, k: int = 1) -> float:
    r"""The contrastive risk with k independent negatives, for any k.

    .. math:: L_{un}^{(k)} = E\, \ell_k\big( f(x) \cdot (f(x_i^-) - f(x^+)) \big)_{i \le k}

    *Hinge*: the largest of k scores has the distribution function :math:`F^k`. *Logistic*: an
    integral by the trapezoid rule (:func:`~relatum.latent_class.quadrature.expected_logarithms`),
    whose error is that of rounding.

    Args:
        model: The classes and the encoder.
        loss: "hinge" or "logistic" (base 2).
        k: The number of negatives.

    Raises:
        ValueError: If the loss is unknown or k below 1.

    Example:
        >>> nothing = FiniteModel([0.5, 0.5], np.eye(2), [[0.0], [0.0]])
        >>> tuple_risk(nothing, "hinge", k=3), round(tuple_risk(nothing, "logistic", k=3), 12)
        (1.0, 2.0)
    """
    losses = _tuple_losses(model, model.negative_law, k, loss)
    return float((model.similar_law * losses).sum())


def rest_risk(model: FiniteModel, loss: str = "hinge", *, k: int = 1) -> float:
    r"""The k-negative risk that counts only negatives of other classes than the anchor's.

    A colliding negative is left out of the tuple; a tuple of nothing costs 0. So the collisions are
    the difference to :func:`tuple_risk`, and at k = 1 this is
    :math:`(1 - \tau)\, L_{un}^{\ne}`.
    """
    total = 0.0
    for c, (rho, law) in enumerate(zip(model.prior, model.laws, strict=True)):
        others = np.delete(model.prior, c) @ np.delete(model.laws, c, axis=0)
        total += rho * float(law @ _tuple_losses(model, others, k, loss) @ law)
    return total


def infonce_risk(model: FiniteModel, *, k: int = 1) -> float:
    r"""The risk of InfoNCE with k negatives, in nats: ln 2 times the logistic risk.

    .. math:: E \ln\Big(1 + \sum_{i \le k} e^{f(x) \cdot (f(x_i^-) - f(x^+))}\Big)

    Cosine similarity at temperature T has :math:`f = z / \sqrt T`.

    Example:
        >>> round(infonce_risk(FiniteModel([0.5, 0.5], np.eye(2), [[0.0], [0.0]]), k=3), 6)
        1.386294
    """
    return _LN2 * tuple_risk(model, "logistic", k=k)


def infonce_limit(model: FiniteModel) -> float:
    r"""What InfoNCE less ln k tends to with the number of negatives, in nats.

    .. math:: \lim_{k \to \infty} \mathrm{InfoNCE}_k - \ln k
              = -E\, f(x) \cdot f(x^+) + E_x \ln E_{x^-} e^{f(x) \cdot f(x^-)}

    Class mates near each other, all data far apart: alignment and uniformity.

    References:
        Understanding Contrastive Representation Learning through Alignment and Uniformity on the
        Hypersphere (Wang and Isola, 2020), Theorem 1. https://arxiv.org/abs/2005.10242

    Example:
        >>> round(infonce_limit(FiniteModel([0.5, 0.5], np.eye(2), [[0.0], [0.0]])), 12)
        0.0
    """
    q = model.negative_law
    uniformity = q @ logsumexp(model.gram, b=q, axis=1)
    return float(uniformity - (model.similar_law * model.gram).sum())


def tuple_spread(model: FiniteModel, *, k: int = 1) -> float:
    r"""What collisions among k negatives cost at most, without the Lipschitz constant.

    .. math:: s^{(k)} = \sum_c \rho_c \sum_{m \ge 1} \binom km \rho_c^m (1 - \rho_c)^{k-m}
              \frac m{\sqrt{2m+1}}\, s_c

    with s_c of :func:`~relatum.latent_class.class_spreads`. At k = 1 it is :math:`\tau s / \sqrt3`.
    """
    check_count("k", k)
    m = np.arange(k + 1)
    prices = binom.pmf(m, k, model.prior[:, None]) @ (m / np.sqrt(2 * m + 1))
    return float((model.prior * prices) @ class_spreads(model))


def mean_tuple_risk(
    model: FiniteModel, loss: str = "hinge", *, k: int = 1, collisions: bool = False
) -> float:
    r"""The mean classifier's risk on the set of classes that an anchor and k negatives bring.

    .. math:: L_{sup}^{\mu,(k)} = \sum_c \sum_{A \not\ni c} \frac{\rho_c P(A)}{1 - \tau_k}
              E_{x \sim D_c} \ell\big( f(x) \cdot (\mu_e - \mu_c) \big)_{e \in A}

    where P(A) is the probability that k classes drawn from ρ are together exactly A. All subsets of
    the classes are listed.

    Args:
        model: The classes and the encoder.
        loss: "hinge" or "logistic" (base 2).
        k: The number of negatives.
        collisions: Whether tuples with collisions count as well; A is then what they bring beside
            c, perhaps nothing, and there is no condition.

    Raises:
        ValueError: If there are more than 14 classes: their subsets would be too many.
    """
    check_count("k", k)
    number = len(model.prior)
    if number > _MOST_CLASSES:
        raise ValueError(f"subsets are listed for at most {_MOST_CLASSES} classes, got {number}")
    scores = mean_scores(model)
    total = 0.0
    for c, (rho, law) in enumerate(zip(model.prior, model.laws, strict=True)):
        others = [e for e in range(number) if e != c]
        for chosen, probability in _supports(model.prior, others, k, rho if collisions else 0.0):
            differences = scores[:, chosen] - scores[:, [c]]
            total += rho * probability * float(law @ many_losses_of(loss, differences))
    return total if collisions else total / (1 - collision_probability(model.prior, k))


def full_way_losses(model: FiniteModel, loss: str = "hinge") -> Float64[np.ndarray, " K"]:
    r"""The mean classifier's loss against all other classes at once, for each class.

    .. math:: A_c = E_{x \sim D_c} \ell\big( f(x) \cdot (\mu_e - \mu_c) \big)_{e \ne c}

    It is never below :func:`top1_errors`.
    """
    scores = mean_scores(model)
    rows = [
        law @ many_losses_of(loss, np.delete(scores, c, axis=1) - scores[:, [c]])
        for c, law in enumerate(model.laws)
    ]
    return np.asarray(rows)


def top1_errors(model: FiniteModel) -> Float64[np.ndarray, " K"]:
    """How often the mean classifier names another class, for each class; ties are errors."""
    scores = mean_scores(model)
    rows = [
        law @ (np.delete(scores, c, axis=1).max(axis=1) >= scores[:, c])
        for c, law in enumerate(model.laws)
    ]
    return np.asarray(rows)


def mean_cross_entropy(model: FiniteModel) -> float:
    r"""The cross-entropy of the mean classifier's softmax over all classes, in nats.

    .. math:: E_{c,\, x \sim D_c} \Big[ {-f(x) \cdot \mu_c} + \ln \sum_e e^{f(x) \cdot \mu_e} \Big]

    The prior does not enter the scores.

    Example:
        >>> round(mean_cross_entropy(FiniteModel([0.5, 0.5], np.eye(2), [[0.0], [0.0]])), 6)
        0.693147
    """
    scores = mean_scores(model)
    losses = logsumexp(scores, axis=1)[:, None] - scores
    return float(model.prior @ np.einsum("cx,xc->c", model.laws, losses))


def spectral_risk(model: FiniteModel) -> float:
    r"""The risk of the spectral contrastive loss.

    .. math:: L_{spec} = -2 E f(x) \cdot f(x^+) + E (f(x) \cdot f(x^-))^2
              = \|\bar A - F F^\top\|_F^2 - \|\bar A\|_F^2

    with :math:`\bar A = D_{sim} / \sqrt{q q^\top}` and :math:`F = \sqrt q\, f`.

    References:
        Provable Guarantees for Self-Supervised Deep Learning with Spectral Contrastive Loss
        (HaoChen et al., 2021), section 3.2. https://arxiv.org/abs/2106.04156

    Example:
        >>> spectral_risk(FiniteModel([0.5, 0.5], np.eye(2), np.sqrt(2) * np.eye(2)))
        -2.0
    """
    q = model.negative_law
    agreement = (model.similar_law * model.gram).sum()
    return float(q @ model.gram**2 @ q - 2 * agreement)


def spectral_minimum(model: FiniteModel, width: int) -> float:
    r"""The least :func:`spectral_risk` of any encoder of that width on these classes.

    Minus the sum of the `width` largest squared eigenvalues of :math:`\bar A`, which is positive
    semidefinite with rank at most K and largest eigenvalue 1.

    Example:
        >>> round(spectral_minimum(FiniteModel([0.3, 0.7], np.eye(2), np.eye(2)), 2), 12)
        -2.0
    """
    check_count("width", width)
    q = model.negative_law
    root = np.sqrt(model.prior)[:, None] * model.laws[:, q > 0] / np.sqrt(q[q > 0])
    eigenvalues = np.linalg.svd(root, compute_uv=False) ** 2  # Ā = rootᵀ root
    return -float((eigenvalues[:width] ** 2).sum())


def _supports(
    prior: Array, others: list[int], k: int, missing: float
) -> Iterator[tuple[list[int], float]]:
    """Each subset of classes, and how likely k draws bring exactly it (`missing` brings nothing).

    By inclusion and exclusion over its subsets, whose sums of probabilities are listed by bits.
    """
    sums = np.array([missing])
    for e in others:
        sums = np.concatenate([sums, sums + prior[e]])
    law = sums**k
    for bit in range(len(others)):  # the Möbius transform: with the class less without it
        paired = law.reshape(-1, 2, 2**bit)
        paired[:, 1] -= paired[:, 0]
    for bits, probability in enumerate(law):
        yield [e for place, e in enumerate(others) if bits >> place & 1], float(probability)


def _tuple_losses(
    model: FiniteModel, weights: Array, k: int, loss: str
) -> Float64[np.ndarray, "N N"]:
    """E ℓ_k for each anchor and positive; negatives have these weights, or bring nothing."""
    check_count("k", k)
    there = weights > 0
    expected = _expected_maximum if surrogate(loss).name == "hinge" else expected_logarithms
    return np.stack([expected(row[there], weights[there], row, k) for row in model.gram])


def _expected_maximum(scores: Array, weights: Array, positives: Array, k: int) -> Array:
    """E max(0, 1 + max of k scores − positive), by the law of the maximum."""
    order = np.argsort(scores)
    below = np.concatenate([[0.0], np.cumsum(weights[order])]) + (1 - weights.sum())
    maximum = np.diff(below**k)
    return np.asarray(losses_of("hinge", scores[order] - positives[:, None]) @ maximum)

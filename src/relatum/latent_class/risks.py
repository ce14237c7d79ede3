r"""Exact risks of an encoder on a finite model: finite sums in float64, without an estimate.

Throughout :math:`\ell` is the hinge or the base-2 logistic loss of the *difference* of two scores,
:math:`q = f(x) \cdot (f(x^-) - f(x^+))`, so that 1 is the loss of knowing nothing. Classes of an
anchor and its negative are :math:`c` and :math:`e`; :math:`\pi` is their law where they differ.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float64

from .blocks import block_scores
from .checks import Array, check_positive, losses_of
from .model import FiniteModel

__all__ = [
    "class_spreads",
    "collision_risk",
    "directional_spread",
    "margin_risk",
    "mean_classifier_losses",
    "mean_classifier_risk",
    "mean_scores",
    "noncollision_risk",
    "pair_losses",
    "pairwise_error",
    "score_variances",
    "spread",
    "unsupervised_risk",
]

# Losses held at once.
_CHUNK = 2**22


def pair_losses(
    model: FiniteModel, loss: str = "hinge", *, block: int = 1
) -> Float64[np.ndarray, "K K"]:
    r"""The contrastive loss for each class of the anchor (rows) and of the negative (columns).

    .. math:: L_{ce} = \sum_{ijl} P_{ci} P_{cj} P_{el}\, \ell(f_i \cdot f_l - f_i \cdot f_j)

    With blocks of b, the means of b independent positives and of b negatives take the place of one:
    :math:`q = f(x) \cdot (\bar f^- - \bar f^+)`.

    Time is O(N³ + K² N²), and with blocks N times the square of the number of blocks.

    Args:
        model: The classes and the encoder.
        loss: "hinge" or "logistic" (base 2).
        block: The number b of positives, and of negatives, that are averaged.

    Raises:
        ValueError: If the loss is unknown, or the blocks are too many to list.

    References:
        A Theoretical Analysis of Contrastive Unsupervised Representation Learning (Saunshi et al.,
        2019), equations 2 and 11 (blocks). https://arxiv.org/abs/1902.09229

    Example:
        >>> pair_losses(FiniteModel([0.5, 0.5], np.eye(2), [[1.0], [-1.0]]))
        array([[1., 0.],
               [0., 1.]])
    """
    scores, laws = (model.gram, model.laws) if block == 1 else block_scores(model, block)
    table = np.zeros((len(laws), len(laws)))
    step = max(1, _CHUNK // scores.shape[1] ** 2)
    for start in range(0, len(scores), step):
        rows = scores[start : start + step]
        losses = losses_of(loss, rows[:, None, :] - rows[:, :, None])
        by_class = laws @ losses @ laws.T
        table += np.einsum("cx,xce->ce", model.laws[:, start : start + step], by_class)
    return table


def unsupervised_risk(model: FiniteModel, loss: str = "hinge", *, block: int = 1) -> float:
    r"""The contrastive risk :math:`L_{un} = E\, \ell(f(x) \cdot (f(x^-) - f(x^+)))`.

    It mixes its two parts, :math:`L_{un} = \tau L_{un}^= + (1 - \tau) L_{un}^{\ne}`.

    Example:
        >>> unsupervised_risk(FiniteModel([0.5, 0.5], np.eye(2), [[1.0], [-1.0]]))
        0.5
    """
    return float(model.prior @ pair_losses(model, loss, block=block) @ model.prior)


def collision_risk(model: FiniteModel, loss: str = "hinge", *, block: int = 1) -> float:
    r"""The risk given a collision, :math:`L_{un}^= = \sum_c \nu_c L_{cc} \ge 1`.

    Its excess over 1 is at most :math:`c'` times :func:`directional_spread`. (An atomless model has
    no collisions and no such risk.)
    """
    return float(model.nu @ np.diag(pair_losses(model, loss, block=block)))


def noncollision_risk(model: FiniteModel, loss: str = "hinge", *, block: int = 1) -> float:
    r"""The risk given no collision, :math:`L_{un}^{\ne} = \sum_{c \ne e} \pi_{ce} L_{ce}`.

    It is the risk of a mean classifier that knows one example of each class, and with blocks of b
    the one that knows b.
    """
    return float((model.task_law * pair_losses(model, loss, block=block)).sum())


def mean_scores(model: FiniteModel) -> Float64[np.ndarray, "N K"]:
    r"""The scores :math:`f(x) \cdot \mu_c` of the mean classifier."""
    return np.asarray(model.features @ model.means.T)


def mean_classifier_losses(
    model: FiniteModel, loss: str = "hinge", *, margin: float = 1.0
) -> Float64[np.ndarray, "K K"]:
    r"""The loss of the mean classifier on members of c (rows) against class e (columns).

    .. math:: \sum_x D_c(x)\, \ell\big(f(x) \cdot (\mu_e - \mu_c) / \gamma\big)

    Args:
        model: The classes and the encoder.
        loss: "hinge" or "logistic" (base 2).
        margin: The scale γ of the scores.
    """
    check_positive(margin=margin)
    differences = _differences(mean_scores(model)) / margin
    return np.asarray(np.einsum("cx,xce->ce", model.laws, losses_of(loss, differences)))


def mean_classifier_risk(model: FiniteModel, loss: str = "hinge") -> float:
    r"""The supervised risk of the mean classifier over random pairs of classes.

    .. math:: L_{sup}^\mu = \sum_{c \ne e} \pi_{ce}
              E_{x \sim D_c} \ell\big(f(x) \cdot (\mu_e - \mu_c)\big) \le L_{un}^{\ne}

    This one-sided form is the two-sided task of telling c from e, since π is symmetric.

    References:
        Saunshi et al. (2019), section 2.1 https://arxiv.org/abs/1902.09229

    Example:
        >>> mean_classifier_risk(FiniteModel([0.5, 0.5], np.eye(2), [[0.5], [-0.5]]))
        0.5
    """
    return float((model.task_law * mean_classifier_losses(model, loss)).sum())


def margin_risk(model: FiniteModel, margin: float) -> float:
    r"""The hinge risk of the mean classifier at margin γ.

    .. math:: L_{\gamma,sup}^\mu = \sum_{c \ne e} \pi_{ce}
              E_{x \sim D_c} \big(1 + f(x) \cdot (\mu_e - \mu_c) / \gamma\big)_+

    γ = 1 is the hinge :func:`mean_classifier_risk`; γ times the risk does not decrease in γ.
    """
    return float((model.task_law * mean_classifier_losses(model, "hinge", margin=margin)).sum())


def pairwise_error(model: FiniteModel) -> float:
    """The zero-one error of the mean classifier over random pairs of classes; ties are errors."""
    wrong = (_differences(mean_scores(model)) >= 0).astype(np.float64)
    return float((model.task_law * np.einsum("cx,xce->ce", model.laws, wrong)).sum())


def score_variances(model: FiniteModel) -> Float64[np.ndarray, "K N"]:
    r"""The variance of the score with a member of class c: :math:`f(x)^\top \Sigma_c f(x)`.

    The bounds between the contrastive risk and that of the mean classifier read their sum over the
    two classes of a task.
    """
    means = mean_scores(model).T
    return np.asarray(
        [law @ (model.gram - m) ** 2 for law, m in zip(model.laws, means, strict=True)]
    )


def class_spreads(model: FiniteModel) -> Float64[np.ndarray, " K"]:
    r"""The spread of each class, :math:`s_c = \sqrt{\|\Sigma_c\|_{op}}\, E_{D_c} \|f(x)\|`."""
    deviations = np.sqrt(np.linalg.norm(model.covariances, ord=2, axis=(1, 2)))
    norms = model.laws @ np.linalg.norm(model.features, axis=1)
    return np.asarray(deviations * norms)


def spread(model: FiniteModel) -> float:
    r"""The spread within classes, :math:`s(f) = \sum_c \nu_c s_c \le R^2`.

    It prices a collision: :math:`L_{un}^= \le 1 + c' s(f)`.

    References:
        Saunshi et al. (2019), section 4.2 https://arxiv.org/abs/1902.09229
    """
    return float(model.nu @ class_spreads(model))


def directional_spread(model: FiniteModel) -> float:
    r"""The spread seen from the anchors, :math:`\sum_c \nu_c E_{D_c} \sqrt{f^\top \Sigma_c f}`.

    It takes the place of :func:`spread` in the bounds and is never larger.
    """
    deviations = np.sqrt(score_variances(model))
    return float(model.nu @ (model.laws * deviations).sum(axis=1))


def _differences(scores: Array) -> Float64[np.ndarray, "N K K"]:
    """The scores of class e less that of class c, at [x, c, e]."""
    return scores[:, None, :] - scores[:, :, None]

r"""The mean classifier judged on points that had no part in its means.

The score of point i for another class is :math:`f_i \cdot \mu_e`; for its own it is
:math:`f_i \cdot \mu_{c \setminus i} = (n_c f_i \cdot \mu_c - f_i \cdot f_i) / (n_c - 1)`, the mean
without i. With the mean of all n_c points the classifier would have seen the answer, and every
risk below would come out too small.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from jaxtyping import Float64

from .checks import check_positive, losses_of, many_losses_of
from .estimates import Estimate, jackknife_estimate
from .resampling import PARTS, weighted_sum
from .sample import LabelledSample

__all__ = [
    "leave_one_out_cross_entropy",
    "leave_one_out_error",
    "leave_one_out_full_risk",
    "leave_one_out_margin_risk",
    "leave_one_out_margins",
    "leave_one_out_risk",
    "leave_one_out_top_error",
]


def leave_one_out_margins(sample: LabelledSample) -> Float64[np.ndarray, "n K"]:
    r""":math:`m_{ie} = f_i \cdot (\mu_e - \mu_{c \setminus i})`: class e wins where positive.

    Raises:
        ValueError: If a class has a single row.
    """
    sample.require(2, "leaving one out")
    points, codes, counts = sample.features, sample.codes, sample.counts
    scores: Float64[np.ndarray, "n K"] = points @ sample.class_means(points).T
    at = np.arange(len(codes)), codes
    own = (counts[codes] * scores[at] - (points**2).sum(1)) / (counts[codes] - 1)
    scores -= own[:, None]
    scores[at] = 0
    return scores


def leave_one_out_risk(
    sample: LabelledSample, loss: str = "hinge", *, level: float = 0.95, groups: int = 20
) -> Estimate:
    r"""The average binary risk of the mean classifier, :math:`L_{sup}^\mu`.

    .. math:: \sum_{c \ne e} \pi_{ce} \frac{1}{n_c} \sum_{i \in c} \ell(m_{ie})

    Biased up (Jensen), by at most :math:`\tfrac{L_0}{2} \sqrt{f^\top (\Sigma_c / (n_c - 1) +
    \Sigma_e / n_e) f}` on average: its expectation is the block risk with n_c − 1 positives and n_e
    negatives.

    Args:
        sample: Labelled embeddings.
        loss: "hinge" or "logistic".
        level: Nominal coverage of the interval.
        groups: Groups of the delete-a-group jackknife.

    Raises:
        ValueError: For another loss, or if a class has a single row.

    References:
        Saunshi et al. (2019), definition 2.1 and section 4. https://arxiv.org/abs/1902.09229

    Example:
        >>> from relatum.latent_class.sample import labelled_sample
        >>> corners = labelled_sample(np.eye(2).repeat(3, axis=0), [0, 0, 0, 1, 1, 1])
        >>> leave_one_out_risk(corners).value  # the margins are −1
        0.0
    """
    return _pairwise(sample, lambda m: losses_of(loss, m), level, groups)


def leave_one_out_margin_risk(
    sample: LabelledSample, margin: float, *, level: float = 0.95, groups: int = 20
) -> Estimate:
    r"""The margin risk of the mean classifier, the average of :math:`(1 + m / \gamma)_+`.

    Args:
        sample: Labelled embeddings.
        margin: γ > 0.
        level: Nominal coverage of the interval.
        groups: Groups of the delete-a-group jackknife.

    Raises:
        ValueError: If the margin is not positive, or a class has a single row.
    """
    check_positive(margin=margin)
    return _pairwise(sample, lambda m: losses_of("hinge", m / margin), level, groups)


def leave_one_out_error(
    sample: LabelledSample, *, level: float = 0.95, groups: int = 20
) -> Estimate:
    """The average binary error of the mean classifier; ties are errors.

    Raises:
        ValueError: If a class has a single row.
    """
    return _pairwise(sample, lambda m: (m >= 0).astype(np.float64), level, groups)


def leave_one_out_top_error(
    sample: LabelledSample, *, level: float = 0.95, groups: int = 20
) -> Estimate:
    r"""How often :math:`\arg\max_e f \cdot \mu_e` is another class; ties are errors.

    Raises:
        ValueError: If a class has a single row.
    """
    return _full(sample, lambda others: (others.max(1) >= 0).astype(np.float64), level, groups)


def leave_one_out_full_risk(
    sample: LabelledSample, loss: str = "hinge", *, level: float = 0.95, groups: int = 20
) -> Estimate:
    r"""The risk of the mean classifier among all classes, :math:`\ell_{K-1}` of its margins.

    Args:
        sample: Labelled embeddings.
        loss: "hinge" or "logistic".
        level: Nominal coverage of the interval.
        groups: Groups of the delete-a-group jackknife.

    Raises:
        ValueError: For another loss, or if a class has a single row.
    """
    return _full(sample, lambda others: many_losses_of(loss, others), level, groups)


def leave_one_out_cross_entropy(
    sample: LabelledSample, *, level: float = 0.95, groups: int = 20
) -> Estimate:
    r"""The cross-entropy of the mean classifier in nats, :math:`\ln \sum_e e^{m_e}`.

    Raises:
        ValueError: If a class has a single row.
    """
    return leave_one_out_full_risk(sample, "logistic", level=level, groups=groups).scaled(np.log(2))


Terms = Callable[[Float64[np.ndarray, "n k"]], Float64[np.ndarray, "*any"]]


def _pairwise(sample: LabelledSample, terms: Terms, level: float, groups: int) -> Estimate:
    """The average over tasks (c, e) of a function of the margins of c's points against e."""

    def statistic(part: LabelledSample) -> float:
        law = PARTS["noncollision"](part.weights)
        return weighted_sum(law, part.class_means(terms(leave_one_out_margins(part))))

    return jackknife_estimate(sample, statistic, level=level, groups=groups)


def _full(sample: LabelledSample, terms: Terms, level: float, groups: int) -> Estimate:
    """The average over points of a function of their margins against all other classes."""

    def statistic(part: LabelledSample) -> float:
        margins = leave_one_out_margins(part)
        others = margins[np.arange(margins.shape[1]) != part.codes[:, None]]
        return float(part.law @ part.class_means(terms(others.reshape(len(margins), -1))))

    return jackknife_estimate(sample, statistic, level=level, groups=groups)

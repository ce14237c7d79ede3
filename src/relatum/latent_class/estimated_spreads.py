"""How wide classes are: what bounds the price of class collisions, read from a labelled sample."""

from __future__ import annotations

import math

import numpy as np
from jaxtyping import Float64

from .checks import check_delta
from .estimates import Estimate, jackknife_estimate
from .resampling import PARTS
from .sample import LabelledSample

__all__ = [
    "class_covariances",
    "estimated_directional_spread",
    "estimated_score_variances",
    "estimated_spread",
    "estimated_trace",
    "spread_upper_bound",
]


def class_covariances(sample: LabelledSample) -> Float64[np.ndarray, "K d d"]:
    """Σ_c with 1 / (n_c − 1), unbiased.

    Raises:
        ValueError: If a class has a single row.
    """
    sample.require(2, "a covariance")
    centred = sample.features - sample.class_means(sample.features)[sample.codes]
    rows = (centred[sample.codes == c] for c in range(len(sample.classes)))
    return np.stack([x.T @ x / (len(x) - 1) for x in rows])


def estimated_score_variances(sample: LabelledSample) -> Float64[np.ndarray, "n K"]:
    r""":math:`f_i^\top \Sigma_e f_i`: the variance of point i's score with members of class e.

    Plug-in. :math:`v(x; c, e)` of the theory is the sum over the two classes of a task.
    """
    points = sample.features
    columns = [((points @ sigma) * points).sum(1) for sigma in class_covariances(sample)]
    # A quadratic form of a singular covariance may round below zero.
    return np.stack(columns, axis=1).clip(min=0)


def estimated_spread(sample: LabelledSample, *, level: float = 0.95, groups: int = 20) -> Estimate:
    r"""The intraclass spread s(f), plug-in.

    .. math:: s = \sum_c \nu_c \sqrt{\|\Sigma_c\|_{op}}\; E_c |f|, \qquad \nu_c = \rho_c^2 / \tau

    Usually biased up where d is comparable with the rows of a class; there is no unbiased form.
    Where labels exist, :math:`L^= - 1` is the quantity that s only bounds.

    Args:
        sample: Labelled embeddings.
        level: Nominal coverage of the interval.
        groups: Groups of the delete-a-group jackknife.

    References:
        Saunshi et al. (2019), definition 4.4. https://arxiv.org/abs/1902.09229

    Example:
        >>> from relatum.latent_class.sample import labelled_sample
        >>> estimated_spread(labelled_sample(np.eye(2).repeat(3, axis=0), [0, 0, 0, 1, 1, 1])).value
        0.0
    """
    return jackknife_estimate(sample, _spread, level=level, groups=groups)


def estimated_directional_spread(
    sample: LabelledSample, *, level: float = 0.95, groups: int = 20
) -> Estimate:
    r"""The sharper :math:`s_{dir} = \sum_c \nu_c E_c \sqrt{f^\top \Sigma_c f} \le s`, plug-in.

    Args:
        sample: Labelled embeddings.
        level: Nominal coverage of the interval.
        groups: Groups of the delete-a-group jackknife.
    """
    return jackknife_estimate(sample, _directional_spread, level=level, groups=groups)


def estimated_trace(sample: LabelledSample, *, level: float = 0.95, groups: int = 20) -> Estimate:
    r""":math:`E_\nu \operatorname{tr}(\Sigma_C S_C)`, S the second moments; unbiased given ν.

    .. math:: \operatorname{tr}(\Sigma_c S_c) = \tfrac12 E \big( f_i \cdot (f_j - f_l) \big)^2

    for distinct rows i, j, l of a class: the mean over i of the variance of its scores with the
    other rows. It feeds the second-order bound of the collision risk.

    Args:
        sample: Labelled embeddings.
        level: Nominal coverage of the interval.
        groups: Groups of the delete-a-group jackknife.

    Raises:
        ValueError: If a class has fewer than three rows.
    """
    sample.require(3, "tr(ΣS)")
    return jackknife_estimate(sample, _trace, level=level, groups=groups, least=3)


def spread_upper_bound(sample: LabelledSample, radius: float, delta: float = 0.05) -> float:
    r"""A number that s(f) exceeds with probability at most δ over the points, the labels given.

    .. math:: \sum_c \nu_c \sqrt{\|\hat\Sigma_c\|_{op} + e_S + e_M (2 |\hat\mu_c| + e_M)}\;
              \min\Big(R,\, \overline{|f|} + R \sqrt{L / 2 n_c}\Big)

    with :math:`L = \ln(3K/\delta)`, :math:`e_S = R^2 (1 + \sqrt L) / \sqrt{n_c}`,
    :math:`e_M = R (1 + \sqrt{2L}) / \sqrt{n_c}` and :math:`\hat\Sigma_c` with 1 / n_c: means of
    independent bounded matrices, vectors and numbers each stay that near their expectations.

    Args:
        sample: Labelled embeddings of fresh data, not seen by the encoder.
        radius: R, a bound on \|f\| known beforehand; the largest norm of the sample is none.
        delta: Probability of failure.

    Raises:
        ValueError: If δ is not in (0, 1) or a row is longer than the radius.
    """
    sample.require_radius(radius)
    check_delta(delta)
    counts, means = sample.counts, sample.class_means(sample.features)
    log = math.log(3 * len(counts) / delta)
    e_s = radius**2 * (1 + math.sqrt(log)) / np.sqrt(counts)
    e_m = radius * (1 + math.sqrt(2 * log)) / np.sqrt(counts)
    widths = _operator_norms(sample) * (counts - 1) / counts
    widths = widths + e_s + e_m * (2 * np.linalg.norm(means, axis=1) + e_m)
    lengths = sample.class_means(np.linalg.norm(sample.features, axis=1))
    lengths = np.minimum(radius, lengths + radius * np.sqrt(log / (2 * counts)))
    return float(_nu(sample) @ (np.sqrt(widths) * lengths))


def _nu(sample: LabelledSample) -> Float64[np.ndarray, " K"]:
    return np.diag(PARTS["collision"](sample.weights))


def _operator_norms(sample: LabelledSample) -> Float64[np.ndarray, " K"]:
    return np.asarray(np.linalg.norm(class_covariances(sample), 2, axis=(1, 2)))


def _spread(sample: LabelledSample) -> float:
    lengths = sample.class_means(np.linalg.norm(sample.features, axis=1))
    return float(_nu(sample) @ (np.sqrt(_operator_norms(sample)) * lengths))


def _directional_spread(sample: LabelledSample) -> float:
    means = [
        np.sqrt(((rows @ sigma) * rows).sum(1).clip(min=0)).mean()
        for rows, sigma in zip(map(sample.rows, range(len(sample.classes))),
                               class_covariances(sample), strict=True)
    ]  # fmt: skip
    return float(_nu(sample) @ np.array(means))


def _trace(sample: LabelledSample) -> float:
    traces = []
    for c in range(len(sample.classes)):
        rows = sample.rows(c)
        others = len(rows) - 1
        # Centred by the class mean, which changes no variance: scores f_i · (f_j − μ).
        centred = rows - rows.mean(0)
        own = (rows * centred).sum(1)
        total = -own  # all centred scores sum to zero
        total_squares = ((rows @ (centred.T @ centred)) * rows).sum(1) - own**2
        traces.append(((total_squares - total**2 / others) / (others - 1)).mean())
    return float(_nu(sample) @ np.array(traces))

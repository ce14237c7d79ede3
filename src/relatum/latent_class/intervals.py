r"""Intervals for the contrastive risks that hold at the stated probability, whatever the laws.

They are wide: some 50 times the standard error where losses vary little. The standard errors of
:func:`~relatum.latent_class.estimates.pair_risks` are the practical ones.
"""

from __future__ import annotations

import math

import numpy as np
from jaxtyping import Float64, Int64

from .checks import check_delta, losses_of, surrogate
from .concentration import bounded_difference_tail
from .estimates import Estimate
from .pair_tables import PairTable
from .resampling import PARTS, weighted_sum
from .sample import LabelledSample

__all__ = [
    "bounded_difference_width",
    "disjoint_triplets",
    "hoeffding_width",
    "rigorous_estimate",
]


def bounded_difference_width(
    sample: LabelledSample, weights: Float64[np.ndarray, "K K"], span: float, delta: float
) -> float:
    r"""One-sided half-width by McDiarmid for :math:`\sum w_{ce} U_{ce}`, the labels given.

    .. math:: B \sqrt{ \tfrac12 \ln(1/\delta) \sum_c b_c^2 / n_c }, \qquad
              b_c = 2 \sum_e w_{ce} + \sum_e w_{ec}

    for one point of class c moves the statistic by at most :math:`B\, b_c / n_c`; with
    :math:`w = \rho \rho^\top`, :math:`b_c = 3 \rho_c`.

    Args:
        sample: Labelled embeddings.
        weights: w.
        span: B, the difference of the largest and smallest loss (``oscillation`` of the loss).
        delta: Probability of failure.
    """
    moved = 2 * weights.sum(1) + weights.sum(0)
    return bounded_difference_tail(span**2 * (moved**2 / sample.counts).sum(), delta)


def hoeffding_width(
    sample: LabelledSample, weights: Float64[np.ndarray, "K K"], span: float, delta: float
) -> float:
    r"""One-sided half-width by Hoeffding's averages of disjoint triplets, the labels given.

    .. math:: B \sqrt{ \tfrac12 \ln(1/\delta) \sum_{ce} w_{ce}^2 / m_{ce} }

    for the U-statistic is a mean, over permutations within classes, of means of :math:`m_{ce}`
    independent triplets, all disjoint: :math:`2 \sum_e m_{ce} + \sum_b m_{bc} \le n_c`. About
    √3 times narrower than :func:`bounded_difference_width`; infinite where not every pair with
    weight can have a triplet.

    Args:
        sample: Labelled embeddings.
        weights: w.
        span: B, as there.
        delta: Probability of failure.

    References:
        Probability Inequalities for Sums of Bounded Random Variables (Hoeffding, 1963), section 5.
    """
    check_delta(delta)
    allotted = _allot(sample.counts, weights)
    if allotted is None:
        return math.inf
    used = weights > 0
    return bounded_difference_tail(span**2 * (weights[used] ** 2 / allotted[used]).sum(), delta)


def _allot(
    counts: Int64[np.ndarray, " K"], weights: Float64[np.ndarray, "K K"]
) -> Int64[np.ndarray, "K K"] | None:
    """Triplets for each class pair, nearly in proportion to the weights; None if impossible."""

    def share(total: int) -> Int64[np.ndarray, "K K"]:
        return np.maximum((weights > 0).astype(np.int64), (total * weights).astype(np.int64))

    def fits(total: int) -> bool:
        wanted = share(total)
        return bool((2 * wanted.sum(1) + wanted.sum(0) <= counts).all())

    if not fits(0):
        return None
    low, high = 0, int(counts.sum())
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return share(low)


def rigorous_estimate(
    table: PairTable, radius: float, delta: float = 0.05, part: str = "unsupervised"
) -> Estimate:
    r"""A contrastive risk with an interval that covers with probability at least 1 − δ.

    The narrower of :func:`bounded_difference_width` and :func:`hoeffding_width` at δ/2 on either
    side. The labels are given: without a prior the interval is for the risk at the class
    frequencies of the sample.

    Args:
        table: From :func:`~relatum.latent_class.pair_tables.pair_table`, on fresh data.
        radius: R, a bound on \|f\| known beforehand.
        delta: Probability of failure.
        part: "unsupervised", "collision" or "noncollision".

    Raises:
        ValueError: For another part, δ outside (0, 1), or a row longer than the radius.

    Example:
        >>> from relatum.latent_class.pair_tables import pair_table
        >>> from relatum.latent_class.sample import labelled_sample
        >>> corners = labelled_sample(np.eye(2).repeat(300, axis=0), np.arange(600) // 300)
        >>> estimate = rigorous_estimate(pair_table(corners), radius=1.0)
        >>> round(estimate.value, 3), round(estimate.high, 2)  # ± 3 √(ln 40 / 2 · 3 / 600)
        (0.499, 0.79)
    """
    if part not in PARTS:
        raise ValueError(f"part must be one of {list(PARTS)}, got {part!r}")
    sample = table.sample
    sample.require_radius(radius)
    check_delta(delta)
    weights = PARTS[part](sample.weights)
    span = table.loss.oscillation(radius)
    widths = {
        "bounded differences": bounded_difference_width(sample, weights, span, delta / 2),
        "disjoint triplets": hoeffding_width(sample, weights, span, delta / 2),
    }
    method = min(widths, key=widths.__getitem__)
    value = weighted_sum(weights, table.values)
    low, high = value - widths[method], value + widths[method]
    n = len(sample.codes)
    return Estimate(value, math.nan, low, high, n, 1 - delta, method, sample.notes)


def disjoint_triplets(
    sample: LabelledSample, loss: str = "hinge", *, part: str = "unsupervised", seed: int = 0
) -> Float64[np.ndarray, " m"] | None:
    r"""Losses of independent triplets of the theory's law, for any bound on independent losses.

    The classes of anchor and negative are drawn from the weights of the part, then unused rows of
    them: no row serves twice. Their number is fixed beforehand, from the counts and weights alone,
    so that classes hardly ever run out. Where one does, the answer is None and stays so: a bound
    keeps its probability only if that counts as "nothing certified" and no other seed is tried.

    Args:
        sample: Labelled embeddings, labels given.
        loss: "hinge" or "logistic".
        part: "unsupervised", "collision" or "noncollision".
        seed: Of the classes and rows.

    Raises:
        ValueError: For another loss or part.

    Example:
        >>> from relatum.latent_class.sample import labelled_sample
        >>> corners = labelled_sample(np.eye(2).repeat(300, axis=0), np.arange(600) // 300)
        >>> losses = disjoint_triplets(corners)
        >>> 150 < len(losses) <= 200, set(losses.tolist()) == {0.0, 1.0}
        (True, True)
    """
    if part not in PARTS:
        raise ValueError(f"part must be one of {list(PARTS)}, got {part!r}")
    surrogate(loss)
    generator = np.random.default_rng(seed)
    weights = PARTS[part](sample.weights)
    weights = weights / weights.sum()
    number = _triplet_number(sample.counts, weights)
    pairs = generator.choice(weights.size, number, p=weights.ravel())
    anchor, negative = np.divmod(pairs, len(weights))
    wanted = np.concatenate([anchor, anchor, negative])
    if (np.bincount(wanted, minlength=len(weights)) > sample.counts).any():
        return None
    rows = np.empty(len(wanted), np.int64)
    for c in range(len(weights)):
        mine = np.flatnonzero(wanted == c)
        rows[mine] = generator.permutation(np.flatnonzero(sample.codes == c))[: len(mine)]
    x, y, z = sample.features[rows].reshape(3, number, sample.features.shape[1])
    return losses_of(loss, (x * (z - y)).sum(1))


def _triplet_number(counts: Int64[np.ndarray, " K"], weights: Float64[np.ndarray, "K K"]) -> int:
    """The most triplets whose demand, four standard deviations up, every class can meet.

    A triplet takes 2 A + N rows of a class, A and N the events that it is the anchor's and the
    negative's: the mean is 2 w_c. + w_.c, the mean square 4 w_c. + w_.c + 4 w_cc.
    """
    rows, columns = weights.sum(1), weights.sum(0)
    mean = 2 * rows + columns
    variance = 4 * rows + columns + 4 * np.diag(weights) - mean**2
    # m · mean + 4 √(m · variance) <= n_c, solved for √m.
    deviation = 4 * np.sqrt(variance.clip(min=0))
    root = (np.sqrt(deviation**2 + 4 * mean * counts) - deviation) / (2 * mean)
    return int(root.min() ** 2)

r"""The risk with k negatives from labelled embeddings, without visiting k-subsets.

Given an anchor i and a positive j, the negatives are k of the n' other rows, whatever their class.
The theory draws them independently; k distinct rows of an independent sample are just that.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import torch
from jaxtyping import Float64, Int64
from scipy.special import gammaln

from ..surrogates import HingeSurrogate, LogisticSurrogate
from .checks import surrogate
from .estimates import Estimate, normal_estimate
from .quadrature import expected_logarithms
from .resampling import split_error
from .sample import LabelledSample

__all__ = ["estimated_infonce", "estimated_k_negative_risk"]

_HELD = 1 << 20  # random numbers at a time


def estimated_k_negative_risk(
    sample: LabelledSample,
    k: int,
    loss: str = "hinge",
    *,
    level: float = 0.95,
    draws: int = 20,
    parts: int = 10,
    seed: int = 0,
) -> Estimate:
    r"""The contrastive risk with k negatives, :math:`E\, \ell_k(\{f \cdot (f_i^- - f^+)\})`.

    The anchor's class is drawn from the class law, then anchor and positive from their class.

    * Hinge: the exact average over all k-subsets of the other rows. With their scores sorted, the
      r-th is the maximum with probability :math:`\binom{r-1}{k-1} / \binom{n'}{k}`: O(n² log n).
    * Logistic, :math:`k^2 < n'`: :math:`E \ln(1 + S) = \int (1 - E e^{-tS}) e^{-t} dt / t` by the
      trapezoid rule in ln t, O(400 n²). The negatives are then drawn with replacement, which
      differs by the repeats, about k² / 2n' pairs: biased down a little.
    * Logistic with more negatives, and whenever a prior is given: random k-subsets. With a prior
      the class of each negative is drawn first; rows repeat where that asks for more of a class
      than there are.

    Args:
        sample: Labelled embeddings. Rows of classes that were left out are no negatives.
        k: Negatives, from 1 to n − 2.
        loss: "hinge" or "logistic".
        level: Nominal coverage of the interval.
        draws: Random subsets for each anchor, where they are used.
        parts: Disjoint parts of the sample whose spread gives the (conservative) standard error.
        seed: Of parts and subsets.

    Raises:
        ValueError: If k is out of range, for another loss, or if a class has a single row.

    References:
        Saunshi et al. (2019), section 6.1. https://arxiv.org/abs/1902.09229

    Example:
        >>> from relatum.latent_class.sample import labelled_sample
        >>> zeros = labelled_sample(np.zeros((6, 1)), [0, 0, 0, 1, 1, 1])
        >>> estimated_k_negative_risk(zeros, 3, "logistic").value  # log2(1 + 3)
        2.0
    """
    sample.require(2, "a positive")
    n = len(sample.codes)
    if not 1 <= k <= n - 2:
        raise ValueError(f"k must be from 1 to the {n - 2} rows beside a pair, got {k}")
    statistic, method = _engine(sample, k, surrogate(loss), draws, seed)
    error = float(split_error(sample, statistic, parts=parts, rows=k + 2, seed=seed))
    notes = (*sample.notes, method)
    if math.isnan(error):
        notes = (*notes, "no standard error: too few rows to split the sample")
    return normal_estimate(
        statistic(sample), error, n, level=level, method="spread over parts", notes=notes
    )


def estimated_infonce(
    sample: LabelledSample,
    k: int,
    *,
    level: float = 0.95,
    draws: int = 20,
    parts: int = 10,
    seed: int = 0,
) -> Estimate:
    r"""InfoNCE with k negatives in nats, :math:`E \ln(1 + \sum_i e^{f \cdot (f_i^- - f^+)})`.

    ln 2 times the logistic :func:`estimated_k_negative_risk`, with its arguments.

    References:
        Representation Learning with Contrastive Predictive Coding (van den Oord et al., 2018),
        equation 4. https://arxiv.org/abs/1807.03748
    """
    bits = estimated_k_negative_risk(
        sample, k, "logistic", level=level, draws=draws, parts=parts, seed=seed
    )
    return bits.scaled(math.log(2))


def _engine(
    sample: LabelledSample,
    k: int,
    loss: HingeSurrogate | LogisticSurrogate,
    draws: int,
    seed: int,
) -> tuple[Callable[[LabelledSample], float], str]:
    """How the risk is read, and a word on it."""
    if sample.prior is not None or (
        isinstance(loss, LogisticSurrogate) and k**2 >= len(sample.codes) - 2
    ):
        return (
            lambda part: _drawn(part, k, loss, draws, np.random.default_rng(seed)),
            f"{draws} random sets of negatives for each anchor",
        )
    row = _hinge_row if isinstance(loss, HingeSurrogate) else _logistic_row
    how = "all sets of distinct negatives" if row is _hinge_row else "negatives with replacement"
    return lambda part: _averaged(part, k, row), how


Row = Callable[[Float64[np.ndarray, " m"], Float64[np.ndarray, " p"], int], float]


def _averaged(sample: LabelledSample, k: int, row: Row) -> float:
    """The mean over anchors of the mean over positives, from all scores of an anchor."""
    points, codes = sample.features, sample.codes
    means = np.empty(len(codes))
    for i in range(len(codes)):
        scores = points @ points[i]
        others = np.arange(len(codes)) != i
        means[i] = row(scores[others], scores[others & (codes == codes[i])], k)
    return float(means.mean())


def _hinge_row(
    pool: Float64[np.ndarray, " m"], positives: Float64[np.ndarray, " p"], k: int
) -> float:
    r"""One anchor: the mean over positives u of E (1 + max of k of the others − u)_+.

    The pool holds each positive. With it taken out, scores above it move down one rank; a score
    counts where it exceeds u − 1. So two stretches of prefix sums serve each positive.
    """
    scores = np.sort(pool)
    left = len(scores) - 1
    ranks = np.arange(left + 1)  # scores below, of those left, counted from 0
    # P(the score with r scores below is the maximum), r from 0 to left − 1.
    log_law = np.full(left + 1, -np.inf)
    able = (ranks >= k - 1) & (ranks < left)
    log_law[able] = _log_choose(ranks[able], k - 1) - _log_choose(np.array(left), k)
    law = np.exp(log_law)
    shifted = np.concatenate([[0.0], law[:-1]])
    mass, moment = _prefix(law), _prefix(law * scores)
    mass_up, moment_up = _prefix(shifted), _prefix(shifted * scores)
    place = np.searchsorted(scores, positives, side="left")
    first = np.searchsorted(scores, positives - 1, side="right")
    gap = 1 - positives
    below = gap * (mass[place] - mass[first]) + moment[place] - moment[first]
    above = gap * (mass_up[-1] - mass_up[place + 1]) + moment_up[-1] - moment_up[place + 1]
    return float((below + above).mean())


def _prefix(values: Float64[np.ndarray, " m"]) -> Float64[np.ndarray, " m1"]:
    return np.concatenate([[0.0], np.cumsum(values)])


def _log_choose(n: Int64[np.ndarray, "*any"], k: int) -> Float64[np.ndarray, "*any"]:
    return np.asarray(gammaln(n + 1.0) - gammaln(k + 1.0) - gammaln(n - k + 1.0))


def _logistic_row(
    pool: Float64[np.ndarray, " m"], positives: Float64[np.ndarray, " p"], k: int
) -> float:
    """One anchor: the mean over positives u of E log2(1 + Σ e^{v − u}), k draws of the others."""
    weight = 1 / (len(pool) - 1)
    law = np.full(len(pool), weight)
    return float(expected_logarithms(pool, law, positives, k, own=weight).mean())


def _drawn(
    sample: LabelledSample,
    k: int,
    loss: HingeSurrogate | LogisticSurrogate,
    draws: int,
    generator: np.random.Generator,
) -> float:
    """The mean over anchors of random positives and sets of k negatives, all rows distinct."""
    points, n = sample.features, len(sample.codes)
    means = np.empty(n)
    step = max(1, _HELD // (draws * n))
    for first in range(0, n, step):
        anchors = np.arange(first, min(n, first + step))
        lanes = np.repeat(anchors, draws)
        positives = _class_mates(sample, lanes, generator)
        scores = np.repeat(points[anchors] @ points.T, draws, axis=0)
        own = scores[np.arange(len(lanes)), positives, None]
        parts = _negatives(sample, k, np.stack([lanes, positives], axis=1), scores - own, generator)
        losses = loss.many(torch.from_numpy(np.concatenate(parts, axis=1)))
        means[anchors] = losses.numpy().reshape(len(anchors), draws).mean(axis=1)
    return float(sample.law @ sample.class_means(means))


def _class_mates(
    sample: LabelledSample, rows: Int64[np.ndarray, " L"], generator: np.random.Generator
) -> Int64[np.ndarray, " L"]:
    """Another row of the class of each row."""
    order = np.argsort(sample.codes, kind="stable")
    starts = np.cumsum(sample.counts) - sample.counts
    codes = sample.codes[rows]
    own = np.argsort(order)[rows] - starts[codes]
    mate = generator.integers(0, sample.counts[codes] - 1)
    return np.asarray(order[starts[codes] + mate + (mate >= own)])


def _negatives(
    sample: LabelledSample,
    k: int,
    pairs: Int64[np.ndarray, "L 2"],
    values: Float64[np.ndarray, "L n"],
    generator: np.random.Generator,
) -> list[Float64[np.ndarray, "L m"]]:
    """Values of k rows beside each pair, any of them or with a prior first their classes.

    In columns of which some are unused (−∞), class by class.
    """
    # Random keys, the pair last: the rows of the smallest are a random set.
    keys = generator.random(values.shape)
    np.put_along_axis(keys, pairs, 1 + np.arange(2), axis=1)
    if sample.prior is None:
        groups, wanted = [np.arange(len(sample.codes))], np.full((len(pairs), 1), k)
    else:
        groups = [np.flatnonzero(sample.codes == c) for c in range(len(sample.classes))]
        wanted = generator.multinomial(k, sample.prior, size=len(pairs))
    found = []
    for group, number in zip(groups, wanted.T, strict=True):
        free = len(group) - np.isin(pairs, group).sum(axis=1)
        free[free == 0] = len(group)  # the pair may be all that a class has
        most = int(number.max())
        ranks = np.arange(most) + np.zeros_like(pairs[:, :1])
        again = number > free  # rows repeat where there are too few
        ranks[again] = generator.integers(0, free[again, None], (int(again.sum()), most))
        unused = np.arange(most) >= number[:, None]
        ranks[unused] = 0
        rows = group[_smallest(keys[:, group], int(ranks.max(initial=0)) + 1)]
        picked = np.take_along_axis(values, np.take_along_axis(rows, ranks, axis=1), axis=1)
        found.append(np.where(unused, -np.inf, picked))
    return found


def _smallest(keys: Float64[np.ndarray, "L m"], count: int) -> Int64[np.ndarray, "L count"]:
    """The places of the smallest keys of each lane, in order."""
    some = np.argpartition(keys, count - 1, axis=1)[:, :count]
    order = np.take_along_axis(keys, some, axis=1).argsort(axis=1)
    return np.asarray(np.take_along_axis(some, order, axis=1))

"""Standard errors by leaving points out: exactly from per-point sums, or in groups by refitting."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

import numpy as np
from jaxtyping import Float64, Int64
from numpy.typing import ArrayLike

from .pair_tables import PairTable, mean_terms, term_counts
from .sample import LabelledSample, class_weights

__all__ = [
    "PARTS",
    "Part",
    "grouped_jackknife",
    "hajek",
    "jackknife",
    "leave_one_out_values",
    "split_error",
    "weighted_sum",
]

Part = Callable[[Float64[np.ndarray, "K K"]], Float64[np.ndarray, "K K"]]
"""The weight of each class-pair risk in a statistic, from the probabilities of the pairs."""


def _all(law: Float64[np.ndarray, "K K"]) -> Float64[np.ndarray, "K K"]:
    return law


def _within(law: Float64[np.ndarray, "K K"]) -> Float64[np.ndarray, "K K"]:
    return np.diag(np.diag(law) / np.trace(law))


def _across(law: Float64[np.ndarray, "K K"]) -> Float64[np.ndarray, "K K"]:
    across = law - np.diag(np.diag(law))
    return np.asarray(across / across.sum())


PARTS: Final[Mapping[str, Part]] = MappingProxyType(
    {"unsupervised": _all, "collision": _within, "noncollision": _across}
)
"""L_un, L^= and L^≠ as weights of the class-pair risks."""


def weighted_sum(weights: Float64[np.ndarray, "K K"], values: Float64[np.ndarray, "K K"]) -> float:
    """Σ w U; a pair without weight may be without a value."""
    return float(np.where(weights > 0, weights * values, 0).sum())


def leave_one_out_values(table: PairTable, part: Part) -> Float64[np.ndarray, " n"]:
    r"""The statistic without each point in turn, exactly and without refitting: O(n K).

    A point p of class c is in the terms of U[c, e] as anchor or positive and in those of U[b, c] as
    negative, never twice in one; so each total without it is the total less its per-point sums.
    """
    sample = table.sample
    counts, prior = sample.counts, sample.prior
    sums, means = table.sums, table.values
    values = np.empty(len(sample.codes))
    for c in range(len(counts)):
        inside = sample.codes == c
        fewer = counts - (np.arange(len(counts)) == c)
        weights, terms = part(class_weights(fewer, prior)), term_counts(fewer)
        own = table.anchor[inside] + table.positive[inside]
        row = sums[c] - own
        row[:, c] -= table.negative[inside, c]
        column = sums[:, c] - table.negative[inside]
        untouched = weights * means
        untouched[c], untouched[:, c] = 0, 0
        column_part = weights[:, c] * mean_terms(column, np.broadcast_to(terms[:, c], column.shape))
        column_part[:, c] = 0
        row_part = weights[c] * mean_terms(row, np.broadcast_to(terms[c], row.shape))
        # A pair without weight may be without terms.
        row_part[:, weights[c] == 0] = 0
        column_part[:, weights[:, c] == 0] = 0
        values[inside] = np.nansum(untouched) + row_part.sum(1) + column_part.sum(1)
    return values


def jackknife(table: PairTable, part: Part) -> float:
    r"""The delete-one jackknife standard error of a statistic of the table.

    .. math:: \sum_c \frac{n_c - 1}{n_c} \sum_{p \in c} \big(\theta_{(-p)} - \bar\theta_c\big)^2

    with a prior, the labels being given; :math:`\frac{n-1}{n} \sum_p (\theta_{(-p)} -
    \bar\theta)^2` without one, the weights being counted anew. Deviations of the points of one unit
    are added before they are squared.
    """
    sample, values = table.sample, leave_one_out_values(table, part)
    if sample.prior is None:
        deviations = (values - values.mean()) * np.sqrt(1 - 1 / len(values))
    else:
        deviations = values - sample.class_means(values)[sample.codes]
        deviations *= np.sqrt(1 - 1 / sample.counts)[sample.codes]
    if sample.units is not None:
        deviations = np.bincount(sample.units, deviations)
    return float(np.sqrt((deviations**2).sum()))


def hajek(table: PairTable, part: Part) -> float:
    r"""The standard error of the first-order (Hájek) projection.

    :math:`\sum_c s_c^2 / n_c`, with :math:`s_c^2` the variance within a class of what its points
    contribute: as anchor, positive and negative, each less the mean. Without a prior, plus the
    variance of the class frequencies through the gradient of the statistic.
    """
    sample = table.sample
    weights = part(sample.weights)
    terms = table.terms
    pairs = np.where(terms > 0, weights / np.maximum(terms, 1), 0)
    own = (table.anchor + table.positive) * pairs[sample.codes]
    other = table.negative * pairs.T[sample.codes]
    # A point's mean over its own terms stands for all n_c points: hence the factor n_c.
    given = (own.sum(1) + other.sum(1)) * sample.counts[sample.codes]
    centred = given - sample.class_means(given)[sample.codes]
    spread = sample.class_sums(centred**2) / (sample.counts - 1)
    variance = (spread / sample.counts).sum()
    if sample.prior is None:
        variance += _label_variance(table, part)
    return float(np.sqrt(variance))


def _label_variance(table: PairTable, part: Part) -> float:
    """Of Σ part(ρρᵀ) U through the class frequencies: g's variance under ρ over n, g the gradient.

    The gradient is taken by central differences: the statistic is a ratio of quadratics in ρ.
    """
    counts = table.sample.counts
    n, prior = counts.sum(), counts / counts.sum()
    step = 1e-6

    def statistic(masses: Float64[np.ndarray, " K"]) -> float:
        return weighted_sum(part(np.outer(masses, masses)), table.values)

    shifts = step * np.eye(len(prior))
    gradient = np.array([statistic(prior + s) - statistic(prior - s) for s in shifts]) / (2 * step)
    return float(((prior * gradient**2).sum() - (prior @ gradient) ** 2) / n)


def grouped_jackknife(
    sample: LabelledSample,
    statistic: Callable[[LabelledSample], float],
    *,
    groups: int = 20,
    least: int = 2,
    seed: int = 0,
) -> float:
    r"""The delete-a-group jackknife standard error of any statistic of a labelled sample.

    .. math:: \frac{G - 1}{G} \sum_g \big(\theta_{(-g)} - \bar\theta\big)^2

    Rows are dealt at random to G groups, class by class, so that each group holds its share of
    every class; the statistic is computed anew without each. For statistics in which one point
    moves many terms, such as those of class means.

    Args:
        sample: Labelled embeddings.
        statistic: A number from a sample, without chance of its own.
        groups: G >= 2.
        least: Rows of each class that the statistic needs; NaN where fewer would be left.
        seed: Of the dealing.

    Raises:
        ValueError: If there are fewer than two groups.

    Example:
        >>> from relatum.latent_class.sample import labelled_sample
        >>> x = np.random.default_rng(0).standard_normal((400, 1))
        >>> sample = labelled_sample(x, np.arange(400) % 2)
        >>> error = grouped_jackknife(sample, lambda s: float(s.features.mean()))
        >>> abs(error - 1 / 20) < 0.02
        True
    """
    if groups < 2:
        raise ValueError(f"groups must be at least 2, got {groups}")
    dealt = _deal(sample, min(groups, len(sample.codes)), seed)
    rest = [sample.keep(dealt != group) for group in np.unique(dealt)]
    if min(int(part.counts.min()) for part in rest) < least:
        return float("nan")
    values = np.array([statistic(part) for part in rest])
    return float(np.sqrt((len(values) - 1) * values.var()))


def split_error(
    sample: LabelledSample,
    statistic: Callable[[LabelledSample], ArrayLike],
    *,
    parts: int = 10,
    least: int = 2,
    rows: int = 2,
    seed: int = 0,
) -> Float64[np.ndarray, "*any"]:
    r"""The standard error from the spread of a statistic over disjoint parts of the sample.

    :math:`\mathrm{sd} / \sqrt G` over G parts, each holding its share of every class. A U-statistic
    spreads more on a part than 1/G of the sample would say, so the error is conservative. It stands
    where the jackknife cannot: the statistic is drawn at random, or costs too much to be redone on
    nearly all rows.

    Args:
        sample: Labelled embeddings.
        statistic: A number, or an array of them, from a sample.
        parts: G, at most; fewer are made where classes are small, and NaN is given below two.
        least: Rows of each class that the statistic needs.
        rows: Rows that it needs in all.
        seed: Of the dealing.
    """
    parts = min(parts, int(sample.counts.min()) // least, len(sample.codes) // rows)
    if parts < 2:
        return np.full(np.shape(statistic(sample)), np.nan)
    dealt = _deal(sample, parts, seed)
    samples = [sample.keep(dealt == part) for part in range(parts)]
    if min(int(part.counts.min()) for part in samples) < least:
        return np.full(np.shape(statistic(sample)), np.nan)
    values = np.array([statistic(part) for part in samples])
    return np.asarray(values.std(axis=0, ddof=1) / np.sqrt(parts))


def _deal(sample: LabelledSample, groups: int, seed: int) -> Int64[np.ndarray, " n"]:
    """A group for each row; classes continue the round where the last one stopped.

    Units are dealt whole, in random order.
    """
    generator = np.random.default_rng(seed)
    if sample.units is not None:
        _, units = np.unique(sample.units, return_inverse=True)
        return np.asarray(generator.permutation(units.max() + 1)[units] % groups)
    codes = sample.codes
    order = generator.permutation(len(codes))
    order = order[np.argsort(codes[order], kind="stable")]
    dealt = np.empty(len(codes), np.int64)
    dealt[order] = np.arange(len(codes)) % groups
    return dealt

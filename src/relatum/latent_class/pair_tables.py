"""The risks of all class pairs from one labelled sample, as U-statistics with per-point sums."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import pairwise

import numpy as np
import torch
from jaxtyping import Float64, Int64

from ..surrogates import HingeSurrogate, LogisticSurrogate
from .checks import surrogate
from .fast import AnchorBlock, BlockSums, Chebyshev, direct_sums, hinge_sums
from .sample import LabelledSample

__all__ = ["PairTable", "pair_table"]

# Numbers of an array held at a time. Larger ones leave the cache and are mapped anew at every use,
# which takes twice the time; scores are multiplied out for more anchors at once.
_HELD = 1 << 18
_SCORES = 1 << 21


@dataclass(frozen=True, eq=False)
class PairTable:
    r"""Sums of triplet losses by class pair, in all and for each point.

    A term is a triplet of distinct rows: anchor i and positive j of class c, negative l of class e,
    with the loss :math:`\ell(f_i \cdot f_l - f_i \cdot f_j)`.

    Attributes:
        sample: The labelled embeddings.
        loss: The surrogate.
        anchor: ``[i, e]``, the sum of the terms with anchor i and a negative of class e.
        positive: ``[j, e]``, of those with positive j and a negative of class e.
        negative: ``[l, c]``, of those with negative l and an anchor of class c.
    """

    sample: LabelledSample
    loss: HingeSurrogate | LogisticSurrogate
    anchor: Float64[np.ndarray, "n K"]
    positive: Float64[np.ndarray, "n K"]
    negative: Float64[np.ndarray, "n K"]

    @property
    def sums(self) -> Float64[np.ndarray, "K K"]:
        """The sum of the terms of each pair (anchor's class, negative's class)."""
        return self.sample.class_sums(self.anchor)

    @property
    def terms(self) -> Int64[np.ndarray, "K K"]:
        """The number of terms of each pair."""
        return term_counts(self.sample.counts)

    @property
    def values(self) -> Float64[np.ndarray, "K K"]:
        r"""U[c, e], unbiased for the risk of the pair given the labels; NaN without terms."""
        return mean_terms(self.sums, self.terms)


def term_counts(counts: Int64[np.ndarray, " K"]) -> Int64[np.ndarray, "K K"]:
    """The number of triplets of each class pair: n_c (n_c − 1) n_e, or n_c (n_c − 1) (n_c − 2)."""
    return np.outer(counts * (counts - 1), counts) - np.diag(2 * counts * (counts - 1))


def mean_terms(
    sums: Float64[np.ndarray, "*any"], terms: Int64[np.ndarray, "*any"]
) -> Float64[np.ndarray, "*any"]:
    """Sums over terms; NaN where there are none."""
    means = np.full(np.shape(sums), np.nan)
    np.divide(sums, terms, out=means, where=terms > 0)
    return means


def pair_table(sample: LabelledSample, loss: str = "hinge") -> PairTable:
    r"""All class-pair risks of labelled embeddings, and what each point contributes.

    .. math:: U_{ce} = \frac{1}{n_c (n_c - 1) n_e} \sum_{i \ne j \in c} \sum_{l \in e}
              \ell(f_i \cdot f_l - f_i \cdot f_j), \qquad l \ne i, j

    (:math:`n_c - 2` for :math:`n_e` in the diagonal). The hinge is summed by sorting, O(n² (d + log
    n)), exactly; the logistic loss by a Chebyshev expansion to about 1e-14, O(n² (d + D)), or
    triplet by triplet where the scores are so large that the expansion has more terms than the
    classes have rows. Memory is bounded beyond the embeddings and three (n, K) tables.

    Args:
        sample: Labelled embeddings, used as given.
        loss: "hinge" or "logistic".

    Raises:
        ValueError: For another loss.

    References:
        A Theoretical Analysis of Contrastive Unsupervised Representation Learning (Saunshi et al.,
        2019), sections 2 and 4. https://arxiv.org/abs/1902.09229

    Example:
        >>> from relatum.latent_class.sample import labelled_sample
        >>> sample = labelled_sample(np.eye(2).repeat(3, axis=0), [0, 0, 0, 1, 1, 1])
        >>> pair_table(sample).values  # (1 + 1 − 1)_+ within a class, (1 + 0 − 1)_+ across
        array([[1., 0.],
               [0., 1.]])
    """
    losses = surrogate(loss)
    order = np.argsort(sample.codes, kind="stable")
    points = torch.from_numpy(sample.features[order])
    counts = sample.counts
    sums, width = _engine(losses, points, counts)
    n, classes = len(points), len(counts)
    anchor, positive, negative = (np.zeros((n, classes)) for _ in range(3))
    for block in _blocks(points, counts, max(1, _HELD // (n * width))):
        found = sums(block)
        c, own = block.code, block.own.numpy()
        anchor[own] = found.anchor.numpy()
        positive[block.columns] += found.positive.numpy()
        negative[:, c] += found.negative.numpy()
    # Within a class the terms l = j are no triplets; each of them was counted as ℓ(0) = 1.
    within = (np.arange(n), np.sort(sample.codes))
    for table in (anchor, positive, negative):
        table[within] -= (counts - 1)[within[1]]
    back = np.argsort(order)
    return PairTable(sample, losses, anchor[back], positive[back], negative[back])


def _engine(
    loss: HingeSurrogate | LogisticSurrogate,
    points: Float64[torch.Tensor, "n d"],
    counts: Int64[np.ndarray, " K"],
) -> tuple[Callable[[AnchorBlock], BlockSums], int]:
    """How blocks are summed, and how many numbers it holds for each score."""
    if isinstance(loss, HingeSurrogate):
        return hinge_sums, 1
    radius = float(points.square().sum(dim=1).max()) or 1.0
    order = Chebyshev.order(radius)
    if order > counts.max():
        return partial(direct_sums, loss), 1
    return Chebyshev.of(loss, radius), order


def _blocks(
    points: Float64[torch.Tensor, "n d"], counts: Int64[np.ndarray, " K"], most: int
) -> Iterator[AnchorBlock]:
    starts = np.concatenate([[0], np.cumsum(counts)])
    for code, (start, stop) in enumerate(pairwise(starts)):
        at_once = max(most, _SCORES // len(points))
        for first in range(start, stop, at_once):
            rows = torch.arange(first, min(first + at_once, stop))
            scores = points[rows] @ points.T
            for lane in range(0, len(rows), most):
                part = slice(lane, lane + most)
                yield AnchorBlock(scores[part], rows[part], code, starts)

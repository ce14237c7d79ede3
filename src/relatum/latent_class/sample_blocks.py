"""Risks from a labelled sample beyond triplets: blocks of class mates, and squares of scores."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float64, Int64

from .checks import losses_of
from .estimates import Estimate, PairRisks, jackknife_estimate, normal_estimate
from .resampling import PARTS, split_error, weighted_sum
from .sample import LabelledSample

__all__ = ["estimated_block_risks", "estimated_spectral_risk"]


def estimated_block_risks(
    sample: LabelledSample,
    block: int,
    loss: str = "hinge",
    *,
    level: float = 0.95,
    draws: int = 50,
    parts: int = 10,
    seed: int = 0,
) -> PairRisks:
    r"""The risks with means of b positives and of b negatives; L^≠ is that of b-shot learning.

    .. math:: E\, \ell\Big( f \cdot \Big( \tfrac1b \sum_{i=1}^b f_i^- -
              \tfrac1b \sum_{i=1}^b f_i^+ \Big) \Big)

    the positives of the anchor's class, the negatives of one class. Each draw takes disjoint blocks
    of every class and all other rows as anchors; every draw is unbiased given the labels.

    Args:
        sample: Labelled embeddings.
        block: b >= 1; every class needs 2b + 1 rows.
        loss: "hinge" or "logistic".
        level: Nominal coverage of the intervals.
        draws: Sets of blocks to average.
        parts: Disjoint parts of the sample whose spread gives the (conservative) standard errors.
        seed: Of the blocks and parts.

    Raises:
        ValueError: If b or draws are not positive, or a class has too few rows.

    References:
        Saunshi et al. (2019), section 6.2 (block similarity). https://arxiv.org/abs/1902.09229

    Example:
        >>> from relatum.latent_class.sample import labelled_sample
        >>> corners = labelled_sample(np.eye(2).repeat(5, axis=0), np.arange(10) // 5)
        >>> estimated_block_risks(corners, 2).noncollision.value
        0.0
    """
    if block < 1 or draws < 1:
        raise ValueError(f"block and draws must be at least 1, got {block} and {draws}")
    least = 2 * block + 1
    sample.require(least, f"blocks of {block}")

    drawn = _block_draws(sample, block, loss, draws, seed)
    split = split_error(
        sample, lambda part: _block_draws(part, block, loss, draws, seed).mean(0),
        parts=parts, least=least, seed=seed,
    )  # fmt: skip
    # Rows are one source of error; that there are so many draws only is another.
    errors = np.hypot(split, drawn.std(axis=0, ddof=min(1, draws - 1)) / np.sqrt(draws))
    notes = sample.notes
    if np.isnan(errors).any():
        notes = (*notes, f"no standard error: too few rows for parts with blocks of {block}")
    found = {
        name: normal_estimate(
            float(value), float(error), len(sample.codes),
            level=level, method="spread over parts", notes=notes,
        )
        for name, value, error in zip(PARTS, drawn.mean(0), errors, strict=True)
    }  # fmt: skip
    return PairRisks(**found, tau=sample.tau)


def _block_draws(
    sample: LabelledSample,
    block: int,
    loss: str,
    draws: int,
    seed: int,
) -> Float64[np.ndarray, "draws parts"]:
    """L_un, L^= and L^≠ of each draw of blocks."""
    generator = np.random.default_rng(seed)
    points, codes = sample.features, sample.codes
    classes = np.arange(len(sample.classes))
    laws = [law(sample.weights) for law in PARTS.values()]
    found = []
    for _ in range(draws):
        # The place of each row in a random order of its class: 0..b−1 are positives.
        place = row_places(codes, generator)
        positives, negatives = place < block, (place >= block) & (place < 2 * block)
        means = [sample.keep(kept).class_means(points[kept]) for kept in (positives, negatives)]
        own = (points * means[0][codes]).sum(1, keepdims=True)
        values = losses_of(loss, points @ means[1].T - own)
        # Anchors: in no positive block, and within a class in no negative block either.
        anchors = ~positives[:, None] & ~(negatives[:, None] & (codes[:, None] == classes))
        table = sample.class_sums(values * anchors) / sample.class_sums(anchors.astype(float))
        found.append([weighted_sum(law, table) for law in laws])
    return np.array(found)


def row_places(
    codes: Int64[np.ndarray, " n"], generator: np.random.Generator
) -> Int64[np.ndarray, " n"]:
    """The rank of each row in a random order of its class."""
    order = generator.permutation(len(codes))
    order = order[np.argsort(codes[order], kind="stable")]
    starts = np.concatenate([[0], np.cumsum(np.bincount(codes))[:-1]])
    places = np.empty(len(codes), np.int64)
    places[order] = np.arange(len(codes)) - starts[codes[order]]
    return places


def estimated_spectral_risk(
    sample: LabelledSample, *, level: float = 0.95, groups: int = 20
) -> Estimate:
    r"""The spectral contrastive loss, :math:`-2 E f \cdot f^+ + E (f \cdot f^-)^2`.

    Both means over distinct rows, from sums and second moments alone: O(n d² ) and unbiased given
    the prior.

    Args:
        sample: Labelled embeddings.
        level: Nominal coverage of the interval.
        groups: Groups of the delete-a-group jackknife.

    Raises:
        ValueError: If a class has a single row.

    References:
        Provable Guarantees for Self-Supervised Deep Learning with Spectral Contrastive Loss
        (HaoChen et al., 2021), equation 6. https://arxiv.org/abs/2106.04156

    Example:
        >>> from relatum.latent_class.sample import labelled_sample
        >>> corners = labelled_sample(2**0.5 * np.eye(2).repeat(2, axis=0), [0, 0, 1, 1],
        ...     class_prior=[0.5, 0.5], least=2)
        >>> round(estimated_spectral_risk(corners).value, 9)  # its minimum over encoders is −K
        -2.0
    """
    sample.require(2, "a positive")
    return jackknife_estimate(sample, _spectral, level=level, groups=groups)


def _spectral(sample: LabelledSample) -> float:
    counts = sample.counts
    lengths = (sample.features**2).sum(1)
    sums = sample.class_sums(sample.features)
    alike = ((sums**2).sum(1) - sample.class_sums(lengths)) / (counts * (counts - 1))
    moments = np.stack([(x := sample.rows(c)).T @ x for c in range(len(counts))])
    squares = np.einsum("cij,eij->ce", moments, moments)
    squares -= np.diag(sample.class_sums(lengths**2))
    pairs = np.outer(counts, counts) - np.diag(counts)
    return float(-2 * sample.law @ alike + (sample.weights * squares / pairs).sum())

"""The transfer certificate: will classes be told apart with this encoder, and what limits it?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from numpy.typing import ArrayLike
from torch import Tensor

from ..bounds import Bound
from .inputs import read
from .labelled import certify_labelled
from .paired import certify_paired
from .result import TransferCertificate

__all__ = ["certify"]


def certify(
    embeddings: ArrayLike | Tensor,
    labels: ArrayLike | Tensor | Sequence[Any] | None = None,
    pairs: ArrayLike | Tensor | None = None,
    negatives: ArrayLike | Tensor | None = None,
    *,
    loss: str = "hinge",
    radius: float | None = None,
    class_prior: Mapping[Any, float] | ArrayLike | None = None,
    tau_lower: float = 0.0,
    delta: float = 0.05,
    k: int | Sequence[int] = (1, 10),
    block: int | Sequence[int] = (1, 2, 5, 10, 50),
    groups: ArrayLike | Tensor | Sequence[Any] | None = None,
    level: float = 0.95,
    seed: int = 0,
    classes: Sequence[Any] | None = None,
    training: Bound | None = None,
) -> TransferCertificate:
    r"""How well an encoder tells classes apart, what of it is certain, and what limits it.

    .. math:: \text{error} \le L_{sup}^\mu \le \frac{L_{un} - \tau}{1 - \tau}
              \le \frac{U - \tau}{1 - \tau}, \qquad
              P(L_{un} \le U) \ge 1 - \delta

    with the average risk :math:`L_{sup}^\mu` of the mean classifier between two classes, the
    contrastive risk :math:`L_{un}`, the probability τ of a class collision, and the mean loss U of
    triplets without a common row, widened by Hoeffding's inequality or, from 200 triplets on,
    Bernstein's. The encoder is fixed, so that no complexity enters; the embeddings must be of data
    on which it was neither trained nor chosen.

    * **Labels.** The waterfall from the error measured to that bound, each number with its standard
      error; class pairs, few-shot curve, many negatives. Without a prior it is certified at the
      class frequencies of these labels, which then serve twice: for the weights and for the
      triplets given them.
    * **Pairs alone.** Row i of `pairs` is a class mate of row i, drawn independently given the
      class. No labels are needed, only a lower bound on τ, 0 if need be. Augmented views are no
      class mates; see ``does_not_say``.
    * **Both.** The certificate comes from the labels, and the pairs are compared with class mates.

    Rows of one group (a person, a document) are dependent: one row of each group and class is used,
    standard errors leave out whole groups, and the certified triplets use a group once. What is
    quadratic in the rows is read from 10,000 of them, the k-negative risks from 1,000; the notes
    say so.

    Args:
        embeddings: f(x), (n, d), used as they are: divide unit vectors by the root of the
            temperature first.
        labels: One label a row: integers, strings, or floats that are whole; -1 is unlabelled.
        pairs: Class mates of the rows, (n, d).
        negatives: Rows of all classes as they occur, (m, d), to go with pairs and independent of
            them; by default the other pairs serve.
        loss: "hinge" or "logistic" (base 2: knowing nothing costs 1).
        radius: A bound R on |f(x)| known before the data, 1/√T at temperature T. Without it there
            are estimates and no certificate.
        class_prior: ρ: a mapping from label to probability, or one number for each class in sorted
            order.
        tau_lower: A lower bound on τ, for pairs without labels.
        delta: The probability δ that the certified value fails.
        k: Numbers of negatives to report.
        block: Numbers of labelled rows per class for the few-shot curve.
        groups: The group of each row, any hashable values.
        level: Nominal coverage of the intervals of the lines.
        seed: Of all choices of rows. Fix it beforehand: the best of several is no certificate.
        classes: The labels to use, where others have too few rows or are of no interest.
        training: What the encoder class may lose by training, of
            :func:`~relatum.latent_class.bounds.training.minimiser_gap`; reported as a line.

    Raises:
        ValueError: If neither labels nor pairs are given, shapes disagree, a value is not finite, a
            row is longer than the radius, a class has fewer than three rows, or a number is out of
            range.
        TypeError: If embeddings are not floating point, or labels neither integers nor strings.

    References:
        A Theoretical Analysis of Contrastive Unsupervised Representation Learning (Saunshi et al.,
        2019). https://arxiv.org/abs/1902.09229

    Example:
        >>> import numpy as np
        >>> corners = np.eye(2).repeat(600, axis=0)
        >>> certificate = certify(corners, np.arange(1200) // 600, radius=1.0, k=(), block=1)
        >>> certificate.line("pairwise_error").value, certificate.vacuous
        (0.0, False)
        >>> certificate.certified < 0.4  # the true value is 0: the rest is confidence
        True
    """
    inputs = read(
        embeddings, labels, pairs, negatives, groups,
        class_prior=class_prior, classes=classes, k=k, block=block, loss=loss, radius=radius,
        tau_lower=tau_lower, delta=delta, level=level, seed=seed,
    )  # fmt: skip
    if inputs.sample is None:
        return certify_paired(inputs, training)
    return certify_labelled(inputs, inputs.sample, training)

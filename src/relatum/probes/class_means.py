"""The class-means probe: the classifier of the latent-class theory, without any fitting."""

from __future__ import annotations

from typing import Literal

import numpy as np
from jaxtyping import Float64, Int64
from numpy.typing import NDArray

from .features import Array
from .labels import Labels
from .task import ProbeResult, probe_task, score

__all__ = ["class_mean_scores", "class_means", "class_means_probe"]

Rule = Literal["euclidean", "inner-product"]


def class_means_probe(
    train_x: Array,
    train_y: Labels,
    test_x: Array,
    test_y: Labels,
    *,
    rule: Rule = "euclidean",
    seed: int = 0,
    labels_per_class: int | None = None,
) -> ProbeResult:
    r"""Classifies a test row by the means :math:`\mu_c` of the classes' training rows.

    * "euclidean": the nearest mean, :math:`\arg\min_c \|f - \mu_c\|`.
    * "inner-product": :math:`\arg\max_c \langle f, \mu_c \rangle`, the mean classifier of the
      latent-class theory (Arora et al., 2019), whose pairwise weight vector is
      :math:`\mu_c - \mu_e` and which has no offset. The two agree where all means are equally
      long. Features are used as they are: neither centred nor scaled.

    Equal scores go to the class whose label sorts first.

    Args:
        train_x: Features of the training rows, (n, d).
        train_y: Their labels; see :mod:`relatum.probes.labels` for what a label may be.
        test_x: Features of the test rows, (m, d).
        test_y: Their labels.
        rule: Which of the two.
        seed: Seed of the rows drawn for `labels_per_class`.
        labels_per_class: Use only so many training rows of each class.

    Raises:
        ValueError: If `rule` is unknown, or the rows are not usable (see
            :func:`relatum.probes.task.probe_task`).
        TypeError: If features are not floating point or labels are of unlike types.

    References:
        A Theoretical Analysis of Contrastive Unsupervised Representation Learning
        (Arora et al., 2019) https://arxiv.org/abs/1902.09229

    Example:
        >>> x = np.array([[0.0], [1.0], [1.0]])
        >>> class_means_probe(x, [0, 1, 1], x, [0, 1, 1]).accuracy
        1.0
    """
    task = probe_task(
        train_x, train_y, test_x, test_y, labels_per_class=labels_per_class, seed=seed
    )
    means, counts = class_means(task.train_x, task.train_y, len(task.classes))
    return score(
        task,
        class_mean_scores(task.test_x, means, counts, rule=rule),
        probe="class-means",
        settings={"rule": rule},
    )


def class_means(
    x: Float64[np.ndarray, "n d"], codes: Int64[np.ndarray, " n"], n_classes: int
) -> tuple[Float64[np.ndarray, "c d"], Int64[np.ndarray, " c"]]:
    """The mean and the number of the rows of each class; an empty class has a mean of zeros.

    Example:
        >>> class_means(np.array([[1.0], [3.0]]), np.array([0, 0]), 2)
        (array([[2.], [0.]]), array([2, 0]))
    """
    counts = np.bincount(codes, minlength=n_classes).astype(np.int64)
    sums = np.zeros((n_classes, x.shape[1]))
    np.add.at(sums, codes, x)
    return sums / np.maximum(counts, 1)[:, None], counts


def class_mean_scores(
    x: Float64[np.ndarray, "m d"],
    means: Float64[np.ndarray, "c d"],
    counts: Int64[np.ndarray, " c"],
    *,
    rule: Rule = "euclidean",
) -> Float64[np.ndarray, "m c"]:
    r"""Scores whose largest is the chosen class: inner products, or minus half squared distances.

    The half squared distance leaves out :math:`\|f\|^2 / 2`, which is the same for all classes. A
    class without rows scores -inf, so that no other score, however low, loses against it.

    Raises:
        ValueError: If `rule` is unknown.
    """
    if rule == "inner-product":
        scores: NDArray[np.float64] = x @ means.T
    elif rule == "euclidean":
        # Distances do not change when everything moves; near the origin fewer digits cancel.
        filled = means[counts > 0]
        centre = filled.mean(axis=0) if len(filled) else np.zeros(x.shape[1])
        moved = means - centre
        scores = (x - centre) @ moved.T - np.square(moved).sum(axis=1) / 2
    else:
        raise ValueError(f"rule must be 'euclidean' or 'inner-product', got {rule!r}")
    scores[:, counts == 0] = -np.inf
    return scores

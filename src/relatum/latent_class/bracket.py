"""The best linear classifier from a labelled sample: its risk lies between two readings."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float64, Int64
from numpy.random import Generator
from scipy.optimize import minimize

from .checks import losses_of, surrogate
from .estimates import Estimate, normal_estimate
from .resampling import PARTS
from .sample import LabelledSample
from .supervised import linear_minimum

__all__ = ["SupervisedBracket", "supervised_bracket"]

_SCALES = (0.0, 0.25, 0.5, 1.0, 2.0, 4.0)
_PENALTIES = (1e-3, 1e-2, 1e-1)  # times the mean square of |f|


class SupervisedBracket(NamedTuple):
    r"""Two readings of L_sup, the average risk of the best linear classifiers of class pairs.

    Attributes:
        low: The minimum on the sample: biased down, and never to be reported alone. NaN where its
            solver gave up, with a note.
        high: The risk of trained weights on rows that they were not trained on: biased up.
        tasks: Class pairs read.
    """

    low: Estimate
    high: Estimate
    tasks: int


def supervised_bracket(
    sample: LabelledSample,
    loss: str = "hinge",
    *,
    rows: int = 200,
    tasks: int = 50,
    level: float = 0.95,
    seed: int = 0,
) -> SupervisedBracket:
    r"""Brackets :math:`L_{sup} = \sum_{c \ne e} \pi_{ce} \inf_w R_{ce}(w)`.

    On average the minimum on a sample is below the infimum and the held-out risk of any weights is
    above it, whatever the sample's size, so rows and class pairs are drawn where there are many.
    Held-out weights are trained on one half and tested on the other, in turns: a multiple of the
    difference of means or of a penalised minimum, by cross-validation within their own half.

    Args:
        sample: Labelled embeddings.
        loss: "hinge" or "logistic".
        rows: Rows of each class to fit on, at most.
        tasks: Class pairs, at most; beyond, they are drawn from π.
        level: Nominal coverage of the interval of the higher reading, its weights being given.
        seed: Of rows, halves and pairs.

    Raises:
        ValueError: If rows or tasks are not positive, for another loss, or if a class has fewer
            than six rows.

    References:
        Saunshi et al. (2019), section 2.1. https://arxiv.org/abs/1902.09229

    Example:
        >>> from relatum.latent_class.sample import labelled_sample
        >>> corners = labelled_sample(np.eye(2).repeat(6, axis=0), np.arange(12) // 6)
        >>> low, high, _ = supervised_bracket(corners)
        >>> low.value, high.value
        (0.0, 0.0)
    """
    if rows < 3 or tasks < 1:
        raise ValueError(f"rows must be at least 3 and tasks at least 1, got {rows} and {tasks}")
    sample.require(6, "training and testing on halves")
    surrogate(loss)
    generator = np.random.default_rng(seed)
    pairs = list(_tasks(sample, tasks, generator))
    notes = sample.notes
    if sample.features.shape[1] >= 2 * min(rows, int(sample.counts.min())):
        notes = (*notes, "the lower reading is 0 for want of rows: a class pair has no more than d")
    minimum, contributions = 0.0, np.zeros(len(sample.codes))
    for c, e, weight in pairs:
        both = [np.flatnonzero(sample.codes == x) for x in (c, e)]
        try:
            minimum += weight * _minimum(sample.features, both, rows, loss, generator)
        except RuntimeError as error:
            minimum = math.nan
            notes = (*sample.notes, f"the lower reading is missing: {error}")
        halves = [np.array_split(generator.permutation(x), 2) for x in both]
        for half in (0, 1):
            weights = _trained(sample.features, [x[half][:rows] for x in halves], loss, generator)
            for sign, x in zip((1, -1), halves, strict=True):
                tested = losses_of(loss, sample.features[x[1 - half]] @ (-sign * weights))
                contributions[x[1 - half]] += weight * tested / (2 * len(x[0]) + 2 * len(x[1]))
    spread = [len(x) * x.var(ddof=1) for x in map(contributions.__getitem__, _masks(sample))]
    low = Estimate(minimum, math.nan, math.nan, math.nan, len(sample.codes), notes=notes)
    high = normal_estimate(
        float(contributions.sum()), math.sqrt(sum(spread)), len(sample.codes),
        level=level, method="held-out rows, weights given", notes=notes,
    )  # fmt: skip
    return SupervisedBracket(low, high, len(pairs))


def _masks(sample: LabelledSample) -> Iterator[Int64[np.ndarray, " m"]]:
    return (np.flatnonzero(sample.codes == c) for c in range(len(sample.classes)))


def _tasks(
    sample: LabelledSample, most: int, generator: Generator
) -> Iterator[tuple[int, int, float]]:
    """Pairs c < e with their weights 2π, or so many drawn from that law with equal weights."""
    law = PARTS["noncollision"](sample.weights)
    first, second = np.triu_indices(len(law), 1)
    masses = 2 * law[first, second]
    chosen, weights = np.arange(len(masses)), masses
    if len(masses) > most:
        chosen = generator.choice(len(masses), most, p=masses / masses.sum())
        weights = np.full(len(masses), 1 / most)
    for at in chosen:
        yield int(first[at]), int(second[at]), float(weights[at])


def _minimum(
    points: Float64[np.ndarray, "n d"],
    both: list[Int64[np.ndarray, " m"]],
    rows: int,
    loss: str,
    generator: Generator,
) -> float:
    """The minimum on the rows of two classes, or on so many of them."""
    signed, masses = _signed(points, [generator.permutation(x)[:rows] for x in both])
    return linear_minimum(signed, np.ones(len(signed)), masses, loss).value


def _signed(
    points: Float64[np.ndarray, "n d"], both: list[Int64[np.ndarray, " m"]]
) -> tuple[Float64[np.ndarray, "k d"], Float64[np.ndarray, " k"]]:
    """Rows times their sign, and masses that give each class one half."""
    signed = np.concatenate([points[both[0]], -points[both[1]]])
    return signed, np.repeat([0.5 / len(x) for x in both], [len(x) for x in both])


def _trained(
    points: Float64[np.ndarray, "n d"],
    both: list[Int64[np.ndarray, " m"]],
    loss: str,
    generator: Generator,
) -> Float64[np.ndarray, " d"]:
    """Weights from these rows alone: a direction and its scale, chosen by turns of a third."""
    turns = [np.arange(len(x)) % 3 for x in both]
    both = [generator.permutation(x) for x in both]
    risks = np.zeros((1 + len(_PENALTIES), len(_SCALES)))
    for turn in range(3):
        fitted = _signed(points, [x[t != turn] for x, t in zip(both, turns, strict=True)])
        checked, masses = _signed(points, [x[t == turn] for x, t in zip(both, turns, strict=True)])
        scores = checked @ np.stack(_directions(*fitted), axis=1)
        losses = losses_of(loss, -scores[:, :, None] * np.array(_SCALES))
        risks += np.einsum("i,ids->ds", masses, losses)
    direction, scale = np.unravel_index(risks.argmin(), risks.shape)
    return np.asarray(_SCALES[scale] * _directions(*_signed(points, both))[direction])


def _directions(
    signed: Float64[np.ndarray, "k d"], masses: Float64[np.ndarray, " k"]
) -> list[Float64[np.ndarray, " d"]]:
    """The difference of means, and minima of the penalised logistic risk, which is smooth.

    They need not be exact, nor of the loss that is read: any weights have a held-out risk.
    """
    x, m, logistic = torch.from_numpy(signed), torch.from_numpy(masses), surrogate("logistic")
    size = float((signed**2).sum(1).mean())

    def objective(
        w: Float64[np.ndarray, " d"], penalty: float
    ) -> tuple[float, Float64[np.ndarray, " d"]]:
        weights = torch.from_numpy(w).requires_grad_()
        value = m @ logistic(-x @ weights) + penalty * size / 2 * weights.square().sum()
        (gradient,) = torch.autograd.grad(value, weights)
        return value.item(), gradient.numpy()

    means = 2 * (masses @ signed)
    options = {"maxiter": 50}
    return [means] + [
        minimize(objective, means, (penalty,), "L-BFGS-B", jac=True, options=options).x
        for penalty in _PENALTIES
    ]

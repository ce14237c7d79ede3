"""The learning curve of the mean classifier, predicted from labelled embeddings."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from jaxtyping import Float64

from ..checks import losses_of
from ..leave_one_out import leave_one_out_error, leave_one_out_risk, leave_one_out_top_error
from ..resampling import PARTS, split_error, weighted_sum
from ..sample import LabelledSample
from ..sample_blocks import row_places
from .records import FewShot

__all__ = ["few_shot_curve"]

# Scores visited for each number of shots, at most; at least so many draws are made.
_SCORES, _LEAST, _MOST = 3 * 10**6, 10, 50


def few_shot_curve(
    sample: LabelledSample, shots: tuple[int, ...], loss: str = "hinge", *, seed: int = 0
) -> tuple[tuple[FewShot, ...], tuple[str, ...]]:
    r"""What a mean classifier of b labelled rows per class will do on new points.

    Each draw takes b rows of every class, their means :math:`\hat\mu_c` as classifier, and all
    other rows x to judge: by :math:`\ell(x \cdot (\hat\mu_e - \hat\mu_c))` and by its error between
    two classes and among all, ties being errors. Averages over draws are unbiased for what
    independent shots do, without any approximation; the risk is :math:`L^{\ne}` with blocks of b.

    Args:
        sample: Labelled embeddings.
        shots: Numbers b; those with fewer than b + 1 rows in a class are left out with a note.
        loss: "hinge" or "logistic".
        seed: Of the draws.

    Example:
        >>> from relatum.latent_class.sample import labelled_sample
        >>> corners = labelled_sample(np.eye(2).repeat(3, axis=0), [0, 0, 0, 1, 1, 1])
        >>> curve, notes = few_shot_curve(corners, (1, 10))
        >>> curve[0].top1_error, notes
        (0.0, ('few-shot curve without 10 labels per class: a class has 3 rows',))
    """
    least = int(sample.counts.min())
    too_many = [b for b in shots if b + 1 > least]
    notes: tuple[str, ...] = ()
    if too_many:
        names = ", ".join(map(str, too_many))
        notes = (f"few-shot curve without {names} labels per class: a class has {least} rows",)
    draws = max(_LEAST, min(_MOST, _SCORES // (len(sample.codes) * len(sample.classes))))
    curve = [_few_shot(sample, b, loss, draws, seed) for b in shots if b + 1 <= least]
    return tuple(curve), notes


def _few_shot(sample: LabelledSample, b: int, loss: str, draws: int, seed: int) -> FewShot:
    drawn = _draws(sample, b, loss, draws, seed)
    spread = drawn.std(axis=0, ddof=1)
    split = split_error(
        sample, lambda part: _draws(part, b, loss, draws, seed).mean(0), least=b + 1, seed=seed
    )
    if np.isnan(split).any():  # half a class or more: nearly the classifier that leaves one out
        left = [leave_one_out_risk(sample, loss), leave_one_out_error(sample)]
        split = np.array([x.standard_error for x in (*left, leave_one_out_top_error(sample))])
    # Rows are one source of error; that there are so many draws only is another.
    errors = np.hypot(split, spread / np.sqrt(draws))
    risk, pairwise, top = drawn.mean(0).tolist()
    return FewShot(
        shots=b,
        risk=risk,
        pairwise_error=pairwise,
        top1_error=top,
        risk_standard_error=float(errors[0]),
        pairwise_standard_error=float(errors[1]),
        top1_standard_error=float(errors[2]),
        top1_spread=float(spread[2]),
    )


def _draws(
    sample: LabelledSample, b: int, loss: str, draws: int, seed: int
) -> Float64[np.ndarray, "draws 3"]:
    """Risk and error between two classes, and error among all, of each draw of shots."""
    generator = np.random.default_rng(seed)
    law = PARTS["noncollision"](sample.weights)
    found = []
    for _ in range(draws):
        taken = row_places(sample.codes, generator) < b
        shots = sample.keep(taken)
        scores = (sample.features @ shots.class_means(shots.features).T)[~taken]
        # The other rows, known by their scores alone.
        rest = replace(sample, features=scores, codes=sample.codes[~taken], units=None)
        own = np.arange(len(scores)), rest.codes
        margins = scores - scores[own][:, None]
        wrong = (margins >= 0).astype(np.float64)
        wrong[own] = 0
        top = float(sample.law @ rest.class_means(wrong.max(1)))
        pairs = [rest.class_means(losses_of(loss, margins)), rest.class_means(wrong)]
        found.append([*(weighted_sum(law, table) for table in pairs), top])
    return np.array(found)

"""The lines of a certificate about many negatives, and what InfoNCE says of the cross-entropy."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from ..bounds import Bound
from ..bounds.infonce import cross_entropy_lower, cross_entropy_upper
from ..bounds.many import top1_bound
from ..collisions import collision_floor, collision_probability, coverage
from ..estimates import Estimate
from ..k_negatives import estimated_infonce, estimated_k_negative_risk
from ..leave_one_out import leave_one_out_cross_entropy
from ..sample import LabelledSample
from .lines import Numbers
from .records import VACUOUS

__all__ = ["negative_lines"]

# Random sets of negatives for each anchor, where the average over all sets is out of reach.
_DRAWS = 5


def negative_lines(
    sample: LabelledSample,
    few: LabelledSample,
    numbers: tuple[int, ...],
    loss: str,
    *,
    radius: float | None,
    level: float,
    seed: int,
) -> tuple[Numbers, tuple[str, ...]]:
    """Group 7.

    Args:
        sample: All rows.
        few: Those for the risks with k negatives, whose time is quadratic and more.
        numbers: k.
        loss: "hinge" or "logistic".
        radius: R; without it the cross-entropy has no lower bound.
        level: Nominal coverage of the intervals.
        seed: Of random sets of negatives.
    """
    most = len(few.codes) - 2
    notes = [f"k = {k} left out: {most + 2} rows" for k in numbers if k > most]
    if radius is None and numbers:
        notes.append("no lower bound of the cross-entropy: it needs the radius")
    means, law = sample.class_means(sample.features), sample.law
    scores = sample.features @ means.T
    spans, weights = scores.max(1) - scores.min(1), (law / sample.counts)[sample.codes]
    found: Numbers = {"cross_entropy": leave_one_out_cross_entropy(sample, level=level)}
    options: dict[str, Any] = {"level": level, "draws": _DRAWS, "seed": seed}
    for k in (k for k in numbers if k <= most):
        risk = estimated_k_negative_risk(few, k, loss, **options)
        infonce = risk.scaled(np.log(2))
        if loss == "hinge":
            infonce = estimated_infonce(few, k, **options)
        upper = cross_entropy_upper(infonce.value, law, means, k=k, spans=spans, weights=weights)
        found |= {
            f"k_negative_risk[{k}]": risk,
            f"collision_probability[{k}]": collision_probability(law, k),
            f"coverage[{k}]": coverage(law, k),
            f"floor[{k}]": collision_floor(law, k, loss),
            f"top1_bound[{k}]": top1_bound(risk.value, law, loss, k=k),
            f"infonce[{k}]": infonce,
            f"cross_entropy_high[{k}]": _moved(infonce, upper),
        }
        if radius is not None:
            lower = cross_entropy_lower(infonce.value, law, means, radius, k=k)
            found[f"cross_entropy_low[{k}]"] = _moved(infonce, lower)
    return found, tuple(notes)


def _moved(estimate: Estimate, bound: Bound) -> Estimate:
    """The bound with the errors of the estimate: what it adds hardly varies."""
    shift = bound.value - estimate.value
    notes = (VACUOUS,) if bound.vacuous else ()
    low, high = estimate.low + shift, estimate.high + shift
    return replace(estimate, value=bound.value, low=low, high=high, notes=notes)

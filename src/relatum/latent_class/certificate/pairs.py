"""The lines of a certificate from pairs of class mates, without labels or beside them."""

from __future__ import annotations

import math

import numpy as np
from jaxtyping import Float64

from ..bounds import views_bound
from ..checks import losses_of
from ..estimates import Estimate, normal_estimate
from .lines import Numbers

__all__ = ["pair_risk", "pair_traces", "view_lines"]

# Losses held at a time.
_HELD = 1 << 22
# Standard errors by which pairs must be nearer than class mates to be called views.
_VIEWS = 4


def pair_risk(
    anchors: Float64[np.ndarray, "n d"],
    positives: Float64[np.ndarray, "n d"],
    negatives: Float64[np.ndarray, "m d"] | None,
    loss: str,
    level: float,
) -> Estimate:
    r"""The contrastive risk from independent pairs, every row of other pairs being a negative.

    .. math:: \frac{1}{n(n-1)} \sum_{i \ne j} \ell\big( x_i \cdot (x_j^+ - x_i^+) \big),
              \qquad \text{or} \qquad
              \frac{1}{nm} \sum_{i, l} \ell\big( x_i \cdot (x_l^- - x_i^+) \big)

    with rows of the marginal. The standard error is that of the first-order projection: what each
    pair adds as anchor and as negative.
    """
    n = len(anchors)
    others = positives if negatives is None else negatives
    own = (anchors * positives).sum(1, keepdims=True)
    as_anchor, as_negative = np.zeros(n), np.zeros(len(others))
    step = max(1, _HELD // len(others))
    for start in range(0, n, step):
        part = slice(start, start + step)
        losses = losses_of(loss, anchors[part] @ others.T - own[part])
        as_anchor[part] = losses.sum(1)
        as_negative += losses.sum(0)
    if negatives is None:
        # A pair with itself is no triplet; it was counted as ℓ(0) = 1.
        as_anchor, as_negative = (as_anchor - 1) / (n - 1), (as_negative - 1) / (n - 1)
        error = (as_anchor + as_negative).std(ddof=1) / math.sqrt(n)
    else:
        as_anchor, as_negative = as_anchor / len(others), as_negative / n
        error = math.hypot(*(x.std(ddof=1) / math.sqrt(len(x)) for x in (as_anchor, as_negative)))
    return normal_estimate(float(as_anchor.mean()), float(error), n, level=level)


def pair_traces(
    anchors: Float64[np.ndarray, "n d"], positives: Float64[np.ndarray, "n d"]
) -> dict[str, float]:
    """The traces tr Σ_w = E|x − x⁺|² / 2, and tr Σ_b, the rest of the variance, both unbiased."""
    within = float(((anchors - positives) ** 2).sum(1).mean() / 2)
    both = (anchors + positives) / 2
    # A mean of two class mates varies by tr Σ_b + tr Σ_w / 2.
    spread = float(((both - both.mean(0)) ** 2).sum() / max(len(both) - 1, 1))
    return {"trace_between": spread - within / 2, "trace_within": within}


def view_lines(
    anchors: Float64[np.ndarray, "n d"],
    pairs: Float64[np.ndarray, "n d"],
    mates: Float64[np.ndarray, "n d"],
    loss: str,
    level: float,
) -> tuple[Numbers, bool]:
    """The risk of the given pairs, what views would cost, and whether the pairs look like views.

    Views of one item lie nearer than its class mates; pairs of class mates do not.
    """
    risk = pair_risk(anchors, pairs, None, loss, level)
    shifts = (anchors * (pairs - mates)).sum(1)
    gap = views_bound(risk.value, shifts, loss).terms["augmentation gap"]
    nearer = shifts.mean() > _VIEWS * shifts.std(ddof=1) / math.sqrt(len(shifts))
    return {"pair_risk": risk, "augmentation_gap": gap}, bool(nearer)

"""What an estimator of mutual information says of a sample, before intervals and words."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final, Literal

import numpy as np
from jaxtyping import Float64

__all__ = ["ROUNDING", "Kind", "Reading"]

ROUNDING: Final = 1e-6
"""Nats by which equal estimates may differ: a sum rounds by the order of its rows."""

Kind = Literal["lower bound", "plug-in", "difference"]
"""A *lower bound* is at most the mutual information in the population, for every critic. A
*plug-in* puts an estimated density ratio into E_P log r, and a *difference* is one of two
estimated entropies: both err to either side."""


@dataclass(frozen=True)
class Reading:
    r"""An estimate :math:`\hat I` in nats, and what each row contributed to it.

    Attributes:
        value: The estimate, in nats; never clamped, so it may be negative.
        terms: The influence of each row, (n,): their mean is ``value``, and to first order the
            estimate on resampled rows is the mean of the resampled terms (Hájek projection).
        pointwise: :math:`\log \hat r(x_i, y_i)` of each row in nats, where the estimator has one.
        kind: What kind of number it is.
        ceiling: The highest value the estimator can take at this size; None where there is none.
        notes: Warnings in plain words.
        standard_error: Only where the estimator knows it better than its terms do.
        settings: What was chosen, for the record.
        counts: Scores without a density ratio: "below" and "above" the range of the optimal
            critic, and how many were "replaced". Empty where scores cannot leave it.
    """

    value: float
    terms: Float64[np.ndarray, " n"]
    pointwise: Float64[np.ndarray, " n"] | None
    kind: Kind
    ceiling: float | None = None
    notes: tuple[str, ...] = ()
    standard_error: float | None = None
    settings: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    counts: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))

"""The number that `estimate_mi` returns, together with how far to trust it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Literal

import numpy as np
from jaxtyping import Float64

from .reading import Kind

__all__ = ["MIEstimate"]

Unit = Literal["nats", "bits"]


@dataclass(frozen=True)
class MIEstimate:
    r"""An estimate of mutual information that states what it is.

    Attributes:
        value: The estimate in ``unit``; never clamped, so it may be negative.
        interval: Ends of the interval for the sampling of the held-out rows, in ``unit``. It covers
            the noise of the sample, not the bias of the estimator.
        method: Name of the method.
        kind: "lower bound", "plug-in" or "difference".
        unit: "nats" or "bits".
        level: Nominal coverage of the interval.
        standard_error: Of the value, in ``unit``.
        ceiling: Highest value the method can take at this size (log N for CPC), in ``unit``.
        p_value: Of independence, by permutation, (1 + exceedances) / (1 + permutations); None where
            no permutation was asked for.
        permutations: How many there were.
        train_value: The same reading on the rows trained on, in ``unit``; None without training.
        seed_spread: Standard deviation of the value over training seeds; None with one seed.
        pointwise: Pointwise mutual information log r̂(x_i, y_i) of each row in ``unit``, NaN for a
            row that was not held out; None where the method has none.
        rows: Number of rows given.
        held_out: Number of rows that the value is read from.
        seconds: Time taken.
        warnings: In plain words.
        settings: Everything chosen, given or by default.
    """

    value: float
    interval: tuple[float, float]
    method: str
    kind: Kind
    unit: Unit = "nats"
    level: float = 0.95
    standard_error: float = float("nan")
    ceiling: float | None = None
    p_value: float | None = None
    permutations: int = 0
    train_value: float | None = None
    seed_spread: float | None = None
    pointwise: Float64[np.ndarray, " n"] | None = None
    rows: int = 0
    held_out: int = 0
    seconds: float = 0.0
    warnings: tuple[str, ...] = ()
    settings: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))

"""What a law, a count, a table of numbers and the name of a loss must be, said once."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from ..surrogates import SURROGATES, HingeSurrogate, LogisticSurrogate

__all__ = [
    "ROUNDING",
    "Array",
    "check_count",
    "check_law",
    "checked_prior",
    "finite_array",
    "losses_of",
    "surrogate",
]

ROUNDING = 1e-9
"""Sums of probabilities may be off by rounding, not by a forgotten normalisation."""

Array = NDArray[Any]


def finite_array(name: str, value: ArrayLike, axes: int) -> Array:
    """The value as float64 with so many axes; ValueError where it is empty or not finite."""
    array = np.array(value, np.float64)  # a copy: nobody changes a model from outside
    if array.ndim != axes or 0 in array.shape:
        shape = "a vector" if axes == 1 else "a matrix"
        raise ValueError(f"{name} must be {shape} and not empty, got shape {array.shape}")
    if not np.isfinite(array).all():
        at = ", ".join(map(str, np.argwhere(~np.isfinite(array))[0]))
        raise ValueError(f"{name}[{at}] is not finite")
    return array


def checked_prior(prior: ArrayLike) -> Array:
    """Class probabilities: at least two, positive, summing to 1."""
    rho = finite_array("prior", prior, 1)
    if len(rho) < 2:
        raise ValueError("prior must have at least two classes: one alone leaves no task")
    check_law("prior", rho)
    if rho.min() == 0:
        raise ValueError(f"prior must be positive, class {rho.argmin()} has 0: leave it out")
    return rho


def check_law(name: str, law: Array) -> None:
    """Raises ValueError where a vector is no law of probability."""
    if law.min() < 0:
        raise ValueError(f"{name} must not be negative, got {law.min()}")
    if abs(law.sum() - 1) > ROUNDING:
        raise ValueError(f"{name} must sum to 1, got {law.sum()}: divide it by its sum")


def check_count(name: str, value: int) -> None:
    """Raises ValueError below 1."""
    if value < 1:
        raise ValueError(f"{name} must be at least 1, got {value}")


def surrogate(loss: str) -> HingeSurrogate | LogisticSurrogate:
    """The loss of this name, with its constants."""
    if loss not in SURROGATES:
        raise ValueError(f"loss must be one of {', '.join(SURROGATES)}, got {loss!r}")
    return cast(HingeSurrogate | LogisticSurrogate, SURROGATES[loss])


def losses_of(loss: str, scores: Array) -> Array:
    """The loss of each score difference (negative − positive), in float64."""
    return np.asarray(surrogate(loss)(torch.from_numpy(scores)))

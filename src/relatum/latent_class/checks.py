"""What numbers, laws, tables and the name of a loss must be, said once; losses in float64."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from jaxtyping import Float64
from numpy.typing import ArrayLike, NDArray

from ..surrogates import SURROGATES, HingeSurrogate, LogisticSurrogate

__all__ = [
    "ROUNDING",
    "Array",
    "at_least",
    "check_count",
    "check_delta",
    "check_finite",
    "check_law",
    "check_non_negative",
    "check_positive",
    "check_tau",
    "checked_array",
    "checked_prior",
    "checked_variances",
    "checked_weights",
    "finite_array",
    "loss_at_zero",
    "loss_range",
    "losses_of",
    "many_losses_of",
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


def checked_prior(prior: ArrayLike, name: str = "prior") -> Array:
    """Class probabilities: at least two, positive, summing to 1."""
    rho = finite_array(name, prior, 1)
    if len(rho) < 2:
        raise ValueError(f"{name} must have at least two classes: one alone leaves no task")
    check_law(name, rho)
    if rho.min() == 0:
        raise ValueError(f"{name} must be positive, class {rho.argmin()} has 0: leave it out")
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


def at_least(value: float, least: float) -> bool:
    """Whether value >= least, up to rounding."""
    return bool(value >= least - ROUNDING * max(1.0, abs(least)))


def check_tau(tau: float) -> None:
    """Refuses a collision probability outside [0, 1)."""
    if not 0 <= tau < 1:
        raise ValueError(f"tau must lie in [0, 1): two classes at least; got {tau}")


def check_finite(**numbers: float) -> None:
    """Refuses NaN and infinity, by name."""
    for name, number in numbers.items():
        if not math.isfinite(number):
            raise ValueError(f"{name} must be a finite number, got {number}")


def check_non_negative(**numbers: float) -> None:
    """Refuses negative numbers, NaN and infinity, by name."""
    for name, number in numbers.items():
        if not 0 <= number < math.inf:
            raise ValueError(f"{name} must be a finite number >= 0, got {number}")


def check_positive(**numbers: float) -> None:
    """Refuses numbers that are not positive and finite, by name."""
    for name, number in numbers.items():
        if not 0 < number < math.inf:
            raise ValueError(f"{name} must be a positive finite number, got {number}")


def check_delta(delta: float) -> None:
    """Refuses a failure probability outside (0, 1)."""
    if not 0 < delta < 1:
        raise ValueError(f"delta must lie between 0 and 1, got {delta}")


def checked_array(name: str, values: ArrayLike) -> Float64[np.ndarray, " n"]:
    """The numbers as one float64 vector, finite and at least one of them."""
    array = np.asarray(values, np.float64).ravel()
    if array.size == 0 or not np.isfinite(array).all():
        raise ValueError(f"{name} must be finite numbers, at least one of them")
    return array


def checked_weights(weights: ArrayLike | None, shape: tuple[int, ...]) -> Float64[np.ndarray, " n"]:
    """Probabilities of the entries of an array of that shape, as one vector; equal if absent."""
    if weights is None:
        size = math.prod(shape)
        return np.full(size, 1 / max(size, 1))
    if np.shape(weights) != shape:
        raise ValueError(f"weights must have the shape {shape}, got {np.shape(weights)}")
    law = checked_array("weights", weights)
    check_law("weights", law)
    return law


def checked_variances(
    variances: ArrayLike, weights: ArrayLike | None
) -> tuple[Float64[np.ndarray, " n"], Float64[np.ndarray, " n"]]:
    """Variances as one vector, and their probabilities; refuses negative ones."""
    v = checked_array("variances", variances)
    if v.min() < -1e-9 * (1 + np.abs(v).max()):
        raise ValueError(f"variances must be >= 0, got {v.min()}")
    # A quadratic form of a covariance may round to less than zero; that is what is left.
    return np.maximum(v, 0), checked_weights(weights, np.shape(variances))


def surrogate(loss: str) -> HingeSurrogate | LogisticSurrogate:
    """The loss of this name, with its constants."""
    if loss not in SURROGATES:
        raise ValueError(f"loss must be one of {', '.join(SURROGATES)}, got {loss!r}")
    return SURROGATES[loss]


def losses_of(loss: str, scores: Array) -> Array:
    """The loss of each score difference (negative − positive), in float64."""
    return np.asarray(surrogate(loss)(torch.from_numpy(scores)))


def many_losses_of(loss: str, scores: Float64[np.ndarray, "*n k"]) -> Float64[np.ndarray, "*n"]:
    """The loss of k score differences (negative − positive) at once, over the last axis."""
    return np.asarray(surrogate(loss).many(torch.from_numpy(scores)))


def loss_at_zero(loss: str, k: int) -> float:
    """ℓ_k(0, ..., 0): 1 of the hinge, log2(1 + k) of the logistic loss, and 0 at k = 0."""
    return float(surrogate(loss).many(torch.zeros(k, dtype=torch.float64)))


def loss_range(loss: str, radius: float, k: int = 1) -> tuple[float, float]:
    """The least and the largest ℓ_k of k scores within ±2R²; their difference is B_R."""
    check_positive(radius=radius)
    check_count("k", k)
    ends = torch.tensor([[-2.0], [2.0]], dtype=torch.float64) * radius**2
    low, high = surrogate(loss).many(ends.expand(2, k)).tolist()
    return low, high

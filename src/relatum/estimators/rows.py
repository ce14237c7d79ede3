"""From what a person passes to pairs: settings checked, columns scaled, rows paired."""

from __future__ import annotations

import inspect
import math
import warnings
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Float64, Int64
from sklearn.preprocessing import StandardScaler
from torch import Tensor

from .pairs import Augmentation, ClassPairs, Pairs, pairs_of
from .start import STARTS

__all__ = ["Rows", "check_settings", "scaled", "scaling_of", "warn_alone"]

PAIRINGS = ("rows", "time", "classes", "groups")


@dataclass(frozen=True)
class Rows:
    """Rows as networks see them, and the rule by which they are paired.

    Attributes:
        x: Rows of one side.
        y: Of the other; None if there is one side.
        codes: Classes or groups, as the rule needs them.
        pairing: The rule; see :func:`~relatum.estimators.pairs.pairs_of`.
        noise: Of the copies.
        lag: Of neighbours in time.
    """

    x: Float[Tensor, "n dx"]
    y: Float[Tensor, "n dy"] | None
    codes: Int64[Tensor, " n"] | None
    pairing: str | Augmentation
    noise: float
    lag: int

    def pairs(self, rows: Int64[np.ndarray, " m"] | None = None) -> Pairs:
        """Of all rows, or of some among themselves."""
        some = self if rows is None else self._some(torch.from_numpy(rows))
        return pairs_of(some.pairing, some.x, some.y, some.codes, noise=some.noise, lag=some.lag)

    def held_out(self, rows: Int64[np.ndarray, " m"], fraction: float) -> Pairs | None:
        """Of rows held out, which were this fraction of all; None if there are none."""
        if not len(rows):
            return None
        try:
            return self.pairs(rows)
        except ValueError as error:
            raise ValueError(
                f"of the rows held out: {error}. Raise valid_fraction ({fraction}), or "
                "set it to 0 to train to the end"
            ) from None

    def _some(self, at: Int64[Tensor, " m"]) -> Rows:
        y, codes = (None if part is None else part[at] for part in (self.y, self.codes))
        return replace(self, x=self.x[at], y=y, codes=codes)


def scaling_of(rows: np.ndarray, standardise: bool) -> Float64[np.ndarray, "2 d"]:
    """Means and scales of the columns; 0 and 1 if they are to stay as they are."""
    if not standardise:
        return np.stack([np.zeros(rows.shape[1]), np.ones(rows.shape[1])])
    scaler = StandardScaler().fit(rows.astype(np.float64))
    return np.stack([scaler.mean_, scaler.scale_])


def scaled(rows: np.ndarray, scaling: Float64[np.ndarray, "2 d"]) -> Float[Tensor, "n d"]:
    """The rows in units of their columns."""
    mean, scale = scaling
    return torch.from_numpy((rows - mean) / scale)


def warn_alone(pairs: Pairs, rows: int) -> None:
    """Says how many of the rows to train on have no partner."""
    alone = rows - len(pairs.anchors)
    if alone and isinstance(pairs, ClassPairs):
        warnings.warn(
            f"{alone} of {rows} rows are alone in their class or unlabelled (-1), and have no "
            "partner: they are left out of training",
            UserWarning,
            stacklevel=3,
        )


def check_settings(model: Any, *, one_side: bool) -> None:
    """Refuses settings of :class:`ContrastiveEncoder` that no data could make right.

    Args:
        model: The encoder.
        one_side: Whether rows have no second side.
    """
    if not callable(model.pairing) and model.pairing not in PAIRINGS:
        raise ValueError(
            f"pairing must be one of {', '.join(PAIRINGS)} or a callable, got {model.pairing!r}"
        )
    if model.start not in STARTS:
        raise ValueError(f"start must be one of {', '.join(STARTS)}, got {model.start!r}")
    _check_used(model, one_side)
    for name, least in (
        ("batch_size", 2),
        ("steps", 1),
        ("check_every", 1),
        ("patience", 1),
        ("lag", 1),
    ):
        if getattr(model, name) < least:
            raise ValueError(f"{name} must be at least {least}, got {getattr(model, name)}")
    if model.micro_batch_size is not None and model.micro_batch_size < 1:
        raise ValueError(f"micro_batch_size must be at least 1, got {model.micro_batch_size}")
    if not 0 <= model.valid_fraction < 1:
        raise ValueError(f"valid_fraction must be in [0, 1), got {model.valid_fraction}")
    if not (math.isfinite(model.noise) and model.noise >= 0):
        raise ValueError(f"noise must be a finite number >= 0, got {model.noise}")


def _check_used(model: Any, one_side: bool) -> None:
    """Warns of settings that have no effect, unless they have their defaults.

    No error: a search over several starts may hold the setting of one of them.
    """
    defaults = inspect.signature(type(model)).parameters
    for name, used, owner in (
        ("ridge", model.start == "exact", "start='exact'"),
        ("lag", model.pairing == "time", "pairing='time'"),
        ("noise", model.pairing == "rows" and one_side, "pairing='rows' without a second side"),
    ):
        value = getattr(model, name)
        if not used and value != defaults[name].default:
            said = f"{name} belongs to {owner}: {name}={value} has no effect"
            warnings.warn(said, UserWarning, stacklevel=2)

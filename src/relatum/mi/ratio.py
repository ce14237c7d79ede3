"""The density ratio on its own, with the manners of a scikit-learn estimator."""

from __future__ import annotations

import inspect
import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from jaxtyping import Float64
from torch import Tensor

from ..base import Objective
from .fitting import DEFAULT_OBJECTIVE, CriticName, fit_critic

__all__ = ["DensityRatio"]


class DensityRatio:
    r"""The ratio of a joint density to the product of its marginals, read off a trained critic.

    .. math:: \hat r(x, y) \approx \frac{p(x, y)}{p(x)\, p(y)}

    It is above 1 where x and y are seen together more often than by chance. The mean of
    :math:`\log \hat r` over new pairs is the plug-in estimate of mutual information, for which
    `estimate_mi` adds the interval and warnings.

    A scikit-learn estimator without scikit-learn: the constructor stores its arguments untouched,
    ``fit`` returns the object, what is learned ends in an underscore; ``clone``, ``get_params`` and
    the end of a ``Pipeline`` work.

    Args:
        objective: What the critic maximises, such as ``RPC(1.0, 0.05, 1.0)``, the default.
        critic: "residual", "joint", "separable" or "kernel", as `fit_critic` explains them.
        valid_fraction: Share of the rows, in (0, 1), that tell when to stop.
        seed: Seed of that split, of the initial weights and of the batches.
        options: How it is trained: fields of :class:`relatum.mi.Training`, by name.

    Attributes:
        critic_: The trained critic; its ``notes`` say what a person should know of the training.
        n_features_in_: Columns of x.
        n_targets_: Columns of y.
        feature_names_in_: Names of x's columns, if x was a table with names.

    Example:
        >>> x = np.random.default_rng(0).normal(size=(400, 1))
        >>> y = x + np.random.default_rng(1).normal(size=(400, 1))
        >>> ratio = DensityRatio(seed=1).fit(x, y)
        >>> together, apart = ratio.log_ratio([[2.0], [2.0]], [[2.0], [-2.0]])
        >>> bool(together > apart)
        True
    """

    def __init__(
        self,
        objective: Objective = DEFAULT_OBJECTIVE,
        critic: CriticName = "residual",
        *,
        valid_fraction: float = 0.2,
        seed: int = 0,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        self.objective = objective
        self.critic = critic
        self.valid_fraction = valid_fraction
        self.seed = seed
        self.options = options

    def fit(self, x: Any, y: Any) -> DensityRatio:
        """Trains the critic on pairs.

        Args:
            x: Numbers, (n, d) or (n,): an array, a tensor or a table.
            y: Numbers, one row for each of x.

        Raises:
            ValueError: If the sides are not finite numbers with the same number of rows, a row is
                missing for either part of the split, or ``valid_fraction`` is not in (0, 1).
        """
        names = getattr(x, "columns", None)
        x, y = _pair(x, y)
        if not 0 < self.valid_fraction < 1:
            raise ValueError(f"valid_fraction must be between 0 and 1, got {self.valid_fraction}")
        held = math.ceil(self.valid_fraction * len(x))
        if held < 2 or len(x) - held < 2:
            raise ValueError(
                f"{len(x)} rows cannot be split into {held} to stop by and {len(x) - held} to "
                "train on: each part needs at least 2"
            )
        order = np.random.default_rng(self.seed).permutation(len(x))
        valid, train = order[:held], order[held:]
        self.critic_ = fit_critic(
            x[train],
            y[train],
            valid=(x[valid], y[valid]),
            objective=self.objective,
            critic=self.critic,
            seed=self.seed,
            **(self.options or {}),
        )
        self.n_features_in_, self.n_targets_ = x.shape[1], y.shape[1]
        if names is not None and all(isinstance(name, str) for name in names):
            self.feature_names_in_ = np.asarray(names, dtype=object)
        elif hasattr(self, "feature_names_in_"):
            del self.feature_names_in_
        return self

    def log_ratio(self, x: Any, y: Any) -> Float64[np.ndarray, " n"]:
        r""":math:`\log \hat r` of each pair in nats, the pointwise mutual information.

        Raises:
            ValueError: If the object is not fitted, or the columns are not as many as it saw.
        """
        if not self.__sklearn_is_fitted__():
            raise NotFitted("this DensityRatio is not fitted yet: call fit(x, y) first")
        x, y = _pair(x, y)
        for name, side, seen in (("x", x, self.n_features_in_), ("y", y, self.n_targets_)):
            if side.shape[1] != seen:
                raise ValueError(f"{name} has {side.shape[1]} columns; fit saw {seen}")
        return self.critic_.log_ratio(x, y)

    def ratio(self, x: Any, y: Any) -> Float64[np.ndarray, " n"]:
        r""":math:`\hat r` of each pair, at least 0."""
        values: Float64[np.ndarray, " n"] = np.exp(self.log_ratio(x, y))
        return values

    def score(self, x: Any, y: Any) -> float:
        """Mean log ratio in nats; on rows not fitted, the plug-in of mutual information."""
        return float(self.log_ratio(x, y).mean())

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The constructor's arguments; with `deep`, also those of arguments that have some."""
        found = {name: getattr(self, name) for name in _names(type(self))}
        if deep:
            for name, value in list(found.items()):
                if hasattr(value, "get_params") and not isinstance(value, type):
                    inner = value.get_params()
                    found |= {f"{name}__{key}": item for key, item in inner.items()}
        return found

    def set_params(self, **params: Any) -> DensityRatio:
        """Replaces arguments of the constructor, ``name__inner`` those of an argument.

        Raises:
            ValueError: If there is no such argument.
        """
        for name, value in params.items():
            own, _, inner = name.partition("__")
            if own not in _names(type(self)):
                known = ", ".join(_names(type(self)))
                raise ValueError(f"DensityRatio has no parameter {own!r}; it has {known}")
            if not inner:
                setattr(self, own, value)
            elif hasattr(argument := getattr(self, own), "set_params"):
                argument.set_params(**{inner: value})
            else:
                raise ValueError(
                    f"{name}: {own} is {argument!r}, which has no parameters to set; give a new "
                    f"one with set_params({own}=...)"
                )
        return self

    def __repr__(self) -> str:
        defaults = inspect.signature(type(self)).parameters
        changed = ", ".join(
            f"{name}={value!r}"
            for name, value in self.get_params(deep=False).items()
            if value is not defaults[name].default
        )
        return f"DensityRatio({changed})"

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "critic_")

    def __sklearn_tags__(self) -> Any:
        # Only scikit-learn asks, so it is there.
        from sklearn.utils import InputTags, Tags, TargetTags

        return Tags(
            estimator_type="density_estimator",
            target_tags=TargetTags(required=True, two_d_labels=True, multi_output=True),
            input_tags=InputTags(one_d_array=True),
        )


class NotFitted(ValueError, AttributeError):
    """Raised before ``fit``; of both types that scikit-learn's own such error has."""


def _names(cls: type) -> list[str]:
    return list(inspect.signature(cls).parameters)


def _pair(x: Any, y: Any) -> tuple[Float64[np.ndarray, "n dx"], Float64[np.ndarray, "n dy"]]:
    left, right = _numbers("x", x), _numbers("y", y)
    if len(left) != len(right):
        raise ValueError(
            f"x and y must have one row for each pair, got shapes {left.shape} and {right.shape}"
        )
    return left, right


def _numbers(name: str, value: Any) -> Float64[np.ndarray, "n d"]:
    """A side as float64; classes have no order, so their codes would differ between two calls."""
    if isinstance(value, Tensor):
        value = value.detach().cpu()
        # numpy has no bfloat16.
        value = (value.double() if value.is_floating_point() else value).numpy()
    array = np.asarray(value)
    if array.dtype.kind not in "biuf" or array.ndim not in (1, 2) or 0 in array.shape:
        raise ValueError(
            f"{name} must be numbers of shape (n,) or (n, d), got shape {array.shape} and type "
            f"{array.dtype}; encode classes as columns of 0 and 1"
        )
    table = array.astype(np.float64).reshape(len(array), -1)
    bad = np.argwhere(~np.isfinite(table))
    if len(bad):
        row, column = map(int, bad[0])
        raise ValueError(f"{name} has {table[row, column]} at row {row}, column {column}")
    return table

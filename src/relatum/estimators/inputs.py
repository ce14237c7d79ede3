"""What a person may pass as a side: arrays, tensors, tables; and what is refused."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import torch
from sklearn.utils.validation import check_array, validate_data

from ..mi.columns import aligned

__all__ = ["first_side", "keep_names", "matched", "other_side"]


def first_side(estimator: Any, x: Any, *, reset: bool, least: int = 1) -> np.ndarray:
    """X as float32 or float64, (n, d), with scikit-learn's rules about columns and their names.

    Raises:
        ValueError: If X is no table of finite numbers, or not one with the columns that fit saw.
    """
    table = validate_data(
        estimator, _plain("X", x), reset=reset, dtype=(np.float64, np.float32),
        ensure_all_finite=False, ensure_min_samples=least,
    )  # fmt: skip
    _check_finite("X", table, getattr(estimator, "feature_names_in_", None))
    return np.asarray(table)


def matched(x: Any, other: Any, name: str = "y") -> Any:
    """`other` in the order of x's index, where both are pandas objects; warns if that moved rows.

    Raises:
        ValueError: If the two indexes hold different labels.
    """
    other, notes = aligned(x, other, name)
    for note in notes:
        warnings.warn(note, UserWarning, stacklevel=4)
    return other


def keep_names(estimator: Any, y: Any) -> None:
    """Keeps the names of y's columns as `target_names_in_`, if all are text."""
    names = getattr(y, "columns", None)
    if names is not None and all(isinstance(name, str) for name in names):
        estimator.target_names_in_ = np.asarray(names, dtype=object)
    elif hasattr(estimator, "target_names_in_"):
        del estimator.target_names_in_


def other_side(y: Any, rows: int | None, width: int | None, who: str) -> np.ndarray:
    """The second side as float32 or float64, (n, d); one axis is a column.

    Raises:
        ValueError: If y is None, no table of finite numbers, or has other rows or columns.
    """
    if y is None:
        raise ValueError(
            f"{who} requires y to be passed, but the target y is None: it is the second side, one "
            "row for each of X"
        )
    names = getattr(y, "columns", None)
    table: np.ndarray = check_array(
        _plain("y", y), dtype=(np.float64, np.float32), ensure_all_finite=False, ensure_2d=False,
        input_name="y",
    )  # fmt: skip
    if table.ndim == 1:
        table = table.reshape(-1, 1)
    if table.ndim != 2 or table.shape[1] == 0:
        raise ValueError(f"y must have shape (n,) or (n, d), got {table.shape}")
    if rows is not None and len(table) != rows:
        raise ValueError(
            f"X and y must have one row for each pair, got {rows} and {len(table)} rows"
        )
    if width is not None and table.shape[1] != width:
        raise ValueError(f"y has {table.shape[1]} columns; fit saw {width}")
    _check_finite("y", table, names)
    return table


def _check_finite(name: str, table: np.ndarray, names: Any) -> None:
    """Refuses NaN and infinities, naming the first row and column that has one."""
    # One sum tells almost always, without a copy; it may overflow where no number is infinite.
    with np.errstate(over="ignore", invalid="ignore"):
        if np.isfinite(table.sum()):
            return
    bad = np.argwhere(~np.isfinite(table))
    if not len(bad):
        return
    row, column = (int(at) for at in bad[0])
    what = "NaN, a missing value," if np.isnan(table[row, column]) else f"{table[row, column]}"
    where = column if names is None else repr(names[column])
    raise ValueError(
        f"{name} has {what} at row {row}, column {where} ({len(np.unique(bad[:, 0]))} such rows in "
        "all): drop these rows from both sides, or fill them in"
    )


def _plain(name: str, value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        value = value.detach().cpu()
        # numpy has no bfloat16.
        return (value.float() if value.dtype == torch.bfloat16 else value).numpy()
    if isinstance(value, np.ma.MaskedArray) and np.ma.is_masked(value):
        row = int(np.argwhere(np.ma.getmaskarray(value))[0, 0])
        raise ValueError(f"{name} is masked, first at row {row}: drop such rows from both sides")
    return value

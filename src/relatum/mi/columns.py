"""What a person may pass as the two sides of a mutual information, and how it becomes columns."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float64
from torch import Tensor

__all__ = ["Sides", "aligned", "read_sides"]

# An affine relation holds when what is left of a column is below this part of its deviation: more
# than the rounding of float32, and far below any noise that is meant.
_EXACT = 1e-6


@dataclass(frozen=True)
class Sides:
    """Two sides with one row for each pair.

    Attributes:
        x: The columns of x in float64; strings, categories and booleans as codes 0, 1, ...
        y: The columns of y, likewise.
        x_names: Their names, as the table has them, or "x", or "x0", "x1", ...
        y_names: The names of y's columns.
        x_discrete: Which columns of x are discrete.
        y_discrete: Which columns of y are discrete.
        notes: What is remarkable about the data, in plain words.
    """

    x: Float64[np.ndarray, "n dx"]
    y: Float64[np.ndarray, "n dy"]
    x_names: tuple[str, ...]
    y_names: tuple[str, ...]
    x_discrete: tuple[bool, ...]
    y_discrete: tuple[bool, ...]
    notes: tuple[str, ...] = ()


class _Column(NamedTuple):
    side: str
    name: str
    values: Float64[np.ndarray, " n"]
    discrete: bool
    notes: tuple[str, ...] = ()

    @property
    def constant(self) -> bool:
        return bool(self.values.min() == self.values.max())


def read_sides(x: object, y: object) -> Sides:
    r"""Reads two sides of a sample: arrays, tensors, pandas objects or lists, (n,) or (n, d).

    A column is **discrete** if it holds booleans, strings or categories, or if it holds numbers of
    which there are few and that repeat: at most :math:`\max(20, \sqrt n)` distinct values, each
    occurring twice or more on average. All other columns are continuous. The dtype of numbers says
    nothing: integers may be measurements, and floats may be classes.

    Two pandas objects are matched by index: the same labels in another order are put in the order
    of x; different labels are an error. Nothing is dropped, filled or cut to length.

    Args:
        x: One side.
        y: The other side, with as many rows.

    Raises:
        ValueError: If the numbers of rows differ or are below 2, a side has no column or more than
            two axes, a column is neither numbers nor classes, a value is missing or not finite, or
            two indexes do not match.

    Example:
        >>> sides = read_sides([[0.5, 1], [0.25, 0], [2.5, 1], [1.5, 0]], ["a", "b", "a", "b"])
        >>> sides.y.T, sides.x_names, sides.x_discrete, sides.y_discrete
        (array([[0., 1., 0., 1.]]), ('x0', 'x1'), (False, True), (True,))
    """
    y, notes = aligned(x, y)
    left, right = _table("x", x), _table("y", y)
    _check_shapes(left, right)
    xs, ys = list(_columns("x", left)), list(_columns("y", right))
    x_values, y_values = (np.column_stack([c.values for c in side]) for side in (xs, ys))
    return Sides(
        x=x_values,
        y=y_values,
        x_names=tuple(c.name for c in xs),
        y_names=tuple(c.name for c in ys),
        x_discrete=tuple(c.discrete for c in xs),
        y_discrete=tuple(c.discrete for c in ys),
        notes=(*notes, *_remarks(xs, ys, x_values, y_values)),
    )


def _is_pandas(value: object) -> bool:
    # Without an import: whoever passes a table has pandas, nobody else needs it.
    return hasattr(value, "iloc") and hasattr(value, "index")


def aligned(x: Any, y: Any, name: str = "y") -> tuple[Any, tuple[str, ...]]:
    """`y` (or what `name` calls it) in the order of x's index, where both have one."""
    if not (_is_pandas(x) and _is_pandas(y)) or x.index.equals(y.index):
        return y, ()
    where = f"x and {name} (shapes {x.shape} and {y.shape})"
    alone = {
        "x": x.index.difference(y.index, sort=False),
        name: y.index.difference(x.index, sort=False),
    }
    found = "; ".join(
        f"{len(labels)} labels only in {side}, such as {labels.tolist()[0]!r}"
        for side, labels in alone.items()
        if len(labels)
    )
    if found:
        raise ValueError(
            f"{where} have different indexes: {found}. Take the rows they share "
            f"(x.loc[common], {name}.loc[common]), or drop the labels of both with "
            "reset_index(drop=True) if rows belong together by position"
        )
    if not (x.index.is_unique and y.index.is_unique):
        raise ValueError(
            f"{where} have the same labels in a different order, and some labels repeat, so their "
            "rows cannot be matched: make the indexes unique, or drop them with "
            "reset_index(drop=True) if rows belong together by position"
        )
    return y.loc[x.index], (f"the rows of {name} were put in the order of x's index",)


def _table(side: str, value: Any) -> Any:
    """A pandas object, or an array of one or two axes."""
    if not _is_pandas(value):
        value = _array(side, value)
    if value.ndim not in (1, 2):
        raise ValueError(
            f"{side} must have shape (n,) or (n, d), got {value.shape}: "
            "give each row of it one axis of features"
        )
    if 0 in value.shape[1:]:
        raise ValueError(f"{side} has no columns: its shape is {value.shape}")
    return value


def _array(side: str, value: Any) -> Any:
    if isinstance(value, Tensor):
        value = value.detach().cpu()
        # numpy knows no bfloat16.
        return (value.double() if value.is_floating_point() else value).numpy()
    if isinstance(value, np.ma.MaskedArray) and np.ma.is_masked(value):
        row = int(np.argwhere(np.ma.getmaskarray(value))[0, 0])
        raise ValueError(f"{side} is masked, first at row {row}: drop such rows from both sides")
    if isinstance(value, list | tuple):
        # As objects first: numpy would write the numbers of [1, "a"] as strings.
        try:
            loose = np.array(value)
        except ValueError as error:
            raise ValueError(f"{side} is no table: {error}") from None
        return np.array(value, object) if loose.dtype.kind in "US" else loose
    return np.asarray(value)


def _check_shapes(x: Any, y: Any) -> None:
    shapes = f"got shapes {x.shape} and {y.shape}"
    flat = [side for side, v in (("x", x), ("y", y)) if v.ndim == 2 and v.shape[0] == 1]
    hint = "".join(f". If {s} is one column laid flat, pass its transpose, {s}.T" for s in flat)
    if len(x) != len(y):
        raise ValueError(f"x and y must have one row for each pair, {shapes}{hint}")
    if len(x) < 2:
        raise ValueError(f"x and y must have at least 2 rows, {shapes}{hint}")


def _columns(side: str, table: Any) -> Iterator[_Column]:
    if _is_pandas(table):
        if table.ndim == 1:
            table = table.to_frame(side if table.name is None else table.name)
        for index, label in enumerate(table.columns):
            name = str(label)
            yield _column(side, name, _from_pandas(side, name, table.iloc[:, index]))
    elif table.ndim == 1 or table.shape[1] == 1:
        yield _column(side, side, table.reshape(-1))
    else:
        for index, values in enumerate(table.T):
            yield _column(side, f"{side}{index}", values)


def _from_pandas(side: str, name: str, series: Any) -> Any:
    """The values of a column of a table as an array of numpy's own types."""
    missing = series.isna().to_numpy()
    if missing.any():
        _refuse(side, name, missing, "a missing value")
    if series.dtype.name == "category":
        # Strings, for their codes below; the order of categories is no matter.
        return series.astype(str).to_numpy(object)
    return series.to_numpy(dtype=getattr(series.dtype, "numpy_dtype", None))


def _refuse(side: str, name: str, bad: np.ndarray, what: str) -> None:
    row = int(np.argmax(bad))
    raise ValueError(
        f"{side} column {name!r} has {what}, first at row {row} ({int(bad.sum())} in all): "
        "drop or repair such rows in both sides"
    )


def _column(side: str, name: str, values: Any) -> _Column:
    """One column in float64, and whether it is discrete."""
    if values.dtype.kind == "O":
        strange = np.array([not isinstance(value, str) for value in values])
        if strange.any():
            row = int(np.argmax(strange))
            raise ValueError(
                f"{side} column {name!r} has dtype object, with {values[row]!r} "
                f"({type(values[row]).__name__}) at row {row}: make it all numbers or all strings"
            )
    if values.dtype.kind in "bOUST":
        codes = np.unique(values, return_inverse=True)[1].reshape(-1)
        return _Column(side, name, codes.astype(np.float64), True)
    if values.dtype.kind not in "iuf":
        raise ValueError(
            f"{side} column {name!r} has dtype {values.dtype}, which is neither real numbers nor "
            "classes: convert it first (complex into two columns, dates into a number)"
        )
    numbers = values.astype(np.float64)
    infinite = ~np.isfinite(numbers)
    if infinite.any():
        _refuse(side, name, infinite, str(numbers[int(np.argmax(infinite))]))
    notes: tuple[str, ...] = ()
    if values.dtype.kind in "iu" and bool((np.abs(numbers) > 2.0**53).any()):
        notes = (f"{side} column {name!r} has integers above 2**53, which float64 rounds",)
    n, distinct = len(numbers), len(np.unique(numbers))
    discrete = distinct <= max(20.0, math.sqrt(n)) and 2 * distinct <= n
    return _Column(side, name, numbers, discrete, notes)


def _remarks(xs: list[_Column], ys: list[_Column], x: np.ndarray, y: np.ndarray) -> Iterator[str]:
    """What a person should know of these columns before reading a number."""
    for column in [*xs, *ys]:
        yield from column.notes
        if column.constant:
            yield f"{column.side} column {column.name!r} is constant: it carries no information"
    for side in (xs, ys):
        classes = [c.name for c in side if c.discrete and not c.constant]
        if classes and not all(c.discrete for c in side):
            listed = ", ".join(map(repr, classes))
            yield f"{side[0].side} mixes continuous columns with discrete ones ({listed})"
    if not all(c.discrete for c in [*xs, *ys]):
        joint = np.column_stack([x, y]) + 0.0  # the bytes of -0.0 become those of 0.0
        repeated = len(joint) - len({row.tobytes() for row in joint})
        if repeated:
            yield (
                f"{repeated} of {len(joint)} rows repeat an earlier row in all columns, although "
                "not all columns are discrete: copies tie the two sides together and raise "
                "estimates; drop them, or keep copies in one fold by groups"
            )
    yield from _deterministic(ys, y, "x", x) or _deterministic(xs, x, "y", y)


def _deterministic(
    targets: list[_Column], values: np.ndarray, side: str, other: np.ndarray
) -> list[str]:
    """Continuous columns that are an affine function of the other side."""
    open_ = [i for i, column in enumerate(targets) if not column.discrete and not column.constant]
    n, width = other.shape
    if not open_ or n < width + 3:  # so few rows are fitted exactly by anything
        return []
    # What holds for all rows holds for a few, and these are soon looked at.
    for rows in (4 * width + 50, n):
        part, design = values[:rows, open_], other[:rows]
        part, design = part - part.mean(axis=0), design - design.mean(axis=0)
        basis = np.linalg.qr(design / np.abs(design).max(axis=0).clip(1e-300)).Q
        left = np.linalg.norm(part - basis @ (basis.T @ part), axis=0)
        exact = left <= _EXACT * np.linalg.norm(part, axis=0)
        if not exact.any():
            return []
    return [
        f"{targets[i].side} column {targets[i].name!r} is an affine function of {side}: between "
        "continuous variables such a deterministic relation has infinite mutual information, and "
        "an estimate is a function of the number of rows alone"
        for i, holds in zip(open_, exact, strict=True)
        if holds
    ]

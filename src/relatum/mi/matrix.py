"""Mutual information of every pair of columns, or of each column with a target."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float64

from .columns import Sides, read_sides
from .discrete import discrete, mixed
from .estimate import METHODS, READERS, estimate_mi
from .methods import check_reader
from .reading import ROUNDING

__all__ = ["MIMatrix", "MIRanking", "mutual_information_matrix"]

Progress = Callable[[int, int], None]
"""Called with (done, all) after each pair."""

_SAME = 1 - 1e-12  # a correlation beyond this is an affine relation, up to rounding
_Pair = Callable[[np.ndarray, np.ndarray], float]


@dataclass(frozen=True, eq=False)
class MIMatrix:
    """The mutual information of pairs of columns.

    Attributes:
        values: In nats, (d, d), symmetric; ``numpy.asarray`` of the object gives them.
        names: Of the columns.
        notes: Warnings in plain words.
    """

    values: Float64[np.ndarray, "d d"]
    names: tuple[str, ...]
    notes: tuple[str, ...]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.array(self.values, dtype=dtype)

    def to_frame(self) -> Any:
        """A pandas data frame with names on both sides."""
        import pandas

        return pandas.DataFrame(self.values, index=self.names, columns=self.names)


@dataclass(frozen=True, eq=False)
class MIRanking:
    """The mutual information of each column with a target.

    Attributes:
        values: In nats, (d,).
        p_values: Of independence, by permutation, (d,); NaN where none was asked for.
        q_values: Benjamini-Hochberg: taking all columns with q <= 0.1 gives at most 10 % of false
            ones, in expectation, for columns that are independent or positively dependent.
        names: Of the columns.
        notes: Warnings in plain words.
    """

    values: Float64[np.ndarray, " d"]
    p_values: Float64[np.ndarray, " d"]
    q_values: Float64[np.ndarray, " d"]
    names: tuple[str, ...]
    notes: tuple[str, ...]

    @property
    def order(self) -> np.ndarray:
        """Positions of the columns, the largest value first."""
        return np.argsort(-self.values, kind="stable")

    def to_frame(self) -> Any:
        """A pandas data frame, the largest value first."""
        import pandas

        columns = {"mi": self.values, "p_value": self.p_values, "q_value": self.q_values}
        return pandas.DataFrame(columns, index=self.names).iloc[self.order]


def mutual_information_matrix(
    columns: Any,
    method: str = "ksg",
    *,
    target: Any = None,
    permutations: int = 199,
    seed: int = 0,
    progress: Progress | None = None,
    **options: Any,
) -> MIMatrix | MIRanking:
    r"""Mutual information of all pairs of columns, for the screening of features.

    Two discrete columns are estimated by ``discrete``, one discrete and one continuous by
    ``mixed``, two continuous ones by `method`; :func:`~relatum.mi.columns.read_sides` says which
    are which. A constant column has 0 with everything. Only the upper half is estimated and then
    mirrored.

    The diagonal is :math:`I(X; X)`: the entropy of a discrete column, as ``discrete`` estimates
    it, and infinite for a continuous one, whatever an estimator would say of it.

    Pairs are one at a time: a column that tells something only together with another (as in
    exclusive or) has 0, and copies of one informative column all have the same. What an estimator
    has to remark on a single pair is not repeated here: `estimate_mi` says it.

    Args:
        columns: A table, (n, d): array, tensor or data frame.
        method: For pairs of continuous columns. One without training answers in milliseconds.
        target: One column, (n,); then only pairs of a column and the target are estimated.
        permutations: With a target: random orders of it for the p-values, the same ones for all
            columns, p = (1 + exceedances) / (1 + permutations); 0: none.
        seed: Seed of the permutations, and of training.
        progress: Called with (done, all) after each pair.
        **options: Arguments of the method.

    Returns:
        A :class:`MIMatrix`; with a target a :class:`MIRanking`. In nats.

    Raises:
        ValueError: If the columns cannot be used, the method is unknown, or the target has more
            than one column.

    References:
        Controlling the false discovery rate (Benjamini & Hochberg, 1995), procedure 1.
        https://doi.org/10.1111/j.2517-6161.1995.tb02031.x

    Example:
        >>> x = np.random.default_rng(0).normal(size=(500, 2))
        >>> table = np.column_stack([x, x[:, 0] + x[:, 1]])
        >>> mutual_information_matrix(table).values.round(1) + 0.0
        array([[inf, 0. , 0.4],
               [0. , inf, 0.4],
               [0.4, 0.4, inf]])
    """
    if method not in METHODS:
        raise ValueError(f"unknown method {method!r}; known are {', '.join(METHODS)}")
    estimate = _estimator(method, seed, options)
    if target is not None:
        return _ranking(columns, target, estimate, permutations, seed, progress)
    sides = read_sides(columns, columns)
    x, is_discrete, names = sides.x, sides.x_discrete, sides.x_names
    d = x.shape[1]
    values = np.zeros((d, d))
    pairs = [(i, j) for i in range(d) for j in range(i, d)]
    for done, (i, j) in enumerate(pairs):
        if i == j and not is_discrete[i]:
            values[i, i] = math.inf
        else:
            kind = (is_discrete[i], is_discrete[j])
            with _named(names[i], names[j]):
                values[i, j] = values[j, i] = _value(x[:, [i]], x[:, [j]], kind, estimate)
        if progress is not None:
            progress(done + 1, len(pairs))
    return MIMatrix(values, names, tuple(_matrix_notes(x, is_discrete, names)))


def _estimator(method: str, seed: int, options: dict[str, Any]) -> _Pair:
    """The method as a function of two columns; those without training need no interval here."""
    if method in READERS:
        check_reader(method, options)
        return lambda x, y: float(READERS[method](x, y, **options).value)
    return lambda x, y: estimate_mi(x, y, method=method, seed=seed, permutations=0, **options).value


@contextmanager
def _named(*names: str) -> Iterator[None]:
    """Errors of an estimator, which knows x and y alone, with the names of the columns."""
    try:
        yield
    except ValueError as error:
        raise ValueError(f"columns {' and '.join(map(repr, names))}: {error}") from error


def _value(x: np.ndarray, y: np.ndarray, kind: tuple[bool, bool], estimate: _Pair) -> float:
    if (x == x[0]).all() or (y == y[0]).all():
        return 0.0
    if all(kind):
        return float(discrete(x, y).value)
    return float(mixed(x, y).value) if any(kind) else estimate(x, y)


def _matrix_notes(
    x: np.ndarray, is_discrete: tuple[bool, ...], names: tuple[str, ...]
) -> Iterator[str]:
    yield from _constant(x, names)
    kept = [i for i, known in enumerate(is_discrete) if not known and np.ptp(x[:, i]) > 0]
    if kept:
        yield (
            "the information of a continuous column about itself is infinite; so stands the "
            "diagonal of such columns"
        )
    # One column would make a correlation without axes.
    same = np.abs(np.corrcoef(x[:, kept].T)) > _SAME if len(kept) > 1 else np.zeros((0, 0))
    for a, b in np.argwhere(np.triu(same, 1)):
        yield (
            f"{names[kept[a]]!r} and {names[kept[b]]!r} are affine functions of each other: their "
            "information is infinite, and the value shown depends on the number of rows alone"
        )


def _constant(x: np.ndarray, names: tuple[str, ...]) -> Iterator[str]:
    for column, name in zip(x.T, names, strict=True):
        if (column == column[0]).all():
            yield f"column {name!r} is constant: it carries no information"


def _ranking(
    columns: Any,
    target: Any,
    estimate: _Pair,
    permutations: int,
    seed: int,
    progress: Progress | None,
) -> MIRanking:
    from scipy.stats import (
        false_discovery_control,  # here: it alone would be a fifth of `import relatum`
    )

    if permutations < 0:
        raise ValueError(f"permutations must not be negative, got {permutations}")
    sides = read_sides(columns, target)
    if sides.y.shape[1] != 1:
        raise ValueError(f"target must be one column, got {sides.y.shape[1]}")
    d, n = sides.x.shape[1], len(sides.x)
    rng = np.random.default_rng(seed)
    orders = [rng.permutation(n) for _ in range(permutations)]
    values, p_values = np.zeros(d), np.full(d, math.nan)
    for i in range(d):
        x, kind = sides.x[:, [i]], (sides.x_discrete[i], sides.y_discrete[0])
        with _named(sides.x_names[i], sides.y_names[0]):
            values[i] = _value(x, sides.y, kind, estimate)
        if permutations:
            chance = [_value(x, sides.y[order], kind, estimate) for order in orders]
            reached = values[i] - ROUNDING
            p_values[i] = (1 + sum(c >= reached for c in chance)) / (1 + permutations)
        if progress is not None:
            progress(i + 1, d)
    q_values = false_discovery_control(p_values) if permutations else p_values.copy()
    return MIRanking(values, p_values, q_values, sides.x_names, _ranking_notes(sides, permutations))


def _ranking_notes(sides: Sides, permutations: int) -> tuple[str, ...]:
    d, notes = len(sides.x_names), sides.notes
    if permutations and d / (1 + permutations) > 0.05:
        notes += (
            f"with {permutations} permutations no p-value is below {1 / (1 + permutations):.2g}, "
            f"so that one column alone among {d} cannot reach q = 0.05: take at least "
            f"{20 * d - 1} permutations",
        )
    return notes

"""Mutual information where a side has classes: tables of counts, and classes against numbers."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Literal, NamedTuple, get_args

import numpy as np
from jaxtyping import Float64, Int64
from scipy.special import digamma

from .neighbours import copies, inside, kth_distance, remarks
from .reading import Reading
from .scaling import standardised

__all__ = ["Correction", "discrete", "histogram", "mixed"]

Correction = Literal["miller-madow", "none"]

_MOST_CLASSES = 0.9  # part of the rows; with more, values are measurements and not classes
_ROWS_PER_CELL = 5
# Measured deviation of `mixed` over samples, in units of what independent summands give.
_SPREAD, _SPREAD_PER_K = 1.05, 0.02


class _Classes(NamedTuple):
    of_row: Int64[np.ndarray, " n"]
    counts: Int64[np.ndarray, " c"]


def discrete(
    x: Float64[np.ndarray, "n dx"],
    y: Float64[np.ndarray, "n dy"],
    *,
    correction: Correction = "miller-madow",
) -> Reading:
    r"""Mutual information of classes, from the table of their counts.

    .. math:: \hat I = \sum_{a,b} \frac{n_{ab}}n \log \frac{n\, n_{ab}}{n_a n_b}
              + \frac{(K_x - 1) + (K_y - 1) - (K_{xy} - 1)}{2n}

    where a class is a distinct row of a side and K counts the classes, and pairs of classes, that
    occur. The second term is the Miller-Madow correction of the three entropies; without it,
    independent sides read about :math:`(K_x - 1)(K_y - 1) / 2n` nats. The influence of a row is
    the logarithm at its pair of classes, plus the correction.

    The standard error is the larger of that of the influences and
    :math:`\sqrt{(K_x - 1)(K_y - 1) / 2} / n`, which is the chi-square law of independent sides.

    Args:
        x: One side; several columns are one joint class.
        y: The other side.
        correction: "miller-madow" or "none".

    Returns:
        A plug-in, in nats; with the correction it may be negative. The pointwise values are without
        the correction. The ceiling is the smaller of the two (corrected) entropies, which are in
        ``settings``.

    Raises:
        ValueError: If the correction is unknown, or almost every row of a side is a class of its
            own, as with measurements, where every answer would be near log n.

    References:
        Note on the bias of information estimates (Miller, 1955); Estimation of entropy and mutual
        information (Paninski, 2003), section 4. https://doi.org/10.1162/089976603321780272

    Example:
        >>> x, y = np.array([[0.0], [0], [1], [1], [2]]), np.array([[0.0], [0], [1], [1], [1]])
        >>> round(discrete(x, y, correction="none").value, 6)
        0.673012
    """
    if correction not in get_args(Correction):
        raise ValueError(f"correction must be one of {get_args(Correction)}, got {correction!r}")
    for name, side in (("x", x), ("y", y)):
        found = len(_classes(side).counts)
        if found > _MOST_CLASSES * len(side) and len(side) > 2:
            raise ValueError(
                f"discrete found {found} classes of {name} in {len(side)} rows, so that almost "
                "every row is a class of its own: use ksg for measurements, or histogram for bins"
            )
    return _from_classes(_classes(x), _classes(y), correction)


def _classes(rows: Float64[np.ndarray, "n d"]) -> _Classes:
    _, of_row, counts = np.unique(rows + 0.0, axis=0, return_inverse=True, return_counts=True)
    return _Classes(of_row.reshape(-1), counts)


def _from_classes(x: _Classes, y: _Classes, correction: Correction) -> Reading:
    n = len(x.of_row)
    cells, of_pair, counts = np.unique(
        x.of_row * len(y.counts) + y.of_row, return_inverse=True, return_counts=True
    )
    pairs = _Classes(of_pair, counts)
    k_x, k_y, k_xy = len(x.counts), len(y.counts), len(cells)
    corrected = correction == "miller-madow"
    shift = (k_x + k_y - k_xy - 1) / (2 * n) if corrected else 0.0
    products = x.counts[x.of_row].astype(np.float64) * y.counts[y.of_row]
    pointwise = np.log(n * pairs.counts[pairs.of_row] / products)
    entropies = [_entropy(side, corrected) for side in (x, y)]
    independent = (k_x - 1) * (k_y - 1) / (2 * n**2)
    notes: tuple[str, ...] = ()
    if k_x * k_y > n:
        notes = (
            f"{k_x} x {k_y} classes are {k_x * k_y} cells for {n} rows: the table is mostly empty, "
            "and the value is most likely too high; merge rare classes",
        )
    terms = pointwise + shift
    return Reading(
        value=float(terms.mean()),
        terms=terms,
        pointwise=pointwise,
        kind="plug-in",
        ceiling=min(entropies),
        notes=notes,
        standard_error=math.sqrt(max(float(terms.var()) / n, independent)),
        settings={
            "correction": correction,
            "classes_x": k_x,
            "classes_y": k_y,
            "entropy_x": entropies[0],
            "entropy_y": entropies[1],
        },
    )


def _entropy(classes: _Classes, corrected: bool) -> float:
    n = len(classes.of_row)
    p = classes.counts / n
    return float(-(p * np.log(p)).sum()) + ((len(p) - 1) / (2 * n) if corrected else 0.0)


def histogram(
    x: Float64[np.ndarray, "n dx"],
    y: Float64[np.ndarray, "n dy"],
    *,
    bins: int | None = None,
    correction: Correction = "miller-madow",
) -> Reading:
    r"""Mutual information of binned columns, :func:`discrete` on bins of equal mass.

    Column values become :math:`\lfloor b \cdot \#\{\text{smaller values}\} / n \rfloor`, so that
    only their order matters; equal values share a bin, and a column of at most b distinct values
    is left as it is. Binning loses information: what is estimated is at most the mutual information
    and at most the entropy of the bins, the ceiling.

    Args:
        x: One side.
        y: The other side.
        bins: Bins b of each column; by default :math:`\lfloor (n / 5)^{1 / (d_x + d_y)} \rfloor`,
            five rows for each cell of the table.
        correction: As in :func:`discrete`.

    Returns:
        A plug-in, in nats.

    Raises:
        ValueError: If bins is below 2, or if there are more cells than rows; by default, if there
            are fewer than five rows for each of :math:`2^{d_x + d_y}` cells.

    References:
        Measuring nonlinear dependence in time-series (Fraser & Swinney, 1986), section III, for
        bins of equal mass. https://doi.org/10.1103/PhysRevA.33.1134

    Example:
        >>> x = np.arange(40.0)[:, None]
        >>> reading = histogram(x, x**3, bins=4, correction="none")
        >>> round(reading.value, 6), round(reading.ceiling, 6)  # log 4
        (1.386294, 1.386294)
    """
    n, columns = len(x), x.shape[1] + y.shape[1]
    if bins is None:
        # The small push keeps exact roots from rounding below themselves.
        bins = int((n / _ROWS_PER_CELL) ** (1 / columns) + 1e-9)
        if bins < 2:
            raise ValueError(
                f"histogram needs {_ROWS_PER_CELL * 2**columns} rows for 2 bins of each of "
                f"{x.shape[1]} + {y.shape[1]} columns, got {n}: use ksg or gaussian"
            )
    if bins < 2:
        raise ValueError(f"bins must be at least 2, got {bins}")
    left, right = _binned(x, bins), _binned(y, bins)
    cells = math.prod(len(np.unique(column)) for side in (left, right) for column in side.T)
    if cells > n:
        raise ValueError(
            f"bins={bins} makes {cells} cells of {x.shape[1]} + {y.shape[1]} columns, more than "
            f"the {n} rows can fill: take fewer bins, or use ksg or gaussian"
        )
    reading = _from_classes(_classes(left), _classes(right), correction)
    return Reading(**{**vars(reading), "settings": {"bins": bins, **reading.settings}})


def _binned(x: np.ndarray, bins: int) -> np.ndarray:
    columns = []
    for column in x.T:
        values, codes = np.unique(column, return_inverse=True)
        if len(values) > bins:
            codes = np.searchsorted(np.sort(column), column) * bins // len(column)
        columns.append(codes.reshape(-1))
    return np.column_stack(columns).astype(np.float64)


def mixed(x: Float64[np.ndarray, "n dx"], y: Float64[np.ndarray, "n dy"], *, k: int = 3) -> Reading:
    r"""Mutual information of classes on one side and numbers on the other, by neighbours.

    .. math:: \hat I = \psi(n) + \frac1n \sum_i \bigl[\psi(k_i) - \psi(n_{c_i}) - \psi(m_i)\bigr]

    Class :math:`c_i` of row i has :math:`n_{c_i}` rows; :math:`m_i` counts the rows of any class
    that are nearer than the :math:`k_i`-th nearest row of its own class, itself included. Numbers
    are standardised. The side with fewer distinct rows is the one of classes, so that the value is
    the same with x and y swapped.

    :math:`k_i = k`, or :math:`n_{c_i} - 1` in a smaller class (a note says so). The only row of a
    class has no neighbour to ask: such rows are left out with a note, n does not count them, and
    their terms are the value itself, their pointwise value NaN. Copies: as in ``ksg``; and as there
    the terms are the summands drawn apart, here by 1.05 + 0.02 k.

    Args:
        x: Classes or numbers, one or several columns.
        y: The other of the two.
        k: Which neighbour, k >= 1.

    Returns:
        A difference of entropies, in nats; may be negative. The ceiling is
        :math:`\psi(n) - \frac1n \sum_i \psi(n_{c_i})`, about the entropy of the classes.

    Raises:
        ValueError: If k is below 1, no class has two rows, or neither side has classes.

    References:
        Mutual information between discrete and continuous data sets (Ross, 2014), equation 2.
        https://doi.org/10.1371/journal.pone.0087357

    Example:
        >>> classes = np.repeat([[0.0], [1.0]], 50, axis=0)
        >>> numbers = np.arange(100.0)[:, None]
        >>> round(mixed(classes, numbers).value, 3)  # log 2 = 0.693: the classes lie apart
        0.687
    """
    n = len(x)
    left, right = _classes(x), _classes(y)
    swap = len(left.counts) > len(right.counts)
    classes, numbers = (right, x) if swap else (left, y)
    _check_mixed(classes, (y if swap else x)[0], k)
    kept = classes.counts[classes.of_row] > 1
    of_row, numbers = classes.of_row[kept], standardised(numbers[kept])
    size = classes.counts[of_row]
    neighbours, radius = np.minimum(k, size - 1), np.empty(len(of_row))
    for label in np.unique(of_row):
        rows = np.flatnonzero(of_row == label)
        own = numbers[rows]
        radius[rows] = kth_distance(own, int(neighbours[rows[0]]))
        at_once = rows[radius[rows] == 0]
        if len(at_once):
            neighbours[at_once] = copies(own)[radius[rows] == 0]
    local = (
        digamma(len(of_row)) + digamma(neighbours) - digamma(size)
        - digamma(inside(numbers, radius))
    )  # fmt: skip
    value = float(local.mean())
    terms, pointwise = np.full(n, value), np.full(n, np.nan)
    pointwise[kept] = local
    terms[kept] += (_SPREAD + _SPREAD_PER_K * k) * (local - value)
    return Reading(
        value=value,
        terms=terms,
        pointwise=pointwise,
        kind="difference",
        ceiling=float(digamma(len(of_row)) - digamma(size).mean()),
        notes=(*_mixed_notes(classes.counts, k), *remarks(radius, str(numbers.shape[1]))),
        settings={"k": k, "classes": "y" if swap else "x", "rows_used": len(of_row)},
    )


def _check_mixed(classes: _Classes, first: np.ndarray, k: int) -> None:
    n, found = len(classes.of_row), len(classes.counts)
    if k < 1:
        raise ValueError(f"k must be at least 1, got {k}")
    if found == n:
        raise ValueError(
            f"mixed needs classes of two rows or more, but each of the {n} rows is the only one of "
            f"its class, such as class {first.tolist()} (n={n}, k={k}): give more rows, or use ksg "
            "if neither side has classes"
        )
    if 2 * found > n and n > 4:
        raise ValueError(
            f"mixed needs a side of classes, but each side has {found} or more distinct rows "
            f"(n={n}, k={k}): use ksg for two sides of numbers"
        )


def _mixed_notes(counts: np.ndarray, k: int) -> Iterator[str]:
    dropped, small = int((counts == 1).sum()), int(((counts > 1) & (counts <= k)).sum())
    if dropped:
        yield f"{dropped} rows that are the only one of their class were left out"
    if small:
        yield f"{small} classes have at most k={k} rows: k is their rows less one there"

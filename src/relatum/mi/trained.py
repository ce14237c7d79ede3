"""Cross-fitted readings: every row is read by a critic that has not seen it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float64

from .doe import FittedDoE, fit_doe
from .fitted import FittedCritic
from .fitting import fit_critic
from .gaussian import gaussian
from .influence import influence_plug_in
from .margins import NormalScores
from .methods import DOE, Trained, trained_method
from .reading import ROUNDING, Reading
from .splits import Split
from .start import Side

__all__ = ["CrossFit", "cross_fitted"]

_SHIFTS = 512  # of the held-out rows, at most, that give negatives
_LEARNED = 1000  # rows trained on, at most, that are read again
_ROWS = 10  # to train on, at least
_CLEAR = 2.0  # standard errors that the Gaussian part must be worth to be taken in closed form


class CrossFit(NamedTuple):
    """A reading of all rows, and what only training can tell.

    Attributes:
        reading: Of the held-out rows.
        train_value: The same reading on rows that were trained on, in nats.
        p_value: Of independence, by shifts of the held-out rows; None where none were asked for.
        permutations: How many shifts there were.
    """

    reading: Reading
    train_value: float
    p_value: float | None
    permutations: int


class _Fold(NamedTuple):
    reading: Reading
    train_value: float
    shifted: Float64[np.ndarray, " b"]  # mean log ratio in the true order, then by shifts
    share: float
    gaussian: Float64[np.ndarray, " m"]
    notes: tuple[str, ...]


def cross_fitted(
    x: Side,
    y: Side,
    method: str,
    splits: Sequence[Split],
    *,
    seed: int,
    permutations: int = 0,
    block_length: int | None = None,
    progress: Callable[[int, int], None] | None = None,
    **options: Any,
) -> CrossFit:
    r"""Fits once for each split and reads its test rows.

    The value is the mean of all rows' terms. Negatives of a test row are other test rows, by shifts
    of their order (a random one, unless rows are a series); shifts also give the p-value: under
    independence, positives are exchangeable with any of them.

    The start of an RPC critic holds a share s of a Gaussian log ratio. Where that ratio is clearly
    worth something on new rows, its mean is not read but known in closed form:

    .. math:: \hat I = E_P\big[\log \hat r - s \log \hat r_G\big] + s \hat I_G

    with :math:`\hat I_G` the unbiased Gaussian estimate from the normal scores of all rows. For the
    true ratios this is an identity whatever the law, since :math:`E_P \log r_G` depends on second
    moments alone; it saves the loss of a Gaussian fit to few rows, about :math:`d_x d_y / 2n` nats.

    Args:
        x: One side.
        y: The other.
        method: A name of ``TRAINED`` or ``DOE``.
        splits: Train, validation and test rows; test parts hold each row once.
        seed: Of fits and of the order of shifts.
        permutations: Shifts for the p-value.
        block_length: For a series: shifts keep its order, and are no shorter than this, since
            rows that near depend on each other.
        progress: Told (fits done, fits in all).
        options: Of the fit, by name, and of :func:`~relatum.mi.methods.relative_method` for rpc.
    """
    fit = _fitter(method, options)
    fewest = min(len(split.train) for split in splits)
    if fewest < _ROWS:
        raise ValueError(
            f"{method} trains on {fewest} of {len(x)} rows in a fold, and needs {_ROWS} or more: "
            "give more rows, or use gaussian, ksg or discrete, which train nothing"
        )
    folds = []
    for index, split in enumerate(splits):
        if progress is not None:
            progress(index, len(splits))
        folds.append(_fold(x, y, split, fit, seed + index, permutations, block_length))
    if progress is not None:
        progress(len(splits), len(splits))
    share, part = (
        _by_row(splits, [getattr(fold, name) for fold in folds]) for name in ("share", "gaussian")
    )
    reading = _in_closed_form(_whole(folds, splits), x, y, share, part)
    reading = replace(reading, standard_error=_with_training(reading, splits))
    p_value, count = _p_value(folds, splits)
    train = float(np.mean([fold.train_value for fold in folds]))
    return CrossFit(reading, train, p_value, count)


def _whole(folds: Sequence[_Fold], splits: Sequence[Split]) -> Reading:
    """One reading of all rows from those of the folds."""
    readings = [fold.reading for fold in folds]
    terms = _by_row(splits, [reading.terms for reading in readings])
    pointwise = None
    if readings[0].pointwise is not None:
        each = [math.nan if r.pointwise is None else r.pointwise for r in readings]
        pointwise = _by_row(splits, each)
    return replace(
        readings[0],
        value=float(terms.mean()),
        terms=terms,
        pointwise=pointwise,
        ceiling=_ceiling(folds, splits),
        notes=_gathered([(*fold.reading.notes, *fold.notes) for fold in folds]),
        counts=_summed([reading.counts for reading in readings]),
    )


def _by_row(
    splits: Sequence[Split], values: Sequence[np.ndarray | float]
) -> Float64[np.ndarray, " n"]:
    """Values of the test rows of each split, or one for all of them, in the order of the rows."""
    every = np.empty(sum(len(split.test) for split in splits))
    for split, value in zip(splits, values, strict=True):
        every[split.test] = value
    return every


_Fit = Callable[..., tuple[FittedCritic | FittedDoE, Trained | None]]


def _fitter(method: str, options: dict[str, Any]) -> _Fit:
    for name in ("family", "objective", "valid"):
        if name in options:
            raise ValueError(
                f"{name!r} is no option of method {method!r}, which sets it itself; DensityRatio "
                "takes any objective"
            )
    if method in DOE:
        family = DOE[method]

        def fit_both(x: Side, y: Side, valid: Any, seed: int) -> tuple[FittedDoE, None]:
            return fit_doe(x, y, valid=valid, family=family, seed=seed, **options), None

        return fit_both
    how, given = trained_method(method, options)

    def fit_one(x: Side, y: Side, valid: Any, seed: int) -> tuple[FittedCritic, Trained]:
        return fit_critic(x, y, valid=valid, objective=how.objective(), seed=seed, **given), how

    return fit_one


def _fold(
    x: Side, y: Side, split: Split, fit: _Fit, seed: int, permutations: int, block: int | None
) -> _Fold:
    train, valid, test = split
    fitted, how = fit(x[train], y[train], (x[valid], y[valid]), seed)
    random = np.random.default_rng(seed)
    order = random.permutation(len(test)) if block is None else np.arange(len(test))
    gap = block or 1
    reading, shifted = _read(fitted, how, x[test[order]], y[test[order]], permutations, random, gap)
    # No more rows than are held out: ceilings and biases of bounds go by their number.
    size = min(len(train), len(test), _LEARNED)
    few = train[np.linspace(0, len(train) - 1, size).astype(int)]
    on_train, _ = _read(fitted, how, x[few], y[few], 0, random)
    back = np.argsort(order)
    reading = replace(
        reading,
        terms=reading.terms[back],
        pointwise=None if reading.pointwise is None else reading.pointwise[back],
    )
    share, part = 0.0, np.zeros(len(test))
    if how is not None and how.plug_in and isinstance(fitted, FittedCritic):
        share, part = fitted.gaussian_share, fitted.gaussian_log_ratio(x[test], y[test])
    return _Fold(reading, on_train.value, shifted, share, part, fitted.notes)


def _read(
    fitted: FittedCritic | FittedDoE,
    how: Trained | None,
    x: Side,
    y: Side,
    permutations: int,
    random: np.random.Generator,
    gap: int = 1,
) -> tuple[Reading, Float64[np.ndarray, " b"]]:
    """The reading of rows in their order, and the means of log ratios of rows shifted by a gap."""
    n = len(x)
    read = 0 if how is None or how.plug_in else _SHIFTS  # whatever the p-value asks for beyond
    shifts = (random.permutation(n + 1 - 2 * gap) + gap)[: max(read, permutations)]
    if isinstance(fitted, FittedDoE):
        positives = fitted.log_ratio(x, y)
        logs = [fitted.log_ratio(x, np.roll(y, -shift, 0)) for shift in shifts]
        negatives = np.stack(logs, 1) if logs else np.empty((n, 0))
    else:
        every = fitted.shifted(x, y, np.concatenate([[0], shifts]))
        positives, negatives = every[:, 0], every[:, 1:]
    means = np.concatenate([[positives.mean()], negatives.mean(0)[:permutations]])
    if how is None:
        return replace(influence_plug_in(positives), kind="difference"), means
    candidates = (np.arange(n)[:, None] + shifts[:read]) % n
    return how.read(positives, negatives[:, :read], candidates), means


def _in_closed_form(
    reading: Reading, x: Side, y: Side, share: np.ndarray, part: np.ndarray
) -> Reading:
    """The Gaussian part of log r̂ replaced by its unbiased estimate, where it is worth it."""
    error = part.std(ddof=1) / math.sqrt(len(part))
    if not (share.any() and part.mean() > _CLEAR * error):
        return reading
    try:
        whole = gaussian(NormalScores.fit(x)(x), NormalScores.fit(y)(y))
    except ValueError:  # too few rows for the columns, or columns that depend on each other
        return reading
    terms = reading.terms + share * (whole.terms - part)
    # In many columns the closed form knows more of its error than its terms show.
    own, n = whole.standard_error or 0.0, len(terms)
    beyond = share.mean() ** 2 * max(0.0, own**2 - whole.terms.var(ddof=1) / n)
    return replace(
        reading,
        value=float(terms.mean()),
        terms=terms,
        standard_error=math.sqrt(terms.var(ddof=1) / n + beyond) if beyond > 0 else None,
        settings={**reading.settings, "gaussian_part_nats": whole.value},
    )


def _with_training(reading: Reading, splits: Sequence[Split]) -> float:
    """The standard error of rows or that of folds, whichever is larger.

    Rows alone do not tell how differently critics come out that were trained on other rows; the
    means of folds, each read by a critic of its own, do.
    """
    n, value = len(reading.terms), reading.terms.mean()
    of_rows = reading.standard_error or reading.terms.std(ddof=1) / math.sqrt(n)
    shares = np.array([len(split.test) / n for split in splits])
    means = np.array([reading.terms[split.test].mean() for split in splits])
    of_folds = math.sqrt((shares**2 * (means - value) ** 2).sum() * len(splits) / (len(splits) - 1))
    return max(float(of_rows), of_folds)


def _p_value(folds: Sequence[_Fold], splits: Sequence[Split]) -> tuple[float | None, int]:
    """Of the mean log ratio of positives among those of shifted rows."""
    count = min(len(fold.shifted) for fold in folds) - 1
    if count == 0:
        return None, 0
    # Row-weighted sums over folds: column 0 is what was seen.
    means = sum(
        len(split.test) * fold.shifted[: count + 1]
        for fold, split in zip(folds, splits, strict=True)
    )
    seen, shifted = np.split(np.asarray(means), [1])
    return (1 + int((shifted >= seen - ROUNDING).sum())) / (1 + count), count


def _summed(counts: Sequence[Mapping[str, int]]) -> dict[str, int]:
    return {name: sum(count[name] for count in counts) for name in counts[0]}


def _ceiling(folds: Sequence[_Fold], splits: Sequence[Split]) -> float | None:
    """What the mean of all rows cannot exceed: folds of more rows have higher ceilings."""
    values = [fold.reading.ceiling for fold in folds]
    if any(value is None for value in values):
        return None
    return float(np.average(np.array(values, float), weights=[len(split.test) for split in splits]))


def _gathered(notes: Sequence[tuple[str, ...]]) -> tuple[str, ...]:
    """Each note once, with in how many fits it came."""
    every = [note for some in notes for note in some]
    return tuple(
        note if every.count(note) == 1 else f"{note} (in {every.count(note)} of {len(notes)} fits)"
        for note in dict.fromkeys(every)
    )

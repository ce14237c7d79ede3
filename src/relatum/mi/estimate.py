"""The front door: two arrays in, mutual information out."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from .columns import Sides, aligned, read_sides
from .intervals import Interval, bootstrap, check_resampling
from .methods import DOE, METHODS, READERS, TRAINED, check_reader
from .reading import ROUNDING, Reading
from .remarks import remarks
from .result import MIEstimate
from .splits import Split, cross_fit
from .trained import cross_fitted

__all__ = ["METHODS", "READERS", "estimate_mi"]

Progress = Callable[[int, int], None]
"""Told (parts done, parts in all)."""

_FOLDS, _FEW_FOLDS, _MANY_ROWS = 5, 2, 10_000


def estimate_mi(
    x: Any,
    y: Any,
    method: str = "rpc",
    *,
    seed: int = 0,
    level: float = 0.95,
    folds: int | None = None,
    valid_fraction: float = 0.2,
    groups: Sequence[object] | np.ndarray | None = None,
    block_length: int | None = None,
    permutations: int = 199,
    seeds: int = 1,
    resamples: int = 1000,
    unit: str = "nats",
    progress: Progress | None = None,
    **options: Any,
) -> MIEstimate:
    r"""Mutual information of two sets of columns, :math:`I = E_P \log \frac{p(x, y)}{p(x) p(y)}`.

    Trained methods are cross-fitted: each row is read by a critic that was trained on other rows
    and stopped by yet others, so the value is of held-out rows and uses every row once. Nothing is
    ever chosen by the truth or by the rows that are read. (The Gaussian part of rpc's ratio is
    known in closed form from all rows, free of bias: :func:`relatum.mi.trained.cross_fitted`.)

    Args:
        x: One side, (n,) or (n, d): array, tensor, list or pandas object. Two pandas objects are
            matched by index.
        y: The other side, one row for each of x.
        method: A name of ``METHODS``. ``"rpc"`` for most; ``"ksg"`` for a few continuous columns;
            ``"gaussian"`` where dependence is linear; ``"discrete"`` and ``"mixed"`` for classes.
        seed: Of splits, trainings, resampling and permutations; the same seed gives the same
            number.
        level: Nominal coverage of the interval.
        folds: Fits of trained methods; default 5, and 2 from 10,000 rows on.
        valid_fraction: Share of the rows outside a test part that decides when to stop.
        groups: A label for each row, such as the person it comes from; rows of a group are never
            parted, and whole groups are resampled. A pandas object is matched by x's index. The
            marginals are those of all rows, so a row's negatives include its own group's.
        block_length: For time series: rows over which the series depends on itself. Test parts are
            stretches, neighbours of a stretch are not trained on, and blocks are resampled.
        permutations: For the p-value of independence; 0 leaves it out. With groups there is none,
            and a series has no more than its shifts by a block or more.
        seeds: Trainings with different seeds, which are averaged; their spread is reported.
        resamples: Of the bootstrap.
        unit: "nats" or "bits".
        progress: Told (parts done, parts in all).
        options: Of the method: ``k`` for ksg and mixed, ``bins`` for histogram, ``correction`` for
            discrete; ``critic`` ("residual", "joint", "separable", "kernel"), ``width``, ``steps``,
            ``negatives``, ``batch_size``, ``learning_rate``, ... for critics
            (:class:`relatum.mi.Training`); ``alpha``, ``beta``, ``gamma``, ``form``, ``readout``
            and ``outside`` for rpc (:func:`relatum.mi.methods.relative_method`).

    Returns:
        The estimate, its kind, interval, p-value and warnings; see :class:`MIEstimate`.

    Raises:
        ValueError: If the arrays or an argument are not what they should be, or the method cannot
            be used on such data; the message says why and what would be right.

    References:
        Tsai et al. (2021) for rpc, https://arxiv.org/abs/2103.11275. Others in the docstrings of
        :mod:`relatum.mi.objectives`, :mod:`relatum.objectives` and of each method's module.

    Example:
        >>> x = np.random.default_rng(0).normal(size=500)
        >>> y = x + np.random.default_rng(1).normal(size=500)
        >>> estimate = estimate_mi(x, y, method="gaussian", permutations=0)
        >>> round(estimate.value, 1)  # ½ log 2 = 0.35
        0.4
    """
    began = time.perf_counter()
    if method not in METHODS:
        raise ValueError(f"unknown method {method!r}; known are {', '.join(METHODS)}")
    if unit not in ("nats", "bits"):
        raise ValueError(f"unit must be 'nats' or 'bits', got {unit!r}")
    for name, number, least in (("permutations", permutations, 0), ("seeds", seeds, 1)):
        if number < least:
            raise ValueError(f"{name} must be at least {least}, got {number}")
    sides = read_sides(x, y)
    groups, said = aligned(x, groups, "groups")
    check_resampling(len(sides.x), level, resamples, groups, block_length)
    how = _How(method, seed, folds, valid_fraction, groups, block_length, permutations, options)
    if method in TRAINED or method in DOE:
        found = _trained(sides, how, seeds, progress)
    else:
        found = _read(sides, how, progress)
        said = (*said, *_idle(how, seeds))
    reading = found.reading
    interval = bootstrap(
        reading,
        level=level,
        resamples=resamples,
        seed=seed,
        groups=groups,
        block_length=block_length,
    )
    warnings = (
        *sides.notes,
        *said,
        *reading.notes,
        *found.notes,
        *remarks(reading, found.train_value, interval.standard_error),
    )
    estimate = MIEstimate(
        value=reading.value,
        interval=_with_learning(interval, reading.value, found.train_value),
        method=method,
        kind=reading.kind,
        level=level,
        standard_error=interval.standard_error,
        ceiling=reading.ceiling,
        p_value=found.p_value,
        permutations=found.permutations,
        train_value=found.train_value,
        seed_spread=found.spread,
        pointwise=reading.pointwise,
        rows=len(sides.x),
        held_out=len(reading.terms),
        seconds=time.perf_counter() - began,
        warnings=tuple(dict.fromkeys(warnings)),
        settings={**how.record(), **reading.settings, **reading.counts},
    )
    return estimate.in_bits() if unit == "bits" else estimate


class _How(NamedTuple):
    method: str
    seed: int
    folds: int | None
    valid_fraction: float
    groups: Sequence[object] | np.ndarray | None
    block_length: int | None
    permutations: int
    options: dict[str, Any]

    def splits(self, n: int, seed: int) -> list[Split]:
        few = _FOLDS if n < _MANY_ROWS else _FEW_FOLDS
        return cross_fit(
            n,
            few if self.folds is None else self.folds,
            valid_fraction=self.valid_fraction,
            seed=seed,
            groups=self.groups,
            block_length=self.block_length,
        )

    def record(self) -> dict[str, Any]:
        """For the result: what was asked for."""
        said = {"seed": self.seed, "block_length": self.block_length, **self.options}
        said["groups"] = None if self.groups is None else len(np.unique(np.asarray(self.groups)))
        return {name: value for name, value in said.items() if value is not None}


class _Found(NamedTuple):
    reading: Reading
    notes: tuple[str, ...] = ()
    p_value: float | None = None
    permutations: int = 0
    train_value: float | None = None
    spread: float | None = None


def _trained(sides: Sides, how: _How, seeds: int, progress: Progress | None) -> _Found:
    """The mean of cross-fitted readings over seeds."""
    found = []
    wanted = 0 if how.groups is not None else how.permutations
    for turn in range(seeds):
        # Seeds far apart: folds add their number to it.
        seed = how.seed + 1_000_003 * turn
        splits = how.splits(len(sides.x), seed)
        step = _stepper(progress, turn, seeds)
        found.append(
            cross_fitted(
                sides.x, sides.y, how.method, splits,
                seed=seed, permutations=wanted, block_length=how.block_length,
                progress=step, **dict(how.options),
            )
        )  # fmt: skip
    readings = [one.reading for one in found]
    values = [reading.value for reading in readings]
    spread = float(np.std(values, ddof=1)) if seeds > 1 else None
    reading = replace(
        readings[0],
        value=float(np.mean(values)),
        terms=np.mean([one.terms for one in readings], 0),
        pointwise=_mean_of([one.pointwise for one in readings]),
        notes=tuple(dict.fromkeys(note for one in readings for note in one.notes)),
        counts={name: sum(one.counts[name] for one in readings) for name in readings[0].counts},
        settings={**readings[0].settings, "folds": len(splits), "seeds": seeds},
    )
    if spread is not None:
        of_rows = reading.terms.std(ddof=1) / math.sqrt(len(reading.terms))
        error = math.hypot(reading.standard_error or of_rows, spread / math.sqrt(seeds))
        reading = replace(reading, standard_error=error)
    p_values = [one.p_value for one in found if one.p_value is not None]
    p_value = _combined(p_values) if p_values else None
    train = float(np.mean([one.train_value for one in found]))
    return _Found(reading, _no_p(how), p_value, found[0].permutations, train, spread)


def _with_learning(
    interval: Interval, value: float, train_value: float | None
) -> tuple[float, float]:
    """Resampled rows tell nothing of what a critic failed to learn from its own rows.

    On rows that it has seen it reads too much and on new ones too little, by about the same to
    second order, so the upper end is raised by the whole gap. Nor is mutual information below 0.
    """
    gap = 0.0 if train_value is None else max(0.0, train_value - value)
    return interval.low, max(interval.high + gap, 0.0)


def _mean_of(arrays: Sequence[np.ndarray | None]) -> np.ndarray | None:
    known = [array for array in arrays if array is not None]
    return np.mean(known, axis=0) if known else None


def _combined(p_values: list[float]) -> float:
    """One stays; twice the mean of dependent ones is a p-value again (Rüschendorf, 1982)."""
    return p_values[0] if len(p_values) == 1 else min(1.0, 2 * float(np.mean(p_values)))


def _stepper(progress: Progress | None, turn: int, seeds: int) -> Progress | None:
    if progress is None:
        return None
    return lambda done, of: progress(turn * of + done, seeds * of)


def _read(sides: Sides, how: _How, progress: Progress | None) -> _Found:
    """A method without training, and its p-value by permuted rows."""
    reader = READERS[how.method]
    check_reader(how.method, how.options)
    reading = reader(sides.x, sides.y, **how.options)
    if how.permutations == 0 or how.groups is not None:
        return _Found(reading, _no_p(how))
    n, gap, count, above = len(sides.y), how.block_length, how.permutations, 0
    if gap is not None:  # there are no more shifts than these
        count = min(count, n + 1 - 2 * gap)
    for turn, order in enumerate(_orders(n, gap, count, how.seed)):
        if progress is not None:
            progress(turn, count)
        chance = reader(sides.x, sides.y[order], **how.options).value
        above += chance >= reading.value - ROUNDING
    if progress is not None:
        progress(count, count)
    return _Found(reading, (), (1 + above) / (1 + count), count)


def _orders(n: int, gap: int | None, count: int, seed: int) -> Iterator[np.ndarray]:
    """Random orders, or for a series different shifts around by at least a block."""
    random = np.random.default_rng(seed)
    if gap is None:
        yield from (random.permutation(n) for _ in range(count))
    else:
        for shift in random.permutation(n + 1 - 2 * gap)[:count] + gap:
            yield np.roll(np.arange(n), shift)


def _idle(how: _How, seeds: int) -> tuple[str, ...]:
    """What was asked for and does nothing without training."""
    asked = {"folds": how.folds is not None, "seeds": seeds > 1}
    return tuple(
        f"{name} does nothing for {how.method}, which trains nothing"
        for name, given in asked.items()
        if given
    )


def _no_p(how: _How) -> tuple[str, ...]:
    if how.groups is None or how.permutations == 0:
        return ()
    return ("no p-value: rows of a group are not exchangeable with those of others",)

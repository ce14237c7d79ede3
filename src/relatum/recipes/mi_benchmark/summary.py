"""What the cells of one method on one task say together."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean, median, stdev
from typing import Any, Final

from scipy.stats import binomtest

__all__ = ["LEAST_COVERAGE", "Consistency", "Summary", "consistency", "share", "summarise"]

Record = dict[str, Any]

LEAST_COVERAGE: Final = 0.88
"""What an interval of nominal 95 % must cover at least where bias is no excuse."""


@dataclass(frozen=True)
class Summary:
    r"""Errors of the estimates :math:`\hat I_1 \dots \hat I_n` of one task, in nats.

    Attributes:
        method: The method.
        task: The task.
        truth: I.
        n: Number of estimates.
        failed: Number of samples that the method refused or failed on; they count nowhere else.
        mean: Of the estimates.
        sd: Standard deviation of the estimates; NaN for one.
        rmse: :math:`\sqrt{\overline{(\hat I - I)^2}}`.
        covered: How many intervals hold I.
        centred: How many intervals hold the mean of the estimates: the coverage without the bias.
        half_width: Mean half width of the intervals.
        seconds: Median processor time of one estimate.
    """

    method: str
    task: str
    truth: float
    n: int
    failed: int
    mean: float = math.nan
    sd: float = math.nan
    rmse: float = math.nan
    covered: int = 0
    centred: int = 0
    half_width: float = math.nan
    seconds: float = math.nan

    @property
    def bias(self) -> float:
        """Mean estimate less the truth."""
        return self.mean - self.truth

    @property
    def bias_within(self) -> bool:
        """Whether the bias is smaller than the mean half width of the intervals."""
        return abs(self.bias) < self.half_width

    @property
    def verdict(self) -> str:
        """Whether the intervals hold the truth, and if not, whether bias is why."""
        if self.n == 0:
            return "no estimate"
        if self.covered >= LEAST_COVERAGE * self.n:
            return "holds"
        return "below 88 %" if self.bias_within else "bias breaks it"


def summarise(records: Iterable[Record]) -> list[Summary]:
    """One summary for each method and task, in the order of the records."""
    groups: dict[tuple[str, str], list[Record]] = defaultdict(list)
    for record in records:
        groups[record["method"], record["task"]].append(record)
    return [_summary(*key, group) for key, group in groups.items()]


def _summary(method: str, task: str, group: list[Record]) -> Summary:
    good = [record for record in group if record["error"] is None]
    truth = group[0]["truth"]
    empty = Summary(method, task, truth, n=len(good), failed=len(group) - len(good))
    if not good:
        return empty
    values = [record["value"] for record in good]
    mean = fmean(values)
    return Summary(
        method,
        task,
        truth,
        n=empty.n,
        failed=empty.failed,
        mean=mean,
        sd=stdev(values) if len(values) > 1 else math.nan,
        rmse=math.sqrt(fmean((value - truth) ** 2 for value in values)),
        covered=_holding(good, truth),
        centred=_holding(good, mean),
        half_width=fmean(map(_half, good)),
        seconds=median(record["seconds"] for record in good),
    )


def _holding(records: Iterable[Record], value: float) -> int:
    return sum(record["low"] <= value <= record["high"] for record in records)


def _half(record: Record) -> float:
    return float(record["high"] - record["low"]) / 2


@dataclass(frozen=True)
class Consistency:
    """How often a relation that the truths obey holds between estimates, within the intervals.

    Attributes:
        method: The method.
        task: The task.
        test: The relation, in words.
        n: Number of samples it was tried on.
        held: How often it held.
        gap: Mean of left side less right side, in nats.
        slack: Mean of what the intervals allow, in nats.
    """

    method: str
    task: str
    test: str
    n: int
    held: int
    gap: float
    slack: float


def consistency(records: Iterable[Record]) -> list[Consistency]:
    r"""Three relations, within the half widths h of the intervals involved (added in squares).

    .. math:: |\hat I(X; Y')| \le h, \qquad \hat I(X; gY) - \hat I(X; Y) \le h, \qquad
              |\hat I(X_1 X_2; Y_1 Y_2) - 2 \hat I(X_1; Y_1)| \le h

    with Y' drawn apart from X, gY a part of the columns of Y, and an independent second copy.
    """
    groups: dict[tuple[str, str], dict[int, dict[str, Record]]] = defaultdict(dict)
    for record in records:
        if record["error"] is None:
            seeds = groups[record["method"], record["task"]]
            seeds.setdefault(record["seed"], {})[record["variant"]] = record
    found = []
    for (method, task), seeds in groups.items():
        whole = [made for made in seeds.values() if "whole" in made]
        for variant, words in _TESTS.items():
            pairs = [(made["whole"], made[variant]) for made in whole if variant in made]
            if pairs:
                found.append(_test(method, task, variant, words, pairs))
    return found


_TESTS: Final = {
    "independent": "independence: value of independent halves is 0",
    "part": "data processing: x with a part of y has no more than with y",
    "twice": "additivity: two independent copies have twice as much",
}


def _test(
    method: str, task: str, variant: str, words: str, pairs: Sequence[tuple[Record, Record]]
) -> Consistency:
    times = {"independent": 0, "part": 1, "twice": 2}[variant]
    gaps = [made["value"] - times * whole["value"] for whole, made in pairs]
    slacks = [math.hypot(_half(made), times * _half(whole)) for whole, made in pairs]
    sizes = gaps if variant == "part" else map(abs, gaps)
    held = sum(size <= slack for size, slack in zip(sizes, slacks, strict=True))
    return Consistency(method, task, words, len(pairs), held, fmean(gaps), fmean(slacks))


def share(hits: int, n: int) -> tuple[float, float]:
    """The 95 % interval (Wilson) of a share that was found as `hits` of `n`.

    Example:
        >>> low, high = share(9, 10)
        >>> round(low, 3), round(high, 3)
        (0.596, 0.982)
    """
    found = binomtest(hits, n).proportion_ci(0.95, method="wilson")
    return float(found.low), float(found.high)

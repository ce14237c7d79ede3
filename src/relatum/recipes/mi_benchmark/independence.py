"""What estimators say of sides that have nothing to do with each other."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean, median
from typing import Any, Final

__all__ = ["INDEPENDENCE_HEAD", "Independence", "independence", "independence_rows"]

HIGHEST: Final = 0.05
"""Nats that the lower end of an interval may claim where there are none."""

INDEPENDENCE_HEAD = (
    *("method", "task", "rows", "n", "mean", "highest low end", "refused", "warned", "verdict"),
    "seconds",
)


@dataclass(frozen=True)
class Independence:
    """A method on one size of independent sides.

    Attributes:
        method: The method.
        task: The task.
        rows: Rows of each sample.
        n: Estimates made.
        refused: Samples that the method refused, saying why.
        mean: Of the estimates, in nats; NaN without one.
        highest: The highest lower end of an interval, in nats; NaN without one.
        warned: Estimates whose lower end is above 0.05 nats and that carry a warning.
        silent: Estimates whose lower end is above 0.05 nats without a word.
        seconds: Median processor time of one estimate; NaN without one.
    """

    method: str
    task: str
    rows: int
    n: int
    refused: int
    mean: float
    highest: float
    warned: int
    silent: int
    seconds: float

    @property
    def verdict(self) -> str:
        """Whether nothing is claimed that is not there, or the method says why it cannot tell."""
        if self.silent:
            return "claims too much"
        return "holds" if self.n and not self.warned else "says so"


def independence(records: Iterable[dict[str, Any]]) -> list[Independence]:
    """One for each method, task and number of rows, in the order of the records."""
    groups: dict[tuple[str, str, int], list[dict[str, Any]]] = defaultdict(list)
    for record in records:
        groups[record["method"], record["task"], record["rows"]].append(record)
    found = []
    for (method, task, rows), group in groups.items():
        good = [record for record in group if record["error"] is None]
        above = [bool(record["warnings"]) for record in good if not record["low"] <= HIGHEST]
        found.append(
            Independence(
                method,
                task,
                rows,
                n=len(good),
                refused=len(group) - len(good),
                mean=fmean(record["value"] for record in good) if good else math.nan,
                highest=max((record["low"] for record in good), default=math.nan),
                warned=sum(above),
                silent=len(above) - sum(above),
                seconds=median(record["seconds"] for record in good) if good else math.nan,
            )
        )
    return found


def independence_rows(found: Sequence[Independence]) -> list[list[str]]:
    """The cells of the table, as text."""
    return [
        [
            *(one.method, one.task, f"{one.rows:,}", str(one.n)),
            *(_number(one.mean, "+.3f"), _number(one.highest, "+.3f")),
            *(str(one.refused or "–"), str(one.warned or "–"), one.verdict),
            _number(one.seconds, ".2f"),
        ]
        for one in found
    ]


def _number(value: float, form: str) -> str:
    return "–" if math.isnan(value) else f"{value:{form}}"

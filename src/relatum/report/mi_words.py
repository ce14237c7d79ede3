"""What estimates of mutual information mean and do not mean, in words.

A record is what ``relatum mi`` writes as JSON: the estimates of one pair of sides, each as
``MIEstimate.to_dict`` gives it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Any, Final

from .words import MINUS, NBSP, listing

__all__ = ["amount", "interval_text", "meanings", "sides", "verdict"]

Record = Mapping[str, Any]
Estimate = Mapping[str, Any]

_LETTERS = 24  # that the names of a side may take in a sentence
_NATS_PER: Final = {"nats": 1.0, "bits": math.log(2)}


def amount(value: float | None, decimals: int = 3) -> str:
    """A number as text; a dash where there is none.

    Example:
        >>> amount(-0.25), amount(-1e-9), amount(None)
        ('−0.250', '0.000', '–')
    """
    if value is None:
        return "–"
    return f"{round(value, decimals) + 0.0:.{decimals}f}".replace("-", MINUS)


def interval_text(estimate: Estimate) -> str:
    """Both ends of the interval, or a dash."""
    low, high = estimate["interval"]
    return "–" if low is None or high is None else f"{amount(low)} to {amount(high)}"


def sides(record: Record) -> tuple[str, str]:
    """The columns of x and of y as they appear in a sentence."""
    return _side(record["x"]), _side(record["y"])


def _side(names: Sequence[str]) -> str:
    if len(names) == 1:
        return names[0]
    shown = list(names if sum(map(len, names)) <= _LETTERS else names[:1])
    rest = len(names) - len(shown)
    return f"({listing([*shown, f'{rest:,} more'] if rest else shown)})"


def verdict(record: Record) -> list[str]:
    """Whether the sides depend on each other, how much, and whether the methods agree."""
    estimates = record["estimates"]
    found = [e for e in estimates if _depends(e)]
    texts = [_whether(record, found)]
    if found:
        texts.append(_how_much(record, found))
    texts += _disagreement(estimates)
    return [text.replace(" %", f"{NBSP}%") for text in texts]


def _depends(estimate: Estimate) -> bool:
    """Whether both the interval and the permutations, where there are any, exclude zero."""
    low, p = estimate["interval"][0], estimate["p_value"]
    signs = [low > 0] if low is not None else []
    signs += [p <= 1 - estimate["level"] + 1e-12] if p is not None else []
    return bool(signs) and all(signs)


def _whether(record: Record, found: Sequence[Estimate]) -> str:
    estimates = record["estimates"]
    x, y = sides(record)
    rows = f"{record['rows']:,} rows"
    names = [e["method"] for e in found]
    if not found:
        who = "No method finds" if len(estimates) > 1 else f"{estimates[0]['method']} does not find"
        return (
            f"{who} a dependence between {x} and {y} in {rows} that stands out from chance. That "
            "is no proof of independence: a weak or complicated relation needs more rows to show."
        )
    if len(found) == len(estimates):
        how = "by every method here" if len(found) > 1 else f"by {names[0]}"
        return f"{x} and {y} depend on each other: {rows} show it beyond chance, {how}."
    others = [e["method"] for e in estimates if e["method"] not in names]
    return (
        f"{listing(names)} {_verb(names, 'finds', 'find')} that {x} and {y} depend on each other; "
        f"{listing(others)} {_verb(others, 'does', 'do')} not. Each method sees some "
        "relations better than others."
    )


def _verb(names: Sequence[str], one: str, many: str) -> str:
    return one if len(names) == 1 else many


def _how_much(record: Record, found: Sequence[Estimate]) -> str:
    values = sorted(e["value"] for e in found)
    unit = record["unit"]
    span = [values[0]] if amount(values[0]) == amount(values[-1]) else [values[0], values[-1]]
    texts = " to ".join(amount(value) for value in span)
    nats = [value * _NATS_PER[unit] for value in span]
    alike = " to ".join(f"{math.sqrt(max(-math.expm1(-2 * value), 0)):.2f}" for value in nats)
    which = "Those estimates are" if len(found) > 1 else "The estimate is"
    return (
        f"{which} {texts} {unit}: as much as two normal variables share whose correlation is "
        f"{alike} (the relation here need not be linear)."
    )


def _disagreement(estimates: Sequence[Estimate]) -> list[str]:
    """A sentence for the pair of methods whose intervals are furthest apart, if any are apart."""
    worst, gap = None, 0.0
    for one, other in combinations([e for e in estimates if None not in e["interval"]], 2):
        low, high = sorted((one, other), key=lambda e: e["interval"][1])
        apart = high["interval"][0] - low["interval"][1]
        # A lower bound below another estimate is where it should be.
        if apart > gap and low["kind"] != "lower bound":
            worst, gap = (low, high), apart
    if worst is None:
        return []
    low, high = worst
    return [
        f"The intervals of {low['method']} and {high['method']} do not overlap: at least one of "
        "the two is off by more than its interval, which covers the noise of the sample and not "
        "the bias of a method."
    ]


def meanings(record: Record) -> list[tuple[str, str]]:
    """(term, explanation) for everything that stands in the table."""
    estimates = record["estimates"]
    level = f"{100 * record['level']:g}{NBSP}%"
    rows = "groups of rows" if record["groups"] else "rows"
    rows = f"blocks of {record['block_length']} rows" if record["block_length"] else rows
    told = [
        (
            "Mutual information",
            "How much knowing one side narrows down the other, on average. It is zero only if the "
            "two are independent, whatever the form of the relation, and relabelling or rescaling "
            "a side does not change it. 1 nat is 1.44 bits.",
        ),
        *_kind_meanings(record),
        (
            f"The {level} interval",
            f"How the estimate varies with the sample, taking {rows} to be independent draws; for "
            "trained methods its upper end also allows for what was not learned, by the gap. It "
            "does not cover other bias of the method: an interval can be narrow and wrong.",
        ),
    ]
    if any(e["p_value"] is not None for e in estimates):
        told.append(
            (
                "The p-value",
                "The share of random pairings of the rows that give at least this value. A small "
                "one speaks against independence; it does not say how strong the relation is.",
            )
        )
    if any(e["train_value"] is not None for e in estimates):
        told.append(
            (
                "Training gap",
                "The same reading on the rows trained on, less the estimate, which comes from rows "
                "that were held out. A large gap means that the critic learned its rows by heart; "
                "more rows would raise the estimate.",
            )
        )
    if any(e["ceiling"] is not None for e in estimates):
        told.append(
            (
                "The ceiling",
                "The largest value the method can give at this size. Near it, the truth may be "
                "anything above.",
            )
        )
    told.append(
        (
            "What no number here says",
            "That one side causes the other, that the relation holds in another population, or "
            "that a simple model could use it. And a method picked afterwards because its value "
            "is the largest is biased by that choice: name one beforehand, or report all.",
        )
    )
    return told


def _kind_meanings(record: Record) -> list[tuple[str, str]]:
    told = []
    for kind in dict.fromkeys(e["kind"] for e in record["estimates"]):
        names = [e["method"] for e in record["estimates"] if e["kind"] == kind]
        words = record["kinds"][kind]
        told.append(
            (f"{kind[0].upper()}{kind[1:]} ({listing(names)})", f"{words[0].upper()}{words[1:]}.")
        )
    return told

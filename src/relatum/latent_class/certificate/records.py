"""The entries of a transfer certificate: a number with its meaning, a class pair, a few shots."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..bounds import Bound
from ..estimates import Estimate
from .meanings import MEANINGS

__all__ = ["VACUOUS", "CertificateLine", "FewShot", "Number", "PairCost", "lines_of"]

Number = Estimate | Bound | float
"""What becomes a line."""

VACUOUS = "vacuous"
"""Among the notes of an estimate: it is a bound, and says nothing."""


@dataclass(frozen=True)
class CertificateLine:
    """One number of a certificate.

    Attributes:
        key: Its name; a number of negatives stands in brackets, as in ``infonce[16]``.
        symbol: How the theory writes it.
        value: The number; never clamped.
        standard_error: NaN where none is given.
        low: Lower end of its interval; NaN without one.
        high: Upper end.
        reading: What it means, in plain words.
        kind: "fact" (counted), "risk" (a surrogate loss), "gap" (a difference of two), "price"
            (what collisions cost, or cost at most) or "bound".
        group: 1 facts, 2 mean and best linear classifier, 3 one shot, 4 collisions, 5 the
            contrastive risk, 6 margins, 7 many negatives, 8 training.
    """

    key: str
    symbol: str
    value: float
    standard_error: float
    low: float
    high: float
    reading: str
    kind: str
    group: int


@dataclass(frozen=True)
class PairCost:
    """What two classes cost together.

    Attributes:
        class_a: One class.
        class_b: The other.
        risk: The one-shot risk between them, both ways.
        share: Their part of the whole one-shot risk L^≠, from 0 to 1; NaN where that is 0.
        standard_error: Of the risk.
    """

    class_a: Any
    class_b: Any
    risk: float
    share: float
    standard_error: float


@dataclass(frozen=True)
class FewShot:
    """The mean classifier of b labelled examples per class: what to expect on new points.

    Attributes:
        shots: b.
        risk: Its average surrogate risk between two classes, L^≠ with blocks of b.
        pairwise_error: Its average error between two classes; ties are errors.
        top1_error: Its error among all classes.
        risk_standard_error: The standard error of the risk.
        pairwise_standard_error: Of the pairwise error.
        top1_standard_error: Of the top-1 error.
        top1_spread: The standard deviation of the top-1 error over choices of the b examples: a
            single measurement may be off by that.
    """

    shots: int
    risk: float
    pairwise_error: float
    top1_error: float
    risk_standard_error: float
    pairwise_standard_error: float
    top1_standard_error: float
    top1_spread: float


def lines_of(found: Mapping[str, Number]) -> tuple[CertificateLine, ...]:
    """Numbers by key as lines in the order of the meanings, each number of negatives together."""
    places = {name: place for place, name in enumerate(MEANINGS)}

    def place(key: str) -> tuple[int, int, int]:
        name, k = _parts(key)
        return MEANINGS[name].group, k, places[name]

    return tuple(_line(key, found[key]) for key in sorted(found, key=place))


def _line(key: str, number: Number) -> CertificateLine:
    name, k = _parts(key)
    meaning = MEANINGS[name]
    if isinstance(number, Bound):
        notes = (VACUOUS,) if number.vacuous else ()
        number = Estimate(number.value, math.nan, math.nan, math.nan, 0, notes=notes)
    if not isinstance(number, Estimate):
        number = Estimate(float(number), math.nan, math.nan, math.nan, 0)
    empty = f" ({VACUOUS})" if VACUOUS in number.notes else ""
    return CertificateLine(
        key,
        meaning.symbol.format(k=k),
        number.value,
        number.standard_error,
        number.low,
        number.high,
        meaning.reading.format(k=k) + empty,
        meaning.kind,
        meaning.group,
    )


def _parts(key: str) -> tuple[str, int]:
    """The name of a key and its number of negatives, 0 without one."""
    if key in MEANINGS:
        return key, 0
    name, _, k = key.removesuffix("]").partition("[")
    return f"{name}[k]", int(k)

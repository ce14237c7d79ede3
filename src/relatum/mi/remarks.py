"""What a person should know of an estimate before quoting it, in plain words."""

from __future__ import annotations

import math
from collections.abc import Iterator

from .reading import Reading

__all__ = ["remarks"]

_GAP = 3.0  # standard errors, from training to held-out rows or below 0, that are worth a word


def remarks(reading: Reading, train_value: float | None, error: float) -> Iterator[str]:
    """Remarks on the value, and on its distance from that of the rows trained on."""
    if not math.isfinite(reading.value):
        yield "the value is not finite: the method failed on these data"
    elif reading.value < -_GAP * error:
        yield (
            "the estimate is negative beyond its error, which mutual information cannot be: the "
            "fit is worse than none on rows it has not seen"
        )
    elif reading.value < 0:
        yield (
            "the estimate is negative, as estimates near 0 can be: mutual information itself is not"
        )
    if outside := reading.counts.get("below", 0) + reading.counts.get("above", 0):
        yield (
            f"{outside} of {len(reading.terms)} scores lie outside the range of the optimal critic "
            f"({reading.counts['below']} below, {reading.counts['above']} above) and have no "
            f"density ratio; {reading.counts['replaced']} of them were replaced, by the policy "
            f"outside={reading.settings['outside']!r}"
        )
    if train_value is None:
        return
    if not reading.terms.any():
        yield (
            "the estimate is exactly 0, because no fit was better than none on its validation "
            "rows: dependence too weak for so few rows is not excluded"
        )
    gap = train_value - reading.value
    if math.isfinite(gap) and gap > max(_GAP * error, 0.1):
        yield (
            f"the rows trained on read {gap:.2f} nats more than the held-out ones: the critic "
            "fits noise, and the truth may lie between; more rows would help"
        )

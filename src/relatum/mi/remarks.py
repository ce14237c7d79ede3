"""What a person should know before quoting a number."""

from __future__ import annotations

import math

from .reading import Reading

__all__ = ["remarks"]

_GAP = 3.0  # standard errors that are worth a word


def remarks(reading: Reading, train_value: float | None, error: float) -> list[str]:
    """Warnings on a reading with its standard error, and the same reading on rows trained on."""
    notes = []
    if not math.isfinite(reading.value):
        notes.append("the value is not finite: the method failed on these data")
    elif reading.value + _GAP * error < 0:
        notes.append(
            "the estimate is clearly below 0, where mutual information cannot be: what was fitted "
            "is worse than nothing on new rows; give more rows, fewer columns or another method"
        )
    elif reading.value < 0:
        notes.append(
            "the estimate is negative, as estimates near 0 can be: mutual information itself is not"
        )
    if outside := reading.counts.get("below", 0) + reading.counts.get("above", 0):
        notes.append(
            f"{outside} of {len(reading.terms)} scores lie outside the range of the optimal critic "
            f"({reading.counts['below']} below, {reading.counts['above']} above) and have no "
            f"density ratio; {reading.counts['replaced']} of them were replaced, by the policy "
            f"outside={reading.settings['outside']!r}"
        )
    if train_value is not None and math.isfinite(train_value):
        gap = train_value - reading.value
        if gap > max(_GAP * error, 0.1):
            notes.append(
                f"the rows trained on read {gap:.2f} nats more than the held-out ones: the critic "
                "fits noise, and the truth may lie between; more rows would help"
            )
    return notes

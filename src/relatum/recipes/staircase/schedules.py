"""What longer training does to the read-outs; every word of it is computed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from .cells import Plan
from .oracle import Oracle
from .reference import Reference
from .summary import TITLES, Level
from .tables import signed, table
from .task import LEVELS, TASKS
from .verdict import errors, listed, nearer, scatter_against

__all__ = ["Schedule", "longer_training"]

_READ_OUTS: Final = ("rpc-published", "rpc", "rpc-logit")
_RIGHT: Final = _READ_OUTS[1:]


class Schedule(NamedTuple):
    """One schedule and what was read along it.

    Attributes:
        plan: What its trainings share.
        levels: Levels by (task, reading).
        made: How many trainings, in what time.
    """

    plan: Plan
    levels: Mapping[tuple[str, str], Sequence[Level]]
    made: str

    def __str__(self) -> str:
        return f"{self.plan.steps:,} steps"


def longer_training(
    short: Schedule, long: Schedule, perfect: Oracle, authors: Reference | None
) -> Iterable[str]:
    """The section: biases by schedule, and which claims of the read-outs hold for each."""
    yield "## With longer training"
    yield (
        f"{long}, width {long.plan.width}, learning rate {long.plan.learning_rate:g}, {long.made}; "
        f"beside {short}, width {short.plan.width}, learning rate {short.plan.learning_rate:g}. "
        "Right and published "
        "read-out are of the same scores of the same critic; the logit form is a training of its "
        "own. Bias in nats; a reading is nearer if its absolute bias is smaller."
    )
    yield from _claims(short, long)
    header = [*(f"I = {truth:g}" for truth in LEVELS), "mean absolute"]
    for task in TASKS:
        rows = [_row(label, biases) for label, biases in _biases(task, short, long, authors)]
        if rows:
            exact = {level["truth"]: level["published"] for level in perfect["levels"]}
            off = [exact[truth] - truth for truth in LEVELS]
            rows.append(_row(f"{TITLES['rpc-published']}, perfect critic", off))
            yield table([f"bias, {task}", *header], rows)
    yield from _rest(long)


def _claims(short: Schedule, long: Schedule) -> Iterable[str]:
    """Where the published read-out errs, who is nearer, and the count over tasks and schedules."""
    lines: list[str] = []
    shaped: list[bool] = []
    ahead: dict[str, list[int]] = {name: [] for name in _RIGHT}
    for task in TASKS:
        for schedule in (short, long):
            levels = schedule.levels
            if (task, "rpc-published") not in levels:
                continue
            over, under, holds = _shape(levels[task, "rpc-published"])
            shaped.append(holds)
            wins = []
            for name in _RIGHT:
                if (task, name) in levels:
                    count = nearer(levels[task, name], levels[task, "rpc-published"])
                    ahead[name].append(count)
                    wins.append(f"{TITLES[name]}, at {count} of {len(LEVELS)} levels")
            lines.append(
                f"* {task}, {schedule}: the published read-out is too high at {over}, too low "
                f"at {under}{': up at low and down at high' if holds else ''}. Nearer than "
                f"published: {'; '.join(wins)}."
            )
    yield (
        f"**What holds.** That the published read-out errs up at low and down at high mutual "
        f"information: in {sum(shaped)} of {len(shaped)} cases. That a right one is nearer at "
        "most levels: "
        + "; ".join(
            f"{TITLES[name]}, in {sum(2 * count > len(LEVELS) for count in counts)} of "
            f"{len(counts)}"
            for name, counts in ahead.items()
            if counts
        )
        + ".\n\n"
        + "\n".join(lines)
    )


def _shape(published: Sequence[Level]) -> tuple[str, str, bool]:
    """Levels read too high, those read too low, and whether all of the first lie below these."""
    over = [level.truth for level in published if level.bias > 0]
    under = [level.truth for level in published if level.bias < 0]
    holds = bool(over and under) and max(over) < min(under)
    return _nats(over), _nats(under), holds


def _nats(truths: Sequence[float]) -> str:
    return f"{listed([f'{truth:g}' for truth in truths])} nats" if truths else "no level"


def _biases(
    task: str, short: Schedule, long: Schedule, authors: Reference | None
) -> Iterable[tuple[str, list[float]]]:
    for name in _READ_OUTS:
        for schedule in (short, long):
            if (task, name) in schedule.levels:
                biases = [level.bias for level in schedule.levels[task, name]]
                yield f"{TITLES[name]}, {schedule}", biases
        if authors is not None and name == "rpc-published":
            theirs = [authors.levels[task, name, truth][0] - truth for truth in LEVELS]
            yield f"*{TITLES[name]}, authors, 20,000 steps*", theirs


def _row(label: str, biases: Sequence[float]) -> list[str]:
    mean = sum(abs(bias) for bias in biases) / len(biases)
    return [label, *(signed(bias) for bias in biases), f"{mean:.2f}"]


def _rest(long: Schedule) -> Iterable[str]:
    """Scatter beside SMILE, and errors, after the longer training."""
    found = (scatter_against(long.levels, name, "smile") for name in _READ_OUTS)
    said = [line for _, line in found if line]
    if said:
        lines = "\n".join(said)
        yield f"Scatter from batch to batch after {long}:\n\n{lines}"
    yield from errors(long.levels, f", {long}")

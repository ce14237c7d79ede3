"""What longer training does to the read-outs; every word of it is computed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from .cells import Plan
from .oracle import Oracle
from .reference import Reference
from .summary import TITLES, Level
from .tables import signed, table
from .task import LEVELS, TASKS
from .verdict import Levels, Outside, errors, listed, nearer

__all__ = ["Schedule", "longer_training"]

_RIGHT: Final = ("rpc", "rpc-logit")
_READ_OUTS: Final = ("rpc-published", "rpc", "rpc-drop", "rpc-logit")


class Schedule(NamedTuple):
    """One schedule and what was read along it.

    Attributes:
        plan: What its trainings share.
        levels: Levels by (task, reading).
        outside: By task, shares of positives below and above the range of the scores, by level.
        made: How many trainings, in what time.
    """

    plan: Plan
    levels: Levels
    outside: Outside
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
        "Right and published read-out are of the same scores of the same critic; the logit form is "
        "a training of its own. Bias in nats; a reading is nearer if its absolute bias is smaller."
    )
    yield from _claims(short, long)
    exact = {level["truth"]: level["published"] for level in perfect["levels"]}
    end = [exact[truth] - truth for truth in LEVELS]
    yield from _trend(short, long, end)
    header = [*(f"I = {truth:g}" for truth in LEVELS), "mean absolute"]
    for task in TASKS:
        rows = [_row(label, biases) for label, biases in _biases(task, short, long, authors)]
        if rows:
            rows.append(_row(f"{TITLES['rpc-published']}, perfect critic", end))
            yield table([f"bias, {task}", *header], rows)
    yield from _out_of_range(short, long)
    yield from errors(long.levels, f", {long}")


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


def _trend(short: Schedule, long: Schedule, end: Sequence[float]) -> Iterable[str]:
    """Which readings training brings nearer to the truth, and where the published one ends."""
    lines = []
    for task in TASKS:
        moved = []
        for name in _READ_OUTS:
            if (task, name) in short.levels and (task, name) in long.levels:
                before, after = (
                    _mean_off([level.bias for level in one.levels[task, name]])
                    for one in (short, long)
                )
                where = "nearer" if after < before else "further off"
                moved.append(f"{TITLES[name]}, {before:.2f} → {after:.2f} ({where})")
        if moved:
            lines.append(f"* {task}: {'; '.join(moved)}")
    if lines:
        found = "\n".join(lines)
        yield (
            f"**What training does.** Mean absolute bias over the levels, {short} → {long}; a "
            f"perfect critic ends at {_mean_off(end):.2f} with the published read-out and at 0 "
            f"with the right one, on both tasks:\n\n{found}"
        )


def _mean_off(biases: Sequence[float]) -> float:
    return sum(abs(bias) for bias in biases) / len(biases)


def _row(label: str, biases: Sequence[float]) -> list[str]:
    return [label, *(signed(bias) for bias in biases), f"{_mean_off(biases):.2f}"]


def _out_of_range(*schedules: Schedule) -> Iterable[str]:
    """Whether what is made of scores above 1/β decides the right read-out."""
    said = []
    for task in TASKS:
        for schedule in schedules:
            shares = schedule.outside.get(task)
            if not shares:
                continue
            end, drop = schedule.levels[task, "rpc"], schedule.levels[task, "rpc-drop"]
            apart = max(abs(one.mean - two.mean) for one, two in zip(end, drop, strict=True))
            above = ", ".join(f"{share:.2%}" for _, share in shares)
            said.append(f"* {task}, {schedule}: {above}; the two differ by up to {apart:.2f} nats")
    if said:
        lines = "\n".join(said)
        yield (
            "**Scores past the end.** A score above 1/β has no ratio, yet the objective puts the "
            "target of every positive there. The right read-out takes it at the end of the range "
            "or leaves it out, and where there are many that choice decides what it reads. Share "
            f"of such positives by level:\n\n{lines}"
        )

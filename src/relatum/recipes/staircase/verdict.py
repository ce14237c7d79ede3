"""What the numbers say of the published claims; every word of it is computed."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

from .oracle import Oracle
from .summary import TITLES, Level
from .tables import short, signed, table
from .task import LEVELS, TASKS

__all__ = ["Levels", "Outside", "errors", "listed", "nearer", "verdicts"]

Levels = Mapping[tuple[str, str], Sequence[Level]]
Outside = Mapping[str, Sequence[tuple[float, float]]]

# Below this ratio of two scatters we call them equal: a scatter from n steps of each of two seeds
# is known to about 1/√(4 n), 4 % for the 300 steps of the short schedule.
_EQUAL = 1.1


def verdicts(levels: Levels, outside: Outside, perfect: Oracle) -> Iterable[str]:
    """Paragraphs, each about one claim; those without cells are left out."""
    yield from _scatter(levels)
    yield from _below_floor(levels, perfect)
    yield from _range(outside)
    yield from _read_outs(levels, perfect)
    yield from errors(levels)


def _scatter(levels: Levels) -> Iterable[str]:
    """Noise of each RPC reading over its rivals', per task and level."""
    rows, said = [], []
    for rival in ("smile", "doe", "doe-logistic"):
        for name in ("rpc", "rpc-logit", "rpc-published"):
            found, line = _scatter_against(levels, name, rival)
            rows += found
            said += [line] if line else []
    if said:
        counts = "\n".join(said)
        yield (
            "**RPC varies less than SMILE, and is more stable than DoE?** Scatter from batch to "
            f"batch, ours over theirs; within 10 % counts as equal.\n\n{counts}"
        )
        yield table(["noise over noise", *(f"I = {truth:g}" for truth in LEVELS)], rows)


def _scatter_against(levels: Levels, name: str, rival: str) -> tuple[list[list[str]], str]:
    """Rows of noise over the rival's noise, one a task, and a line that counts them."""
    ratios = {
        task: [
            one.noise / other.noise
            for one, other in zip(levels[task, name], levels[task, rival], strict=True)
        ]
        for task in TASKS
        if (task, name) in levels and (task, rival) in levels
    }
    rows = [
        [f"{TITLES[name]} / {TITLES[rival]}, {task}", *(f"{ratio:.2f}" for ratio in found)]
        for task, found in ratios.items()
    ]
    every = [ratio for found in ratios.values() for ratio in found]
    lower = sum(ratio < 1 / _EQUAL for ratio in every)
    higher = sum(ratio > _EQUAL for ratio in every)
    line = (
        f"* {TITLES[name]} against {TITLES[rival]}: lower at {lower}, equal at "
        f"{len(every) - lower - higher}, higher at {higher} of {len(every)}"
    )
    return rows, line if every else ""


def _below_floor(levels: Levels, perfect: Oracle) -> Iterable[str]:
    """Which of these scatter less than the exact log ratios of the same batches would?"""
    floors = {level["truth"]: level["floor"] for level in perfect["levels"]}
    said = []
    for name in ("rpc", "rpc-logit", "rpc-published", "smile"):
        for task in TASKS:
            found = levels.get((task, name), [])
            low = [one for one in found if one.noise * _EQUAL < floors[one.truth]]
            if low:
                where = ", ".join(f"{one.truth:g} ({signed(one.bias)})" for one in low)
                said.append(f"* {TITLES[name]}, {task}: {where}")
    if said:
        exact, lines = ", ".join(f"{floors[truth]:.2f}" for truth in LEVELS), "\n".join(said)
        yield (
            "**Is little scatter a virtue?** The mean of the exact log ratios of a batch scatters "
            f"by {exact} nats. A reading that scatters less does not follow them: it saturates, "
            f"or its critic is not there yet. Levels where that is so, with the bias:\n\n{lines}"
        )


def _range(outside: Outside) -> Iterable[str]:
    """Does RPC on raw scores stay in range by itself?"""
    said = []
    for task, shares in outside.items():
        if not shares:
            continue
        worst = max(range(len(shares)), key=lambda at: sum(shares[at]))
        below, above = shares[worst]
        said.append(
            f"on *{task}* at most {below + above:.2%} of the positives lie outside it, at "
            f"{LEVELS[worst]:g} nats ({below:.2%} below, {above:.2%} above)"
        )
    if said:
        some = any(below + above > 0 for shares in outside.values() for below, above in shares)
        yield (
            f"**RPC needs no clipping?** {'It does' if some else 'It does not, here'}: scores "
            f"outside (−1, 10,000) have no ratio, and {'; '.join(said)}. The published read-out "
            "never shows them, since it looks at the mean score alone; the logit form has none."
        )


def _read_outs(levels: Levels, perfect: Oracle) -> Iterable[str]:
    """Is the published bias the read-out's, and is the right one better?"""
    off = [level["published"] - level["truth"] for level in perfect["levels"]]
    truths = [level["truth"] for level in perfect["levels"]]
    over = [f"{truth:g}" for truth, bias in zip(truths, off, strict=True) if bias > 0]
    under = [f"{truth:g}" for truth, bias in zip(truths, off, strict=True) if bias < 0]
    yield (
        "**The published read-out errs up at low and down at high mutual information?** At the "
        f"perfect critic it reads too much at {listed(over)} nats and too little at "
        f"{listed(under)}; the right one is exact. So that error is the read-out's, and not the "
        "training's."
    )
    for task in TASKS:
        if (task, "rpc") in levels:
            yield _trained(task, levels)


def _trained(task: str, levels: Levels) -> str:
    """The same with trained critics: biases, who is closer, and what the error covers up."""
    published = levels[task, "rpc-published"]
    lines = []
    for name in ("rpc-published", "rpc", "rpc-logit"):
        if (task, name) not in levels:
            continue
        off = ", ".join(signed(level.bias) for level in levels[task, name])
        closer = nearer(levels[task, name], published)
        than = "" if name == "rpc-published" else f"; closer than published at {closer} of 5 levels"
        lines.append(f"* {TITLES[name]}: {off}{than}")
    excess = [
        one.mean - right.mean for one, right in zip(published, levels[task, "rpc"], strict=True)
    ]
    above = sum(one > 0 for one in excess)
    low = sum(level.bias < 0 for level in levels[task, "rpc"])
    biases = "\n".join(lines)
    return (
        f"With trained critics, {task}, bias in nats:\n\n{biases}\n\nThe right read-out is too low "
        f"at {low} of 5 levels: a critic short of its optimum reads low. From the same scores the "
        f"published one reads more at {above} of 5, by up to {max(excess):.2f}: where it comes "
        "closer to the truth, two errors of opposite sign meet."
    )


def nearer(ours: Sequence[Level], theirs: Sequence[Level]) -> int:
    """At how many levels our absolute bias is smaller."""
    return sum(abs(one.bias) < abs(other.bias) for one, other in zip(ours, theirs, strict=True))


def errors(levels: Levels, when: str = "") -> Iterable[str]:
    """Mean squared error over the five levels, best first."""
    for task in TASKS:
        found = {
            name: sum(level.mse for level in levels[task, name]) / len(LEVELS)
            for name in TITLES
            if (task, name) in levels
        }
        if found:
            ranked = sorted(found, key=lambda name: _last_if_broken(found[name]))
            best = "; ".join(f"{TITLES[name]} {short(found[name])}" for name in ranked)
            yield f"**Mean squared error over all levels, {task}{when}**, best first: {best}."


def _last_if_broken(error: float) -> float:
    return error if math.isfinite(error) else math.inf


def listed(words: Sequence[str]) -> str:
    """The words with commas, or "none".

    Example:
        >>> listed(["2", "4"]), listed([])
        ('2, 4', 'none')
    """
    return ", ".join(words) or "none"

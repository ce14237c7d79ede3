"""What the numbers say of the published claims; every word of it is computed."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

from .oracle import Oracle
from .summary import TITLES, Level
from .task import LEVELS, TASKS

__all__ = ["verdicts"]

Levels = Mapping[tuple[str, str], Sequence[Level]]
Outside = Mapping[str, Sequence[tuple[float, float]]]

# Below this ratio of two scatters we call them equal: a scatter from n steps of each of two seeds
# is known to about 1/√(4 n), 4 % for the 300 steps of the short schedule.
_EQUAL = 1.1


def verdicts(levels: Levels, outside: Outside, perfect: Oracle) -> Iterable[str]:
    """Paragraphs, each about one claim; those without cells are left out."""
    yield from _scatter(levels, "smile", "RPC varies less than SMILE")
    for rival in ("doe", "doe-logistic"):
        yield from _scatter(levels, rival, f"RPC is more stable than {TITLES[rival]}")
    yield from _below_floor(levels, perfect)
    yield from _range(outside)
    yield from _read_outs(levels, perfect)
    yield from _errors(levels)


def _scatter(levels: Levels, rival: str, claim: str) -> Iterable[str]:
    """Noise of each RPC reading over the rival's, per task and level."""
    said = []
    for name in ("rpc", "rpc-logit", "rpc-published"):
        for task in TASKS:
            if (task, name) not in levels or (task, rival) not in levels:
                continue
            ratios = [
                ours.noise / theirs.noise
                for ours, theirs in zip(levels[task, name], levels[task, rival], strict=True)
            ]
            lower = sum(ratio < 1 / _EQUAL for ratio in ratios)
            higher = sum(ratio > _EQUAL for ratio in ratios)
            listed = ", ".join(f"{ratio:.2f}" for ratio in ratios)
            said.append(
                f"* {TITLES[name]}, {task}: lower at {lower}, higher at {higher} of {len(ratios)} "
                f"levels (noise over noise: {listed})"
            )
    if said:
        lines = "\n".join(said)
        yield (
            f"**{claim}?** Scatter from batch to batch, ours over theirs at 2, 4, 6, 8, 10 nats; "
            f"within 10 % counts as equal.\n\n{lines}"
        )


def _below_floor(levels: Levels, perfect: Oracle) -> Iterable[str]:
    """Which readings scatter less than exact log ratios of the same batches would?"""
    floors = {level["truth"]: level["floor"] for level in perfect["levels"]}
    said = []
    for (task, name), found in levels.items():
        low = [f"{one.truth:g}" for one in found if one.noise * _EQUAL < floors[one.truth]]
        if low:
            said.append(f"{TITLES[name]} on *{task}* at {_listed(low)} nats")
    if said:
        listed = ", ".join(f"{floors[truth]:.2f}" for truth in LEVELS)
        yield (
            "**Is little scatter a virtue?** The mean of the exact log ratios of a batch scatters "
            f"by {listed}. Readings that scatter less do so because they do not follow the log "
            f"ratios, by saturation, by their ceiling or for want of training: {'; '.join(said)}."
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
        f"perfect critic it reads too much at {_listed(over)} nats and too little at "
        f"{_listed(under)}; the right one is exact. So that error is the read-out's, and not the "
        "training's."
    )
    said = []
    for task in TASKS:
        if (task, "rpc") not in levels:
            continue
        published = levels[task, "rpc-published"]
        signs = ", ".join(f"{level.bias:+.2f}" for level in published)
        better = {
            name: sum(
                abs(ours.bias) < abs(theirs.bias)
                for ours, theirs in zip(levels[task, name], published, strict=True)
            )
            for name in ("rpc", "rpc-logit")
            if (task, name) in levels
        }
        counts = ", ".join(f"{TITLES[name]} at {count}" for name, count in better.items())
        said.append(
            f"* {task}: bias of the published read-out {signs}; closer to the truth than it: "
            f"{counts} of {len(published)} levels"
        )
    if said:
        lines = "\n".join(said).replace(" -", " −")
        yield f"With trained critics:\n\n{lines}"


def _errors(levels: Levels) -> Iterable[str]:
    """Mean squared error over the five levels, best first."""
    for task in TASKS:
        errors = {
            name: sum(level.mse for level in levels[task, name]) / len(LEVELS)
            for name in TITLES
            if (task, name) in levels
        }
        if errors:
            ranked = sorted(errors, key=lambda name: _last_if_broken(errors[name]))
            listed = "; ".join(f"{TITLES[name]} {errors[name]:.2f}" for name in ranked)
            yield f"**Mean squared error over all levels, {task}**, best first: {listed}."


def _last_if_broken(error: float) -> float:
    return error if math.isfinite(error) else math.inf


def _listed(words: Sequence[str]) -> str:
    return "none" if not words else ", ".join(words)

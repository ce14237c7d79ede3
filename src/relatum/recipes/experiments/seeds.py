"""The records of an experiment by what was trained and by seed, and what they say over seeds."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from .cells import Record
from .statistics import level

__all__ = ["Runs", "accuracy", "by_seed", "ended", "shared", "values"]

Runs = Mapping[int, Record]
"""The records of one setting, by seed."""


def by_seed(records: Mapping[str, Record]) -> dict[str, dict[int, Record]]:
    """Records by what their names say before the seed, and by seed.

    Args:
        records: By names that end in a separator and the seed: "rpc-32-0", "cifar10_conv_rpc_0".

    Example:
        >>> by_seed({"rpc-32-10": {"a": 1}, "rpc-32-2": {"a": 2}})
        {'rpc-32': {2: {'a': 2}, 10: {'a': 1}}}
    """
    found: dict[str, dict[int, Record]] = {}
    for name, record in records.items():
        key, seed = re.split(r"[-_](?=\d+$)", name)
        found.setdefault(key, {})[int(seed)] = record
    return {key: dict(sorted(runs.items())) for key, runs in found.items()}


def values(runs: Runs, measure: str = "linear") -> dict[int, float]:
    """A measure by seed, where it could be taken."""
    found = {seed: record["measures"].get(measure) for seed, record in runs.items()}
    return {seed: float(value) for seed, value in found.items() if value is not None}


def shared(a: Mapping[int, float], b: Mapping[int, float]) -> tuple[list[float], list[float]]:
    """The values of the seeds that both have, in one order: a pair is two trainings of one seed.

    Example:
        >>> shared({0: 0.5, 1: 0.6}, {1: 0.6, 2: 0.7})
        ([0.6], [0.6])
    """
    seeds = sorted(a.keys() & b.keys())
    return [a[seed] for seed in seeds], [b[seed] for seed in seeds]


def ended(runs: Runs) -> dict[int, int]:
    """The steps, by seed, at which a loss or gradient that is not finite ended a training."""
    steps = {
        seed: record.get("training", {}).get("nonfinite_step") for seed, record in runs.items()
    }
    return {seed: step for seed, step in steps.items() if step is not None}


def accuracy(runs: Runs, measure: str = "linear") -> str:
    """Mean and half width over seeds in percent, or why there is none.

    A cross stands where a loss that is not finite ended a training; "2 of 3 seeds" where features
    of the others are not finite.
    """
    if not any(measure in record["measures"] for record in runs.values()):
        return "not run"
    known: Sequence[float] = list(values(runs, measure).values())
    if not known:
        return "features not finite"
    part = f" ({len(known)} of {len(runs)} seeds)" if len(known) < len(runs) else ""
    return level(known) + part + (" ×" if ended(runs) else "")

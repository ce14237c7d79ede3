"""Errors and times of ``mi_peers.py``, and whether they meet the targets."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import fmean, median
from typing import TYPE_CHECKING

from mi_contestants import CONTESTANTS, Contestant

if TYPE_CHECKING:
    from mi_peers import Cell

    from relatum.mi.tasks import Task

OURS = "relatum rpc"
IN_CLOSED_FORM = "relatum rpc, kernel"  # the same without a network
FASTER = 5.0


@dataclass(frozen=True)
class Score:
    """What one contestant did.

    A task counts as done if every seed gave a finite value; an estimator that fails on a task is
    not charged for it in its mean, which is kind to it.
    """

    contestant: Contestant
    cells: Sequence[Cell]
    tasks: Sequence[Task]

    @cached_property
    def rmse(self) -> dict[str, float]:
        """sqrt(mean over seeds of (estimate − truth)²) in nats, by task, of the tasks done."""
        found = {}
        for task in self.tasks:
            same = [cell for cell in self.cells if cell.task == task.name]
            if same and all(cell.value is not None for cell in same):
                found[task.name] = math.sqrt(fmean((c.value - c.truth) ** 2 for c in same))
        return found

    @property
    def failed(self) -> list[str]:
        """Tasks with a seed that gave no finite number."""
        return [t for t in dict.fromkeys(cell.task for cell in self.cells) if t not in self.rmse]

    def mean(self, tasks: Sequence[str]) -> float:
        """Of the RMSE over these tasks."""
        return fmean(self.rmse[task] for task in tasks)

    def seconds(self, tasks: Sequence[str]) -> float:
        """Median over tasks and seeds."""
        return median(cell.seconds for cell in self.cells if cell.task in tasks)

    @property
    def compiling(self) -> float:
        """Share of the time that went into JAX's compiler."""
        return sum(c.compiling for c in self.cells) / max(sum(c.wall for c in self.cells), 1e-9)

    def shared(self, other: Score) -> list[str]:
        """Tasks that both have done."""
        return [task for task in self.rmse if task in other.rmse]


def compared(
    scores: Mapping[str, Score], kinds: Sequence[str], ours: str = OURS
) -> list[tuple[Score, list[str]]]:
    """Peers of these kinds, each with the tasks that it and ours do."""
    if ours not in scores:
        return []
    rivals = [score for score in scores.values() if score.contestant.kind in kinds]
    pairs = [(score, score.shared(scores[ours])) for score in rivals]
    return [(score, shared) for score, shared in pairs if shared]


def faster(scores: Mapping[str, Score], name: str) -> tuple[str, str, bool | None]:
    text = f"At equal RMSE at least {FASTER:g} times faster than every neural peer: `{name}`"
    pairs = compared(scores, ["neural"], name)
    if not pairs:
        return text, "", None
    ours = scores[name]
    worse = [s.contestant.name for s, shared in pairs if ours.mean(shared) > s.mean(shared)]
    ratios = {s.contestant.name: s.seconds(t) / ours.seconds(t) for s, t in pairs}
    least = min(ratios, key=lambda name: ratios[name])
    found = (
        f"{ratios[least]:.2g} to {max(ratios.values()):.2g} times ({least} is the fastest of "
        f"them); {sum(r >= FASTER for r in ratios.values())} of {len(ratios)} reach {FASTER:g}; "
        f"our RMSE is the higher one beside {listed(worse)}"
    )
    return text, *judged(found, not worse and ratios[least] >= FASTER, absent(scores, ["neural"]))


def lowest(scores: Mapping[str, Score], tasks: int) -> tuple[str, str, bool | None]:
    text = "Lowest mean RMSE over the task list, and over the part of it that each peer does"
    pairs = compared(scores, ["neural", "classical"])
    if not pairs:
        return text, "", None
    ours = scores[OURS]
    better = [s.contestant.name for s, shared in pairs if s.mean(shared) < ours.mean(shared)]
    found = (
        f"{ours.mean([*ours.rmse]):.3f} nats on {len(ours.rmse)} of {tasks} tasks; lower on their "
        f"own part of it: {listed(better)}"
    )
    met = not better and len(ours.rmse) == tasks
    return text, *judged(found, met, absent(scores, ["neural", "classical"]))


def absent(scores: Mapping[str, Score], kinds: Sequence[str]) -> list[str]:
    """Peers of these kinds that have not run."""
    return [c.name for c in CONTESTANTS if c.kind in kinds and c.name not in scores]


def judged(found: str, met: bool, unmeasured: Sequence[str]) -> tuple[str, bool | None]:
    """A target that is met so far is not judged before everybody has run."""
    if not unmeasured:
        return found, met
    return f"{found}; not run: {listed(unmeasured)}", None if met else False


def listed(names: Sequence[str]) -> str:
    return ", ".join(names) or "none"

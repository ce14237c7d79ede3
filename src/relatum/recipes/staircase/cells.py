"""One cell: one training on one task with one seed, kept as one JSON file."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float64

from ...runs import RunError, atomic_write, strict_json
from .estimators import READINGS, TRAININGS
from .task import LEVELS, TASKS, level_of, sample_pairs

__all__ = ["BLOCK", "Cell", "Plan", "read_cells", "read_folder", "read_json", "train_cell"]

BLOCK = 20  # steps that a point of a curve is the mean of

# y³ has this standard deviation. Densities are fitted to y in units of it: mutual information does
# not change, and a fit that starts far too narrow would say more of the start than of the method.
CUBIC_SCALE = math.sqrt(15)


@dataclass(frozen=True)
class Plan:
    """What all cells share.

    Attributes:
        steps: Updates in all, an equal share at each level.
        width: Of both hidden layers.
        batch_size: Fresh pairs a step.
        learning_rate: Of Adam.
        seeds: Seeds 0, 1, ...
        trainings: Names of what is trained.
    """

    steps: int
    width: int
    batch_size: int
    learning_rate: float
    seeds: int
    trainings: tuple[str, ...] = tuple(TRAININGS)

    def cells(self) -> list[Cell]:
        """All cells, seeds outermost: a run that is cut short has one seed of everything."""
        every = product(range(self.seeds), TASKS, self.trainings)
        return [Cell(task, training, seed) for seed, task, training in every]


@dataclass(frozen=True)
class Cell:
    """One training on one task with one seed."""

    task: str
    training: str
    seed: int

    @property
    def name(self) -> str:
        """Such as gaussian-rpc-0."""
        return f"{self.task}-{self.training}-{self.seed}"

    def path(self, folder: Path) -> Path:
        """Where the cell is kept."""
        return folder / f"{self.name}.json"


def train_cell(cell: Cell, plan: Plan, folder: Path, advance: Callable[[], None]) -> None:
    """Trains through the whole schedule and writes the cell; `advance` is called after each step.

    All trainings of one seed see the same samples. An estimate is read before the update of its
    batch, so none is of data trained on.
    """
    began = time.perf_counter()
    # The caller's random state is left alone.
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(cell.seed)
        model = TRAININGS[cell.training](plan.width)
    samples = torch.Generator().manual_seed(10_000 + cell.seed)
    optimiser = torch.optim.Adam(model.parameters(), lr=plan.learning_rate)
    curves = {name: np.empty(plan.steps) for name in READINGS[cell.training]}
    outside = np.zeros((plan.steps, 2))
    cubic = cell.task == "cubic"
    scale = CUBIC_SCALE if cubic and cell.training.startswith("doe") else 1.0
    for step in range(plan.steps):
        information = LEVELS[level_of(step, plan.steps)]
        x, y = sample_pairs(information, plan.batch_size, cubic=cubic, generator=samples)
        batch = model(x, y / scale)
        for name, value in batch.readings.items():
            curves[name][step] = value
        outside[step] = batch.below, batch.above
        optimiser.zero_grad()
        batch.loss.backward()
        if math.isfinite(model.max_norm):
            torch.nn.utils.clip_grad_norm_(model.parameters(), model.max_norm)
        optimiser.step()
        advance()
    record = {
        "plan": _shared(plan),
        "cell": asdict(cell),
        "seconds": round(time.perf_counter() - began, 1),
        "readings": {name: _summary(curve) for name, curve in curves.items()},
        "outside": _shares(outside / plan.batch_size),
    }
    atomic_write(cell.path(folder), strict_json(record).encode() + b"\n")


def read_cells(plan: Plan, folder: Path) -> dict[Cell, dict[str, Any]]:
    """The finished cells.

    Raises:
        RunError: If a cell was made with other settings, or is damaged.
    """
    found = {}
    for cell in plan.cells():
        path = cell.path(folder)
        if not path.exists():
            continue
        record = read_json(path)
        if record.get("plan") != _shared(plan):
            raise RunError(
                f"{path} was made with {record.get('plan')}, not {_shared(plan)}; choose another "
                "--out"
            )
        found[cell] = record
    return found


def read_folder(folder: Path) -> tuple[Plan, dict[Cell, dict[str, Any]]]:
    """The finished cells of a folder, and the plan that they were made with.

    Raises:
        RunError: If there are none, if they do not share their settings, or if one is damaged.
    """
    records = [read_json(path) for path in sorted(folder.glob("*-*-*.json"))]
    if not records:
        raise RunError(f"{folder} has no finished cell")
    cells = [Cell(**record["cell"]) for record in records]
    trainings = {cell.training for cell in cells}
    plan = Plan(
        **records[0]["plan"],
        seeds=1 + max(cell.seed for cell in cells),
        trainings=tuple(name for name in TRAININGS if name in trainings),
    )
    return plan, read_cells(plan, folder)


def read_json(path: Path) -> Any:
    """Strict JSON with its numbers that are none put back.

    Raises:
        RunError: If the file is not JSON.
    """

    def number(entry: dict[str, Any]) -> Any:
        return float(entry["reason"]) if entry.keys() == {"value", "reason"} else entry

    try:
        return json.loads(path.read_text(encoding="utf-8"), object_hook=number)
    except json.JSONDecodeError as error:
        raise RunError(f"{path} is damaged: it is not valid JSON ({error}); remove it") from None


def _shared(plan: Plan) -> dict[str, Any]:
    """What must agree for a cell to be taken over; seeds and trainings only say which there are."""
    counted = ("seeds", "trainings")
    return {name: value for name, value in asdict(plan).items() if name not in counted}


def _summary(curve: Float64[np.ndarray, " steps"]) -> dict[str, Any]:
    """The curve in blocks, and each level by the last half of its steps."""
    blocks = np.split(curve, range(BLOCK, len(curve), BLOCK))
    return {
        "curve": [round(float(block.mean()), 4) for block in blocks],
        "levels": [
            _level(truth, part) for truth, part in zip(LEVELS, _last_halves(curve), strict=True)
        ],
    }


def _level(truth: float, part: Float64[np.ndarray, " steps"]) -> dict[str, float]:
    """Mean, scatter and error of the estimates at one level.

    ``noise`` is the root mean square of successive differences over √2: the batches' own scatter,
    without the slow climb of a critic that is still learning. ``sd`` has both.
    """
    with np.errstate(invalid="ignore", over="ignore"):
        return {
            "truth": truth,
            "mean": float(part.mean()),
            "sd": float(part.std(ddof=1)),
            "noise": float(np.sqrt(np.mean(np.diff(part) ** 2) / 2)),
            "median": float(np.median(part)),
            "mse": float(np.mean((part - truth) ** 2)),
            "not_finite": int((~np.isfinite(part)).sum()),
        }


def _shares(outside: Float64[np.ndarray, "steps 2"]) -> list[dict[str, float]]:
    """Share of positives at or below and at or above the ends of the range, by level."""
    return [
        {"below": float(part[:, 0].mean()), "above": float(part[:, 1].mean())}
        for part in _last_halves(outside)
    ]


def _last_halves(values: np.ndarray) -> list[np.ndarray]:
    """The last half of each level's steps."""
    levels = np.array([level_of(step, len(values)) for step in range(len(values))])
    parts = [values[levels == level] for level in range(len(LEVELS))]
    return [part[len(part) // 2 :] for part in parts]

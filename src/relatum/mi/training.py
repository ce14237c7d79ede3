"""The training of a critic: steps, and the look at other rows that ends them."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
import torch
from jaxtyping import Float64, Int64
from torch import Tensor, nn

from ..base import Objective, Scores
from ..critics import JointMLP, TwoTower
from ..scores import from_matrix, sampled
from .fitted import Begun, Prepared, log_ratios
from .links import Link
from .objectives import Baselined
from .start import Side, Start

__all__ = ["End", "Judge", "Network", "Training", "train_network"]

Network = JointMLP | TwoTower | Baselined

_ALL_PAIRS: Final = 512  # validation rows of which the start is chosen by all pairs
_LOOKED: Final = 2000  # validation rows that end the training
_MAX_NORM: Final = 10.0  # of a gradient: exponentials of scores can explode in a single step


@dataclass(frozen=True)
class Training:
    """How a critic is trained.

    Attributes:
        width: Width of the two hidden layers.
        learning_rate: Of AdamW.
        weight_decay: Of AdamW.
        batch_size: Pairs in a step.
        negatives: Other rows of the batch that each x is paired with, by shifts.
        steps: Updates at most.
        check_every: Updates between looks at the validation rows.
        patience: Looks without a better value before training ends.
    """

    width: int = 64
    learning_rate: float = 5e-3
    weight_decay: float = 1e-3
    batch_size: int = 128
    negatives: int = 8
    steps: int = 600
    check_every: int = 20
    patience: int = 5

    def __post_init__(self) -> None:
        """Checks the numbers."""
        for name in ("width", "batch_size", "negatives", "steps", "check_every", "patience"):
            if getattr(self, name) < (2 if name == "batch_size" else 1):
                least = 2 if name == "batch_size" else 1
                raise ValueError(f"{name} must be at least {least}, got {getattr(self, name)}")
        if not 0 < self.learning_rate < math.inf:
            raise ValueError(f"learning_rate must be positive, got {self.learning_rate}")
        if not 0 <= self.weight_decay < math.inf:
            raise ValueError(f"weight_decay must not be negative, got {self.weight_decay}")


class Judge:
    """The objective on the validation rows, in evaluation and without gradient.

    Each row is paired with all others up to 65 rows, and with 64 shifts of them beyond. Of many
    validation rows the first 2,000 are looked at.
    """

    def __init__(self, objective: Objective, link: Link, held: Prepared) -> None:
        self.objective, self.link, self.held = objective, link, held
        n = min(len(held.x), _LOOKED)
        shifts = np.unique(np.linspace(0, n - 1, min(n, 65)).astype(int))
        self.rows = np.arange(n)
        self.columns = (self.rows[:, None] + shifts) % n

    @property
    def few(self) -> tuple[Side, Side]:
        """Validation rows so few that all their pairs fit into one matrix."""
        return self.held.x[:_ALL_PAIRS], self.held.y[:_ALL_PAIRS]

    def of_matrix(self, logs: Float64[np.ndarray, "m m"]) -> float:
        """At the log ratios of all pairs of the few."""
        return self._value(from_matrix(self.link(torch.from_numpy(logs))))

    def of_columns(self, logs: Tensor) -> float:
        """At log ratios of each row with its own y, in the first column, and with others."""
        scores = self.link(logs)
        return self._value(sampled(scores[:, 0], scores[:, 1:]))

    def __call__(self, begun: Tensor, network: Network) -> float:
        """At the network on top of what :meth:`begun` says."""
        with torch.no_grad():
            return self.of_columns(log_ratios(begun, network, self.held, self.rows, self.columns))

    def begun(self, start: Start | None) -> Tensor:
        """What the start says of the validation pairs; it stays the same."""
        return Begun(start, self.held, None)(self.rows, self.columns)

    def _value(self, scores: Scores) -> float:
        quiet = copy.deepcopy(self.objective)
        if isinstance(quiet, nn.Module):
            quiet.eval()
        return float(quiet(scores))


class End(NamedTuple):
    """How training ended: steps made, the best one, and notes."""

    steps: int
    best_step: int
    notes: tuple[str, ...]


def train_network(
    network: Network,
    start: Start | None,
    judge: Judge,
    train: Prepared,
    plan: Training,
    seed: int,
) -> End:
    """Steps until the validation value rises no more; leaves the network at its best."""
    optimizer = torch.optim.AdamW(
        network.parameters(), plan.learning_rate, weight_decay=plan.weight_decay
    )
    begun, held = Begun.of(start, train), judge.begun(start)
    best, best_step, worse, lost, step = judge(held, network), 0, 0, 0, 0
    state = copy.deepcopy(network.state_dict())
    for step, (rows, columns) in enumerate(_batches(len(train.x), plan, seed), 1):
        scores = judge.link(log_ratios(begun(rows, columns), network, train, rows, columns))
        loss = -judge.objective(sampled(scores[:, 0], scores[:, 1:]))
        optimizer.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        norm = nn.utils.clip_grad_norm_(network.parameters(), _MAX_NORM)
        if not torch.isfinite(norm):
            lost += 1
        else:
            optimizer.step()
        if step % plan.check_every == 0 or step == plan.steps:
            value = judge(held, network)
            if value > best or not math.isfinite(best):
                best, best_step, worse = value, step, 0
                state = copy.deepcopy(network.state_dict())
            else:
                worse += 1
        if worse >= plan.patience:
            break
    network.load_state_dict(state)
    return End(step, best_step, _notes(best, best_step, step, lost, plan))


def _notes(best: float, best_step: int, steps: int, lost: int, plan: Training) -> tuple[str, ...]:
    notes = []
    if not math.isfinite(best):
        notes.append(
            "the objective was never finite on the validation rows: the value means nothing"
        )
    if lost:
        notes.append(
            f"{lost} of {steps} steps had a gradient that was not finite and were left out"
        )
    if steps == plan.steps and best_step > max(0, steps - 2 * plan.check_every):
        notes.append(
            f"not converged: the validation value still rose at the last of {steps} steps; "
            "raise steps"
        )
    return tuple(notes)


def _batches(
    n: int, plan: Training, seed: int
) -> Iterator[tuple[Int64[np.ndarray, " b"], Int64[np.ndarray, "b k"]]]:
    """Rows of each step, and with each its own column and those of some shifts of the batch."""
    random = np.random.default_rng(seed)
    size = min(plan.batch_size, n)
    for step in range(plan.steps):
        place = step % (n // size)
        if place == 0:
            order = random.permutation(n)
        rows = order[place * size : (place + 1) * size]
        shifts = random.permutation(size - 1)[: plan.negatives] + 1
        shifts = np.concatenate([[0], shifts])
        yield rows, rows[(np.arange(size)[:, None] + shifts) % size]

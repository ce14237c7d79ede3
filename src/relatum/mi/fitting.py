"""Fitting a critic to pairs, so that its log density ratio can be read on other pairs."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, Literal, NamedTuple, cast, get_args

import numpy as np
import torch
from jaxtyping import Float64, Int64
from torch import Tensor, nn

from ..base import Critic, Objective
from ..critics import JointMLP, TwoTower
from ..objectives import RPC
from ..scores import sampled
from .fitted import Begun, FittedCritic, Prepared, log_ratios
from .links import Link, link_of, raw_scores
from .margins import NormalScores
from .objectives import TUBA, Baselined
from .start import Side, Start

__all__ = ["CRITICS", "CriticName", "Form", "Training", "fit_critic"]

CriticName = Literal["residual", "joint", "separable", "kernel"]
CRITICS: Final = get_args(CriticName)
Form = Literal["logit", "raw"]

Network = JointMLP | TwoTower | Baselined

DEFAULT_OBJECTIVE: Final = RPC(1.0, 0.05, 1.0)

_ALL_PAIRS: Final = 512  # validation rows of which the start is chosen by all pairs
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


def fit_critic(
    x: Side,
    y: Side,
    *,
    valid: tuple[Side, Side],
    objective: Objective = DEFAULT_OBJECTIVE,
    critic: CriticName | None = None,
    form: Form = "logit",
    seed: int = 0,
    **training: float,
) -> FittedCritic:
    """Fits a critic by an objective, and stops where the validation rows say so.

    Columns become normal scores first. Then, by `critic`:

    * ``"residual"``: a joint network that is added to a start in closed form (:class:`Start`) and
      is 0 at first, so it says something only where the validation rows agree;
    * ``"joint"``: the network alone, from random weights;
    * ``"separable"``: an inner product of one network of x and one of y;
    * ``"kernel"``: the start alone, without training.

    Args:
        x: One side, (n, dx).
        y: The other side.
        valid: Rows outside of these, that choose the start's shares and the best step.
        objective: Of :mod:`relatum.objectives` or :mod:`relatum.mi.objectives`; RPC with
            β/γ = 0.05 by default.
        critic: One of the above; by default "residual", and "joint" for raw scores.
        form: "logit": the critic outputs u = log r and the objective sees its score, which cannot
            leave the range of the optimal critic. "raw", for RPC: it outputs the score itself, as
            published; then there is no start.
        seed: Of weights and batches.
        training: Fields of :class:`Training`, by name.

    Raises:
        ValueError: If a name or number is out of range, or a start has fewer than 10 rows.
    """
    if form not in get_args(Form):
        raise ValueError(f"form must be 'logit' or 'raw', got {form!r}")
    critic = critic or ("joint" if form == "raw" else "residual")
    if critic not in CRITICS:
        raise ValueError(f"critic must be one of {', '.join(CRITICS)}, got {critic!r}")
    if form == "raw" and not (isinstance(objective, RPC) and critic in ("joint", "separable")):
        raise ValueError(
            "form 'raw' is for RPC with critic 'joint' or 'separable': other objectives know no "
            f"range, and a start is a log ratio; got {objective!r} with {critic!r}"
        )
    plan = _plan(training)
    margins = NormalScores.fit(x), NormalScores.fit(y)
    train = Prepared.of(margins[0](x), margins[1](y))
    link = link_of(objective) if form == "logit" else raw_scores
    held = Prepared.of(margins[0](valid[0]), margins[1](valid[1]))
    judge = _Judge(objective, link, held)
    start = None
    if critic in ("residual", "kernel"):
        start = Start.fit(
            train.x, train.y, judge.few, value=judge.of_matrix, objective=objective, seed=seed
        )
    network, end = None, _End(0, 0, ())
    if critic != "kernel":
        network = _network(critic, objective, plan.width, train, seed)
        end = _train(network, start, judge, train, plan, seed)
    if start is not None:
        # All that had to be chosen by the validation rows is chosen: the start may learn from them.
        both = [np.concatenate(sides) for sides in ((train.x, held.x), (train.y, held.y))]
        start = start.refit(*both)
    return FittedCritic(
        objective, link, *margins, start, network, end.steps, end.best_step, end.notes
    )


def _plan(training: dict[str, Any]) -> Training:
    known = Training.__dataclass_fields__
    for name in training:
        if name not in known:
            raise ValueError(f"unknown option {name!r}; known are critic, form, {', '.join(known)}")
    return Training(**training)


class _Judge:
    """The objective on the validation rows, in evaluation and without gradient.

    Each row is paired with all others up to 65 rows, and with 64 shifts of them beyond.
    """

    def __init__(self, objective: Objective, link: Link, held: Prepared) -> None:
        self.objective, self.link, self.held = objective, link, held
        n = len(held.x)
        shifts = np.unique(np.linspace(0, n - 1, min(n, 65)).astype(int))
        self.rows = np.arange(n)
        self.columns = (self.rows[:, None] + shifts) % n

    @property
    def few(self) -> tuple[Side, Side]:
        """Validation rows so few that all their pairs fit into one matrix."""
        return self.held.x[:_ALL_PAIRS], self.held.y[:_ALL_PAIRS]

    def of_matrix(self, logs: Float64[np.ndarray, "m m"]) -> float:
        """At the log ratios of all pairs of the few."""
        n = len(logs)
        shifted = (np.arange(n)[:, None] + np.arange(n)) % n
        return self._value(torch.from_numpy(np.take_along_axis(logs, shifted, 1)))

    def __call__(self, begun: Tensor, network: Network) -> float:
        """At the network on top of what :meth:`begun` says."""
        with torch.no_grad():
            return self._value(log_ratios(begun, network, self.held, self.rows, self.columns))

    def begun(self, start: Start | None) -> Tensor:
        """What the start says of the validation pairs; it stays the same."""
        return Begun(start, self.held, None)(self.rows, self.columns)

    def _value(self, logs: Tensor) -> float:
        scores = self.link(logs)
        quiet = copy.deepcopy(self.objective)
        if isinstance(quiet, nn.Module):
            quiet.eval()
        return float(quiet(sampled(scores[:, 0], scores[:, 1:])))


class _End(NamedTuple):
    steps: int
    best_step: int
    notes: tuple[str, ...]


def _network(
    critic: CriticName, objective: Objective, width: int, sides: Prepared, seed: int
) -> Network:
    dx, dy = sides.tensor_x.shape[1], sides.tensor_y.shape[1]
    # The caller's stream of random numbers stays where it is.
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        network: JointMLP | TwoTower
        if critic == "separable":
            network = TwoTower(_tower(dx, width), _tower(dy, width))
        else:
            network = JointMLP(dx, dy, hidden=(width, width))
            if critic == "residual":
                _to_zero(network.rest[-1])
        if isinstance(objective, TUBA):
            return Baselined(cast(Critic, network), _to_zero(nn.Linear(dy, 1)))
    return network


def _tower(dim: int, width: int) -> nn.Sequential:
    return nn.Sequential(
        *(nn.Linear(dim, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU()),
        nn.Linear(width, width),
    )


def _to_zero(layer: nn.Module) -> nn.Module:
    for parameter in layer.parameters():
        nn.init.zeros_(parameter)
    return layer


def _train(
    network: Network,
    start: Start | None,
    judge: _Judge,
    train: Prepared,
    plan: Training,
    seed: int,
) -> _End:
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
        if step % plan.check_every == 0:
            value = judge(held, network)
            if value > best or not math.isfinite(best):
                best, best_step, worse = value, step, 0
                state = copy.deepcopy(network.state_dict())
            else:
                worse += 1
        if worse >= plan.patience:
            break
    network.load_state_dict(state)
    return _End(step, best_step, _notes(best, best_step, step, lost, plan))


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
    if steps == plan.steps and best_step > steps - 2 * plan.check_every:
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

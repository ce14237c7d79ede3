"""Fitting a critic to pairs, so that its log density ratio can be read on other pairs."""

from __future__ import annotations

from typing import Any, Final, Literal, cast, get_args

import numpy as np
import torch
from torch import nn

from ..base import Critic, Objective
from ..critics import JointMLP, TwoTower
from ..objectives import RPC
from .fitted import FittedCritic, Prepared
from .links import link_of, raw_scores
from .margins import NormalScores
from .objectives import TUBA, Baselined
from .start import Side, Start
from .training import End, Judge, Network, Training, train_network

__all__ = ["CRITICS", "CriticName", "Form", "Training", "fit_critic"]

CriticName = Literal["residual", "joint", "separable", "kernel"]
CRITICS: Final = get_args(CriticName)
Form = Literal["logit", "raw"]

DEFAULT_OBJECTIVE: Final = RPC(1.0, 0.05, 1.0)


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
        critic: One of the above; by default "residual", but "joint" for raw scores, and "kernel"
            for RPC with β = 0 (chi2), where scores are exponentials and their squares explode.
        form: "logit": the critic outputs u = log r and the objective sees its score, which cannot
            leave the range of the optimal critic. "raw", for RPC: it outputs the score itself, as
            published; then there is no start.
        seed: Of weights and batches.
        training: Fields of :class:`Training`, by name.

    Raises:
        ValueError: If a name or number is out of range, or a start has fewer than 10 rows.
    """
    critic, plan = _chosen(critic, form, objective), _plan(training)
    margins = NormalScores.fit(x), NormalScores.fit(y)
    train = Prepared.of(margins[0](x), margins[1](y))
    link = link_of(objective) if form == "logit" else raw_scores
    held = Prepared.of(margins[0](valid[0]), margins[1](valid[1]))
    judge = Judge(objective, link, held)
    start = None
    if critic in ("residual", "kernel"):
        start = Start.fit(
            train.x, train.y, judge.few, value=judge.of_matrix, objective=objective, seed=seed
        )
    network, end = None, End(0, 0, ())
    if critic != "kernel":
        network = _network(critic, objective, plan.width, train, seed)
        end = train_network(network, start, judge, train, plan, seed)
    if start is not None:
        # All that had to be chosen by the validation rows is chosen: the start may learn from them.
        both = [np.concatenate(sides) for sides in ((train.x, held.x), (train.y, held.y))]
        start = start.refit(*both)
    return FittedCritic(
        objective, link, *margins, start, network, end.steps, end.best_step, end.notes
    )


def _chosen(critic: CriticName | None, form: Form, objective: Objective) -> CriticName:
    if form not in get_args(Form):
        raise ValueError(f"form must be 'logit' or 'raw', got {form!r}")
    if critic is None:
        explosive = isinstance(objective, RPC) and objective.beta == 0
        critic = "joint" if form == "raw" else "kernel" if explosive else "residual"
    if critic not in CRITICS:
        raise ValueError(f"critic must be one of {', '.join(CRITICS)}, got {critic!r}")
    if form == "raw" and not (isinstance(objective, RPC) and critic in ("joint", "separable")):
        raise ValueError(
            "form 'raw' is for RPC with critic 'joint' or 'separable': other objectives know no "
            f"range, and a start is a log ratio; got {objective!r} with {critic!r}"
        )
    return critic


def _plan(training: dict[str, Any]) -> Training:
    known = Training.__dataclass_fields__
    for name in training:
        if name not in known:
            raise ValueError(
                f"unknown option {name!r}; known are critic, form, {', '.join(known)}, and of "
                "method 'rpc' alpha, beta, gamma, readout, outside, of 'smile' tau"
            )
    return Training(**training)


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

"""Training an encoder on pairs of rows, until rows outside the training say stop."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Int64
from torch import Tensor

from ..base import Scores
from ..objectives import WPC
from ..penalty import gradient_penalty
from ..training import Plan
from ..training.loop import stream_seed
from .networks import Networks
from .pairs import Pair, Pairs

__all__ = [
    "History",
    "Regime",
    "batches",
    "fit_networks",
    "scores_of",
    "split_rows",
    "validate",
]

_PENALTY = 10.0  # of WPC's Lipschitz penalty, as everywhere in the library
_DRAWS = 3  # number of the stream that validation pairs are drawn from


@dataclass(frozen=True)
class Regime:
    """How long, in which portions, and what is said meanwhile.

    Attributes:
        batch_size: Pairs that are contrasted with each other.
        micro_batch_size: Pairs that pass through the towers at a time; None for all.
        steps: Most updates; None: one pass over the anchors.
        check_every: Updates between two looks at the validation pairs.
        patience: Looks without a better value after which training ends.
        seed: Of order and draws.
        keep_start: Whether the networks before any update are among those that may be kept.
        say: Told of the progress, or None.
    """

    batch_size: int
    micro_batch_size: int | None
    steps: int | None
    check_every: int
    patience: int
    seed: int
    keep_start: bool = False
    say: Callable[[str], None] | None = None


class History(NamedTuple):
    """What training came to.

    Attributes:
        steps: Updates made at each look.
        train: Mean objective of the batches since the look before.
        valid: Objective on the validation pairs; empty without such pairs.
        best: The updates after which the networks that were kept had been made.
        start: Objective on the validation pairs before any update; None without such pairs.
    """

    steps: list[int]
    train: list[float]
    valid: list[float]
    best: int
    start: float | None = None


def fit_networks(
    networks: Networks,
    optimizer: torch.optim.Optimizer,
    train: Pairs,
    valid: Pairs | None,
    regime: Regime,
    rate: float,
) -> History:
    """Trains in place and leaves the networks at their best by the validation pairs.

    Raises:
        FloatingPointError: If the loss becomes NaN or infinite.
    """
    anchors = train.anchors
    size = min(regime.batch_size, len(anchors))
    steps = len(anchors) // size if regime.steps is None else regime.steps
    plan = Plan(
        rows=len(anchors), batch_size=size, steps=steps, learning_rate=rate,
        warmup_steps=steps // 20, seed=regime.seed,
    )  # fmt: skip
    look = partial(validate, networks, valid, regime.batch_size, regime.seed) if valid else None
    history, values = History([], [], [], 0, look() if look else None), []
    best = history.start if regime.keep_start and history.start is not None else -math.inf
    kept = copy.deepcopy(networks.state_dict())
    for step in range(1, steps + 1):
        networks.train()
        values.append(_step(networks, optimizer, train, anchors, plan, step - 1, regime))
        if step % regime.check_every and step < steps:
            continue
        history.steps.append(step)
        history.train.append(float(np.mean(values)))
        values = []
        if look:
            value = look()
            history.valid.append(value)
            # Ties keep the earlier, and NaN is no progress.
            if value > best:
                best, kept = value, copy.deepcopy(networks.state_dict())
                history = history._replace(best=step)
        if regime.say:
            held = f", held out {history.valid[-1]:.4f}" if history.valid else ""
            regime.say(f"step {step} of {steps}: J {history.train[-1]:.4f}{held}")
        if look and sum(s > history.best for s in history.steps) >= regime.patience:
            break
    if look is None:
        return history._replace(best=steps)
    networks.load_state_dict(kept)
    return history


def _step(
    networks: Networks,
    optimizer: torch.optim.Optimizer,
    pairs: Pairs,
    anchors: Int64[Tensor, " a"],
    plan: Plan,
    step: int,
    regime: Regime,
) -> float:
    """One update; J before it."""
    [(places, seed)] = plan.batches(step)
    for group in optimizer.param_groups:
        group["lr"] = plan.rate(step)
    pair = pairs.draw(anchors[places], torch.Generator().manual_seed(seed))
    scores = networks.scores(pair, regime.micro_batch_size)
    loss = networks.loss.from_scores(scores)
    if isinstance(networks.loss.objective, WPC):
        loss = loss + _PENALTY * _excess(networks, pair)
    if not math.isfinite(float(loss.detach())):
        raise FloatingPointError(
            f"the loss became {float(loss.detach())} at step {step}: lower learning_rate, or take "
            "an objective or critic whose scores are bounded, such as 'rpc' with 'cosine'"
        )
    optimizer.zero_grad(set_to_none=True)
    torch.autograd.backward(loss)
    optimizer.step()
    temperature = getattr(networks.loss.critic, "temperature", None)
    if temperature is not None:
        temperature.cap_()
    with torch.no_grad():
        return float(networks.loss.objective(scores))


def _excess(networks: Networks, pair: Pair) -> Tensor:
    """How far the score is from 1-Lipschitz in the rows, with layers that tie rows at rest."""

    def score(x: Tensor, y: Tensor) -> Tensor:
        scores: Tensor = networks.loss.critic(networks.embed(x, "x"), networks.embed(y, "y"))
        return scores

    networks.eval()
    excess = gradient_penalty(score, pair.x, pair.y)
    networks.train()
    return excess


def batches(pairs: Pairs, size: int, seed: int) -> Iterator[Pair]:
    """All anchors in batches of one size, drawn by a seed; the rest that fills none is left out."""
    generator = torch.Generator().manual_seed(stream_seed(seed, _DRAWS, 0))
    anchors = pairs.anchors
    size = min(size, len(anchors))
    order = anchors[torch.randperm(len(anchors), generator=generator)]
    for start in range(0, len(order) - size + 1, size):
        yield pairs.draw(order[start : start + size], generator)


def validate(networks: Networks, pairs: Pairs, size: int, seed: int) -> float:
    """Mean J over batches of the pairs, the same at each call."""
    objective = networks.loss.objective
    return float(np.mean([float(objective(s)) for s in scores_of(networks, pairs, size, seed)]))


@torch.no_grad()
def scores_of(networks: Networks, pairs: Pairs, size: int, seed: int) -> Iterator[Scores]:
    """The scores of all batches, with the networks at rest."""
    networks.eval()
    for pair in batches(pairs, size, seed):
        yield networks.scores(pair)


def split_rows(
    rows: int, fraction: float, groups: Int64[np.ndarray, " n"] | None, seed: int, ordered: bool
) -> tuple[Int64[np.ndarray, " t"], Int64[np.ndarray, " v"]]:
    """Rows to train on and rows to stop by: whole groups, or the end of ordered rows."""
    if fraction == 0:
        return np.arange(rows), np.arange(0)
    if groups is not None and len(np.unique(groups)) > 1:
        kinds = np.random.default_rng(seed).permutation(np.unique(groups))
        held = np.isin(groups, kinds[: max(1, round(fraction * len(kinds)))])
        return np.flatnonzero(~held), np.flatnonzero(held)
    count = max(3 if ordered else 2, math.ceil(fraction * rows))
    order = np.arange(rows) if ordered else np.random.default_rng(seed).permutation(rows)
    return np.sort(order[: rows - count]), np.sort(order[rows - count :])

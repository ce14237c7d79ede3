"""The training loop: one function, read from top to bottom."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
import torch
from jaxtyping import Float, Int64
from torch import Tensor

from ..distributed import ALONE, Group, average_gradients
from ..runs import Run
from .checkpoint import TrainingState, save_checkpoint
from .monitor import Monitor
from .optim import warmup_cosine

__all__ = ["NonFiniteLoss", "Plan", "Step", "StepOutput", "stream_seed", "train"]

# Numbers of the streams of random numbers that stream_seed tells apart.
ORDER, DRAWS, LAYERS = 0, 1, 2

# A loss scaler halves its factor on each overflow; below 1 nothing is left to scale away.
SMALLEST_SCALE = 1.0

Readings = Mapping[str, float | None]

Watch = Callable[[int], Readings]
"""Called with the number of finished steps; what it returns is logged, mostly nothing."""


class NonFiniteLoss(RuntimeError):
    """The loss or its gradient became NaN or infinite.

    Attributes:
        step: The step that could not be finished, counted from 0.
        terms: What the objective saw in that step.
    """

    def __init__(self, what: str, step: int, terms: Readings, checkpoint: str) -> None:
        # A process hands its exception on as type and args, so these are the arguments.
        super().__init__(what, step, dict(terms), checkpoint)
        self.step = step
        self.terms = dict(terms)

    def __str__(self) -> str:
        what, step, terms, checkpoint = self.args
        shown = ", ".join(
            f"{name} {value:.6g}" for name, value in terms.items() if value is not None
        )
        return (
            f"{what} at step {step} ({shown}); training stopped, the last good checkpoint is "
            f"{checkpoint}"
        )


class StepOutput(NamedTuple):
    """What one batch gives.

    Attributes:
        loss: Scalar to minimise, with its graph.
        terms: Called when the loss is not finite: the objective's terms.
        readings: Called for steps that are logged, before the update.
        finish: Called after the update: fills the bank, caps a learned temperature.
    """

    loss: Float[Tensor, ""]
    terms: Callable[[], Readings]
    readings: Callable[[], Readings]
    finish: Callable[[], None]


class Step(Protocol):
    """A recipe's own part: the loss of a batch."""

    def __call__(self, rows: Int64[Tensor, " n"], seed: int) -> StepOutput:
        """Takes row numbers of the training set and the seed of this batch's random draws."""
        ...


def stream_seed(seed: int, stream: int, index: int, rank: int = 0) -> int:
    """A 63-bit seed for draw number `index` of a stream: unrelated for any two arguments.

    Only what processes draw each for itself, such as dropout, also depends on the rank.

    Example:
        >>> stream_seed(0, DRAWS, 1) != stream_seed(0, DRAWS, 2) != stream_seed(1, DRAWS, 2)
        True
    """
    keys = [seed, stream, index, *([rank] if rank else [])]
    mixed = np.random.SeedSequence(keys).generate_state(1, np.uint64)
    return int(mixed[0]) >> 1


@dataclass(frozen=True)
class Plan:
    """How much, how fast, in which order.

    Every epoch is a new permutation of the rows, keyed by (seed, epoch), and gives
    ``rows // (batch_size * accumulate_steps)`` steps. The rows left over at the end of an epoch are
    dropped (a smaller batch would be a different contrastive task); being others each time, all
    rows are used over a few epochs. With groups, a batch holds rows of one group alone, such as
    windows of one speaker, and each group drops what does not fill a batch.

    Attributes:
        rows: Size of the training set.
        batch_size: Rows of one batch: the pairs that are contrasted with each other, on all
            processes together.
        steps: Number of updates in all.
        learning_rate: Highest rate.
        warmup_steps: Steps of linear warm-up.
        seed: Key of order and draws.
        accumulate_steps: Batches whose gradients are averaged for one update. The batches do not
            see each other: this is not a larger contrastive batch.
        gradient_clip: Largest norm of the whole gradient, or None.
        log_every: Steps between two lines of metrics.
        checkpoint_every: Steps between two checkpoints; there is always one at the end.
        groups: The group of each row; None puts all rows together.
        constant_rate: Keep the rate after the warm-up, instead of a cosine to zero.

    Raises:
        ValueError: If the rows do not fill one step, or a count is not positive.
    """

    rows: int
    batch_size: int
    steps: int
    learning_rate: float
    warmup_steps: int
    seed: int
    accumulate_steps: int = 1
    gradient_clip: float | None = None
    log_every: int = 10
    checkpoint_every: int = 100
    groups: Int64[Tensor, " n"] | None = None
    constant_rate: bool = False

    def __post_init__(self) -> None:
        for name in ("batch_size", "steps", "accumulate_steps", "log_every", "checkpoint_every"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}")
        if self.steps_per_epoch < 1:
            apart = "" if self.groups is None else " from one group each"
            many = f" x accumulate_steps {self.accumulate_steps}"
            raise ValueError(
                f"{self.rows} rows do not fill one step of batch_size {self.batch_size}{apart}"
                f"{many if self.accumulate_steps > 1 else ''}; use a smaller batch_size"
            )
        if self.gradient_clip is not None and self.gradient_clip <= 0:
            raise ValueError(f"gradient_clip must be positive, got {self.gradient_clip}")

    @property
    def steps_per_epoch(self) -> int:
        """Whole steps in one pass over the rows."""
        sizes = torch.tensor([self.rows]) if self.groups is None else self.groups.bincount()
        return int((sizes // self.batch_size).sum()) // self.accumulate_steps

    def order(self, epoch: int) -> Int64[Tensor, " n"]:
        """The rows of an epoch in their order; with groups, those of whole batches alone."""
        generator = torch.Generator().manual_seed(stream_seed(self.seed, ORDER, epoch))
        order = torch.randperm(self.rows, generator=generator)
        if self.groups is None:
            return order
        apart = order[self.groups[order].argsort(stable=True)]
        parts = torch.split(apart, self.groups.bincount().tolist())
        whole = [part[: len(part) // self.batch_size * self.batch_size] for part in parts]
        batches = torch.cat(whole).view(-1, self.batch_size)
        return batches[torch.randperm(len(batches), generator=generator)].flatten()

    def batches(self, step: int) -> Iterator[tuple[Int64[Tensor, " n"], int]]:
        """The batches of a step: row numbers and the seed of the draws."""
        epoch, place = divmod(step, self.steps_per_epoch)
        order = self.order(epoch)
        for part in range(self.accumulate_steps):
            start = (place * self.accumulate_steps + part) * self.batch_size
            number = step * self.accumulate_steps + part
            yield (
                order[start : start + self.batch_size],
                stream_seed(self.seed, DRAWS, number),
            )

    def remaining(self, step: int) -> Iterator[tuple[Int64[Tensor, " n"], int]]:
        """The batches of a step and of all after it."""
        return (batch for number in range(step, self.steps) for batch in self.batches(number))

    def rate(self, step: int) -> float:
        """The learning rate of a step."""
        if self.constant_rate:
            return self.learning_rate * min(1.0, (step + 1) / max(1, self.warmup_steps))
        return warmup_cosine(
            step, base=self.learning_rate, warmup=self.warmup_steps, total=self.steps
        )


def train(
    step: Step,
    state: TrainingState,
    plan: Plan,
    run: Run,
    monitor: Monitor,
    group: Group = ALONE,
    watch: Watch | None = None,
) -> None:
    """Trains from ``state.step`` to ``plan.steps``; the state is changed in place.

    The same state, plan and step give the same parameters on the same machine and number of
    threads, whether the run went through in one go or was killed and continued.

    With a group every process calls this with the same plan: the loss of each is that of the whole
    batch, gradients are averaged before each update, and the first process alone writes and
    watches.

    Raises:
        NonFiniteLoss: If the loss or its gradient is NaN or infinite. Nothing is updated and no
            checkpoint is written after that; with a loss scaler an infinite gradient first lowers
            the scale, and counts only when the scale has fallen below 1.
    """
    devices = sorted({p.device.index for p in state.parameters() if p.device.type == "cuda"})
    chief = group.rank == 0
    if state.step == 0 and chief:
        save_checkpoint(run.checkpoint, state)
    with torch.random.fork_rng(devices=devices):
        while state.step < plan.steps:
            began = time.perf_counter()
            # Layers with random numbers of their own (dropout) are keyed by the step as well.
            torch.manual_seed(stream_seed(plan.seed, LAYERS, state.step, group.rank))
            rate = plan.rate(state.step)
            for parameters in state.optimizer.param_groups:
                parameters["lr"] = rate
            state.optimizer.zero_grad(set_to_none=True)
            outputs = []
            for rows, seed in plan.batches(state.step):
                output = step(rows, seed)
                if not math.isfinite(output.loss.item()):
                    _stop("the loss is not finite", output, state, run)
                scaled = state.scaler.scale(output.loss / plan.accumulate_steps)
                torch.autograd.backward(scaled)
                outputs.append(output)

            due = (state.step + 1) % plan.log_every == 0 or state.step + 1 == plan.steps
            readings = outputs[-1].readings() if due else {}
            average_gradients(state.parameters(), group)
            norm = _clip(state, plan.gradient_clip)
            overflow = not math.isfinite(norm)
            if overflow and (
                not state.scaler.is_enabled() or state.scaler.get_scale() < SMALLEST_SCALE
            ):
                _stop("the gradient is not finite", outputs[-1], state, run)
            state.scaler.step(state.optimizer)
            state.scaler.update()
            for output in outputs:
                output.finish()
            state.step += 1

            loss = sum(output.loss.item() for output in outputs) / len(outputs)
            elapsed = time.perf_counter() - began
            state.seconds += elapsed
            monitor.advance(elapsed, plan.batch_size * plan.accumulate_steps)
            watched = watch(state.step) if watch is not None and chief else {}
            if (due or watched) and chief:
                epoch = state.step / plan.steps_per_epoch
                fixed = {"learning_rate": rate, "grad_norm": norm, **watched}
                monitor.log({"step": state.step, "epoch": epoch, "loss": loss, **readings, **fixed})
            if chief and (state.step % plan.checkpoint_every == 0 or state.step == plan.steps):
                save_checkpoint(run.checkpoint, state)


def _clip(state: TrainingState, largest: float | None) -> float:
    """Scales the gradient down to norm `largest`; returns the norm it had."""
    state.scaler.unscale_(state.optimizer)
    limit = math.inf if largest is None else largest
    return float(torch.nn.utils.clip_grad_norm_(state.parameters(), limit))


def _stop(what: str, output: StepOutput, state: TrainingState, run: Run) -> None:
    terms = {"loss": output.loss.item(), **output.terms()}
    raise NonFiniteLoss(what, state.step, terms, str(run.checkpoint))

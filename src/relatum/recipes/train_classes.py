"""``relatum train classes``: empirical risk minimisation, beside the bound on its outcome."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Float64
from rich.console import Console
from torch import Tensor

from ..models import BoundedEncoder
from ..runs import Run
from ..settings import check_used, from_yaml
from ..training import Monitor, Plan, TrainingState, build_optimizer, load_checkpoint, train
from .classes import TrainClasses, TupleStep, classes_record, load_population
from .continuing import Trainer, forget_later_lines, open_run
from .kinds import check_kind
from .tables import classes_table

__all__ = ["TrainClasses", "main"]

# Settings that may differ when a run is continued: they do not change what is computed.
FREE = {"out", "resume", "log_every", "checkpoint_every"}


def main(settings: TrainClasses, console: Console | None = None) -> Run:
    """Trains, measures, prints what theory and experiment say, and returns the run.

    Raises:
        ValueError: If settings or data do not fit.
        RunError: If ``out`` already holds a run (without ``resume``), or another one (with it).
        NonFiniteLoss: If the loss is not finite.
    """
    console = console or Console()
    if settings.layers == 1:
        check_used(settings, "hidden", "layers of 2 or more")
    population = load_population(settings)
    tuples = population.draw(settings, np.random.default_rng([settings.seed, 3]))
    encoder = _encoder(settings, population.inputs.shape[1])
    plan = _plan(settings, len(tuples))
    step = TupleStep(encoder, settings.loss, population.inputs, tuples)
    run = open_run(settings, Trainer("relatum train classes", FREE, _read_settings))
    state = _state(settings, encoder, run)
    if not (run.path / "results" / "classes.json").exists():
        monitor = Monitor(
            run,
            plan.steps,
            done=state.step,
            steps_per_epoch=plan.steps_per_epoch,
            console=console,
        )
        with monitor:
            train(step, state, plan, run, monitor)
        empirical = float(step.losses(tuples).mean())
        measured = population.measure(settings, lambda x: _embed(encoder, x), step.losses)
        record = classes_record(settings, population, encoder, tuples, empirical, measured)
        run.write_result("training", "training", _outcome(settings, state, plan, empirical))
        run.write_result("classes", "classes", record)
    console.print(classes_table(run.read_json("results/classes.json")["payload"]))
    return run


def _encoder(settings: TrainClasses, inputs: int) -> BoundedEncoder:
    widths = [inputs, *[settings.hidden] * (settings.layers - 1), settings.dim]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(settings.seed)
        return BoundedEncoder(widths, settings.radius, settings.norm)


def _plan(settings: TrainClasses, rows: int) -> Plan:
    return Plan(
        rows=rows,
        batch_size=settings.batch_size,
        steps=max(1, round(settings.epochs * (rows // settings.batch_size))),
        learning_rate=settings.learning_rate,
        warmup_steps=0,
        seed=settings.seed,
        log_every=settings.log_every,
        checkpoint_every=settings.checkpoint_every,
    )


def _state(settings: TrainClasses, encoder: BoundedEncoder, run: Run) -> TrainingState:
    """New, or that of the last checkpoint."""
    optimizer = build_optimizer(
        settings.optimizer,
        [encoder],
        learning_rate=settings.learning_rate,
        weight_decay=0.0,  # the balls are the only regularisation
    )
    state = TrainingState(
        {"encoder": encoder}, optimizer, torch.amp.GradScaler("cpu", enabled=False)
    )
    if run.checkpoint.exists():
        state.load_state_dict(load_checkpoint(run.checkpoint))
        forget_later_lines(run, state.step)
    return state


def _read_settings(run: Run) -> TrainClasses:
    check_kind(run, "train classes")
    return from_yaml(TrainClasses, run.config_text, where=str(run.path / "config.yaml"))


@torch.no_grad()
def _embed(encoder: BoundedEncoder, inputs: Float[Tensor, "n p"]) -> Float64[np.ndarray, "n d"]:
    return np.asarray(encoder(inputs).double().numpy())


def _outcome(
    settings: TrainClasses, state: TrainingState, plan: Plan, empirical: float
) -> dict[str, Any]:
    return {
        "objective": settings.loss,
        "seed": settings.seed,
        "steps": state.step,
        "epochs": state.step / plan.steps_per_epoch,
        "seconds": state.seconds,
        "final_loss": empirical,
    }

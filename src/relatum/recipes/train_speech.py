"""``relatum train speech``: from recordings to a trained encoder in a run directory."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import torch
from rich.console import Console

from ..data.audio import Windows
from ..runs import Run
from ..settings import SettingsError, to_yaml
from ..training import Monitor, Plan, TrainingState, build_optimizer, train
from .continuing import Trainer, exchange, meet, open_run, take_over
from .images.estimate import span
from .images.resolve import found_device
from .speech import (
    PredictionStep,
    SpeechNetworks,
    TrainSpeech,
    build_networks,
    check_same_sounds,
    data_card,
    load_windows,
    read_settings,
    resolve,
)

__all__ = ["TrainSpeech", "main"]

TRAINER = Trainer(
    "relatum train speech",
    set("out resume dry_run log_every checkpoint_every tensorboard check".split()),
    read_settings,
    data_card,
    check_same_sounds,
)


def main(
    settings: TrainSpeech, console: Console | None = None, *, windows: Windows | None = None
) -> Run | None:
    """Trains and returns the run; with ``dry_run`` prints what would happen and returns None.

    Args:
        settings: As given; open values are decided here.
        console: Where progress goes; None is the terminal.
        windows: The windows of these settings, where they are at hand already.

    Raises:
        ValueError: If settings or recordings do not fit.
        RunError: If ``out`` already holds a run (without ``resume``), or another one (with it).
        NonFiniteLoss: If the loss is not finite.
    """
    asked = console is None  # by a person, not by a command of which this is a part
    console = console or Console()
    if settings.threads is not None:
        torch.set_num_threads(settings.threads)
    settings = resolve(settings)
    windows = windows or load_windows(settings)
    place = meet(found_device(settings.device), settings.batch_size, "windows")
    chief = place.group.rank == 0
    console = console if chief else Console(quiet=True)
    for note in data_card(windows)["notes"]:
        console.out(f"note: {note}", highlight=False)
    try:
        networks = build_networks(settings, place.group)
    except ValueError as error:  # sizes that refuse each other, whatever the recordings
        raise SettingsError(str(error)) from None
    plan = plan_of(settings, windows)
    step, state = _prepare(settings, networks, windows, place.device)
    if settings.dry_run:
        _describe(console, settings, windows, networks, plan, step)
        return None

    run = open_run(settings, TRAINER, windows) if chief else Run(settings.out)
    if settings.resume:
        take_over(run, state, place)
    if (run.path / "results" / "training.json").exists():
        done = f"{run.path} is finished ({state.step} of {plan.steps} steps); nothing to do"
        console.out(done, highlight=False)
        return run
    began = state.step
    monitor = Monitor(
        run,
        plan.steps,
        done=state.step,
        steps_per_epoch=plan.steps_per_epoch,
        tensorboard=settings.tensorboard and chief,
        console=console,
    )
    with monitor:
        train(step, state, plan, run, monitor, place.group)
    if chief:
        outcome = _outcome(run, settings, networks, state, plan)
        outcome |= exchange(place.group, state.step - began)
        run.write_result("training", "training", outcome)
    if asked:
        done = f"trained in {state.seconds:.0f} s; next: relatum probe speech {run.path}"
        console.out(done, highlight=False)
    return run


def plan_of(settings: TrainSpeech, windows: Windows) -> Plan:
    """How many updates of which windows at which rate.

    Raises:
        SettingsError: If the warm-up is longer than the training.
        ValueError: If the windows do not fill a batch.
    """
    same = settings.batches == "same_speaker"
    one = Plan(
        rows=len(windows),
        batch_size=settings.batch_size,
        steps=1,
        learning_rate=settings.learning_rate,
        warmup_steps=0,
        seed=settings.seed,
        gradient_clip=settings.gradient_clip,
        log_every=settings.log_every,
        checkpoint_every=settings.checkpoint_every,
        groups=windows.speaker if same else None,
        constant_rate=settings.schedule == "constant",
    )
    steps = settings.steps or max(1, round(settings.epochs * one.steps_per_epoch))
    epochs = settings.warmup_epochs
    if epochs is None:
        ramp = settings.predictor == "linear"
        epochs = min(10.0, steps / one.steps_per_epoch / 10) if ramp else 0.0
    warmup = round(epochs * one.steps_per_epoch)
    if warmup > steps:
        raise SettingsError(
            f"warmup_epochs {epochs} is longer than the training ({steps} steps of "
            f"{one.steps_per_epoch} an epoch)"
        )
    return replace(one, steps=steps, warmup_steps=warmup)


def _prepare(
    settings: TrainSpeech, networks: SpeechNetworks, windows: Windows, device: torch.device
) -> tuple[PredictionStep, TrainingState]:
    """The step and the state it changes, on the device."""
    for module in networks:
        module.to(device).train()
    optimizer = build_optimizer(
        settings.optimizer,
        networks,
        learning_rate=settings.learning_rate,
        weight_decay=settings.weight_decay,
    )
    scaler = torch.amp.GradScaler(device.type, enabled=False)
    step = PredictionStep(
        networks,
        windows,
        settings.negatives,
        settings.negatives_from,
        settings.exclude_positive,
        settings.normalize,
        settings.penalty,
    )
    return step, TrainingState(dict(networks._asdict()), optimizer, scaler)


def _outcome(
    run: Run,
    settings: TrainSpeech,
    networks: SpeechNetworks,
    state: TrainingState,
    plan: Plan,
) -> dict[str, Any]:
    seconds = plan.steps * plan.batch_size * settings.window / settings.rate
    return {
        "objective": settings.objective,
        "critic": "dot",
        "temperature": settings.temperature,
        "pairing": f"look-ahead, negatives from {settings.negatives_from}",
        "seed": settings.seed,
        "steps": state.step,
        "epochs": state.step / plan.steps_per_epoch,
        "windows": plan.rows,
        "seconds": state.seconds,
        "audio_seconds_per_second": seconds / state.seconds if state.seconds else None,
        "final_loss": lines[-1]["loss"] if (lines := run.metrics()) else None,
        "parameters": {"network": _count(networks)},
    }


def _count(networks: SpeechNetworks) -> int:
    return sum(p.numel() for module in networks for p in module.parameters())


def _describe(
    console: Console,
    settings: TrainSpeech,
    windows: Windows,
    networks: SpeechNetworks,
    plan: Plan,
    step: PredictionStep,
) -> None:
    """Prints the settings in full and the sizes, with the pace of one step."""
    rows, seed = next(plan.batches(0))
    began = time.perf_counter()
    torch.autograd.backward(step(rows, seed).loss)
    seconds = (time.perf_counter() - began) * plan.steps
    corpus = windows.corpus
    console.out(
        f"{to_yaml(settings)}"
        f"# {len(corpus)} recordings of {len(corpus.speakers)} speakers, "
        f"{corpus.seconds / 60:.1f} minutes, {len(windows)} windows\n"
        f"# {plan.steps} steps, {plan.steps_per_epoch} an epoch, {plan.warmup_steps} of warm-up; "
        f"{_count(networks):,} parameters\n"
        f"# about {span(seconds)} on {found_device(settings.device)}\n"
        "# dry run: nothing was written",
        highlight=False,
    )

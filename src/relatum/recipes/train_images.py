"""``relatum train images``: from pixels to a trained encoder in a run directory."""

from __future__ import annotations

import time
from typing import Any

import torch
from rich.console import Console
from torch import nn

from ..data import POLICIES, Splits
from ..distributed import Group
from ..runs import Run
from ..scores import MovingMoments
from ..settings import SettingsError, to_yaml
from ..training import (
    EmbeddingBank,
    Monitor,
    NonFiniteLoss,
    Plan,
    TrainingState,
    build_optimizer,
    train,
)
from .continuing import Trainer, exchange, meet, open_run, take_over
from .images.build import (
    Networks,
    build_networks,
    check_same_images,
    data_card,
    load_images,
    read_settings,
)
from .images.resolve import resolve, steps_per_epoch, total_steps
from .images.settings import TrainImages
from .images.step import ContrastiveStep
from .images.watch import CertificateWatch, held_back

__all__ = ["TrainImages", "main"]

TRAINER = Trainer(
    "relatum train images",
    set("out resume dry_run log_every checkpoint_every tensorboard workers download".split()),
    read_settings,
    data_card,
    check_same_images,
)

EMBEDDED = {"mnist5k", "digits"}  # nothing about their files can surprise

AUTOCAST = {"none": None, "bf16": torch.bfloat16, "fp16": torch.float16}


def main(
    settings: TrainImages, console: Console | None = None, *, splits: Splits | None = None
) -> Run | None:
    """Trains and returns the run; with ``dry_run`` prints what would happen and returns None.

    Args:
        settings: As given; open values are decided here.
        console: Where progress goes; None is the terminal.
        splits: The images of these settings, where they are loaded already.

    Raises:
        ValueError: If settings or data do not fit.
        RunError: If ``out`` already holds a run (without ``resume``), or another one (with it).
        NonFiniteLoss: If the loss is not finite and ``on_nonfinite`` is "stop".
    """
    console = console or Console()
    if settings.threads is not None:
        torch.set_num_threads(settings.threads)
    everything = splits or load_images(settings)
    train_on, watched = held_back(everything.train, settings)
    splits = everything._replace(train=train_on)
    settings = resolve(settings, len(splits.train))
    place = meet(settings.device, settings.batch_size, "pairs")
    chief = place.group.rank == 0
    console = console if chief else Console(quiet=True)
    if settings.data not in EMBEDDED:
        for note in data_card(everything)["notes"]:
            console.out(f"note: {note}", highlight=False)
    networks = _networks(settings, place.group)
    plan = _plan(settings, len(splits.train))
    step, state = _prepare(settings, networks, splits, place.device)
    if settings.dry_run:
        _describe(console, settings, networks, splits, plan, step)
        return None

    run = open_run(settings, TRAINER, everything) if chief else Run(settings.out)
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
        tensorboard=bool(settings.tensorboard) and chief,
        console=console,
    )
    watch = CertificateWatch.of(networks.encoder, watched, settings.certify_every, plan.steps)
    nonfinite = None
    try:
        with monitor:
            train(step, state, plan, run, monitor, place.group, watch)
    except NonFiniteLoss as error:
        if settings.on_nonfinite == "stop":
            raise
        nonfinite = error
        console.out(f"recorded: {error}", highlight=False)
    if chief:
        outcome = _outcome(run, settings, networks, state, plan, nonfinite)
        outcome |= exchange(place.group, state.step - began)
        run.write_result("training", "training", outcome)
    if console.is_terminal:
        done = f"trained in {state.seconds:.0f} s; next: relatum probe {run.path}"
        console.out(done, highlight=False)
    return run


def _networks(settings: TrainImages, group: Group) -> Networks:
    try:
        return build_networks(settings, group)
    except ValueError as error:  # parts that refuse each other, whatever the images
        raise SettingsError(str(error)) from None


def _plan(settings: TrainImages, rows: int) -> Plan:
    steps = total_steps(settings, rows)
    warmup = round((settings.warmup_epochs or 0) * steps_per_epoch(settings, rows))
    if warmup > steps:
        raise ValueError(
            f"warmup_epochs {settings.warmup_epochs} is longer than the training ({steps} steps of "
            f"{steps_per_epoch(settings, rows)} an epoch)"
        )
    return Plan(
        rows=rows,
        batch_size=settings.batch_size,
        steps=steps,
        learning_rate=settings.learning_rate or 0.0,
        warmup_steps=warmup,
        seed=settings.seed,
        accumulate_steps=settings.accumulate_steps,
        gradient_clip=settings.gradient_clip,
        log_every=settings.log_every,
        checkpoint_every=settings.checkpoint_every,
    )


def _prepare(
    settings: TrainImages, networks: Networks, splits: Splits, device: torch.device
) -> tuple[ContrastiveStep, TrainingState]:
    """The step and the state it changes, on the device."""
    modules: dict[str, nn.Module] = dict(networks._asdict())
    bank = None
    if settings.queue_size:
        bank = EmbeddingBank(settings.queue_size, settings.projection_dim)
        modules["bank"] = bank
    past = None
    if settings.moment_decay:
        past = MovingMoments(settings.projection_dim, settings.moment_decay)
        modules["past"] = past
    for module in modules.values():
        module.to(device).train()
    # Colours innermost: the same convolutions, a fifth faster on the CPU.
    networks.encoder.to(memory_format=torch.channels_last)
    if settings.compile:
        for network in (networks.encoder, networks.head):
            network.compile()
    optimizer = build_optimizer(
        settings.optimizer,
        networks,
        learning_rate=settings.learning_rate or 0.0,
        weight_decay=settings.weight_decay,
    )
    scaler = torch.amp.GradScaler(device.type, enabled=settings.autocast == "fp16")
    step = ContrastiveStep(
        networks,
        splits.train.pixels.to(device),
        POLICIES[settings.augmentation or "none"](splits.train.pixels.shape[-1]),
        bank=bank,
        penalty=settings.penalty,
        micro_batch_size=settings.micro_batch_size,
        autocast=AUTOCAST[settings.autocast],
        moments_only=settings.moments_only,
        past=past,
        positives=settings.positives,
    )
    return step, TrainingState(modules, optimizer, scaler)


def _outcome(
    run: Run,
    settings: TrainImages,
    networks: Networks,
    state: TrainingState,
    plan: Plan,
    nonfinite: NonFiniteLoss | None,
) -> dict[str, Any]:
    parameters = {
        name: sum(p.numel() for p in module.parameters())
        for name, module in networks._asdict().items()
    }
    return {
        "objective": settings.objective,
        "critic": settings.critic,
        "temperature": settings.temperature,
        "pairing": settings.pairing,
        "seed": settings.seed,
        "steps": state.step,
        "epochs": state.step / plan.steps_per_epoch,
        "images": plan.rows,
        "seconds": state.seconds,
        "nonfinite_steps": 0 if nonfinite is None else 1,
        "nonfinite_step": None if nonfinite is None else nonfinite.step,
        "nonfinite_terms": None if nonfinite is None else nonfinite.terms,
        "final_loss": lines[-1]["loss"] if (lines := run.metrics()) else None,
        "parameters": parameters,
    }


def _describe(
    console: Console,
    settings: TrainImages,
    networks: Networks,
    splits: Splits,
    plan: Plan,
    step: ContrastiveStep,
) -> None:
    """Prints the settings in full and the sizes."""
    text = to_yaml(settings)
    count = sum(p.numel() for module in networks for p in module.parameters())
    rows, seed = next(plan.batches(0))
    small = rows[: max(32, step.group.size)]
    began = time.perf_counter()
    torch.autograd.backward(step(small, seed).loss)
    # The first pass includes warm-up costs, so this is rather too long than too short.
    pace = (time.perf_counter() - began) / len(small)
    seconds = pace * plan.steps * plan.batch_size * plan.accumulate_steps
    text += (
        f"# {len(splits.train)} training images of {settings.image_size} x {settings.image_size} "
        f"({splits.how})\n"
        f"# {plan.steps} steps, {plan.steps_per_epoch} an epoch; {count:,} parameters\n"
        f"# about {seconds / 60:.1f} minutes on {settings.device}\n"
        "# dry run: nothing was written"
    )
    console.out(text, highlight=False)

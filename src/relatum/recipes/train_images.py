"""``relatum train images``: from pixels to a trained encoder in a run directory."""

from __future__ import annotations

from typing import Any

import torch
from rich.console import Console
from torch import nn

from ..data import POLICIES, ImageTable, Splits, pixel_source
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
from .images.estimate import Estimate, estimate, known_rows, made_images, span
from .images.resolve import AUTOCAST, resolve, steps_per_epoch, total_steps
from .images.settings import TrainImages
from .images.step import ContrastiveStep
from .images.watch import CertificateWatch, held_back

__all__ = ["TrainImages", "main"]

TRAINER = Trainer(
    "relatum train images",
    {
        "out", "resume", "dry_run", "tiny", "log_every", "checkpoint_every", "tensorboard",
        "workers", "download", "cache",
    },
    read_settings,
    data_card,
    check_same_images,
)  # fmt: skip

EMBEDDED = {"mnist5k", "digits"}  # nothing about their files can surprise


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
    asked = console is None  # by a person, not by a command of which this is a part
    console = console or Console()
    if settings.threads is not None:
        torch.set_num_threads(settings.threads)
    if settings.tiny:
        _tiny(settings, console)
        return None
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
    step, state = _prepare(settings, networks, splits.train, place.device)
    if settings.dry_run:
        rows, _ = next(plan.batches(0))
        rows = rows[: max(32, 2 * place.group.size)]
        found = estimate(step, state, settings, rows)
        _describe(console, settings, splits.how, plan, found, place.group.size)
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
    step.images.follow(step.request(rows, seed) for rows, seed in plan.remaining(began))
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
    if asked:
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
    settings: TrainImages, networks: Networks, images: ImageTable, device: torch.device
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
    policy = POLICIES[settings.augmentation or "none"](images.pixels.shape[-1])
    step = ContrastiveStep(
        networks,
        pixel_source(images, policy, workers=settings.workers, device=device),
        policy,
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


def _tiny(settings: TrainImages, console: Console) -> None:
    """The dry run without data: the networks of the run, made images of at most 64 pixels."""
    rows = known_rows(settings)
    settings = resolve(settings, rows)
    place = meet(settings.device, settings.batch_size, "pairs")
    console = console if place.group.rank == 0 else Console(quiet=True)
    images = made_images(settings, 2 * place.group.size).train
    networks = _networks(settings, place.group)
    step, state = _prepare(settings, networks, images, place.device)
    found = estimate(step, state, settings, torch.arange(len(images)))
    how, plan = f"{rows} images to be trained on", _plan(settings, rows)
    _describe(console, settings, how, plan, found, place.group.size)


def _describe(
    console: Console, settings: TrainImages, how: str, plan: Plan, found: Estimate, processes: int
) -> None:
    """Prints the settings in full, the sizes and the costs."""
    images = plan.steps * plan.batch_size * plan.accumulate_steps
    count = sum(found.parameters.values())
    each = ", ".join(f"{name} {number:,}" for name, number in found.parameters.items())
    work = found.flops * images
    text = to_yaml(settings) + (
        f"# {plan.rows} training images of {settings.image_size} x {settings.image_size} ({how})\n"
        f"# {plan.steps} steps, {plan.steps_per_epoch} an epoch; {count:,} parameters ({each})\n"
        f"# memory: {_memory(settings, found, processes)}\n"
        f"# arithmetic: {found.flops / 1e9:.3g} GFLOP an image and step, "
        f"{work / 1e15:{',.0f' if work > 1e16 else '.3g'}} PFLOP in all\n"
        f"# about {span(found.seconds(images))} on {settings.device}, at the "
        f"{found.pace / 1e9:.3g} GFLOP/s measured in one step; "
        f"at 100 TFLOP/s it would be {span(work / 1e14)}\n"
        "# dry run: nothing was written"
    )
    console.out(text, highlight=False)


def _memory(settings: TrainImages, found: Estimate, processes: int) -> str:
    """What a process needs, in one sentence."""
    at_a_time = min(
        -(-settings.batch_size // processes), settings.micro_batch_size or settings.batch_size
    )
    image = found.activations + found.penalty
    each = f"on each of {processes} processes; " if processes > 1 else ""
    part = f" of {found.activations / 1e6:.1f} MB; none of the penalty's" if found.penalty else ""
    return (
        f"{found.held / 1e9:.2f} GB for weights, gradients and optimiser; {image / 1e6:.1f} MB an "
        f"image for the backward pass, {image * at_a_time / 1e9:.1f} GB for {at_a_time} ({each}"
        f"32-bit; autocast saves up to half{part or ' of it'})"
    )

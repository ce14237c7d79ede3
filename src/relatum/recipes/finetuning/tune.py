"""Tuning on labels as a function of tensors: a network and two tables in, an accuracy out."""

from __future__ import annotations

import copy
import tempfile
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
import yaml
from jaxtyping import Int64
from rich.console import Console
from torch import nn

from ...data import POLICIES, ImageTable, pixel_source
from ...probes import ProbeResult, ProtocolCard, extract_features, parameter_hash
from ...probes.task import ProbeTask, probe_task, score
from ...runs import Run, RunError
from ...training import Monitor, Plan, TrainingState, load_checkpoint, train
from ..continuing import forget_later_lines
from ..images.resolve import AUTOCAST
from ..inputs import WHOLE_SQUARE, labelled_rows
from .network import Classifier, normalises_by_batch, stem_of
from .plan import BATCH_NORMS, TUNED, FineTunePlan
from .step import SupervisedStep

__all__ = ["FineTuneResult", "fine_tune"]

MOST_STEPS = 200  # that a kill may cost


@dataclass(frozen=True)
class FineTuneResult:
    """What a fine-tuning came to.

    Attributes:
        probe: Accuracies on the test images, as of any probe.
        card: The protocol. Its fingerprints are of the encoder handed in, which is left as it was.
        curve: One reading an epoch: step, epoch, mean loss and accuracy on the augmented training
            images since the last reading, learning rate.
        seconds: Time the steps took.
    """

    probe: ProbeResult
    card: ProtocolCard
    curve: tuple[dict[str, Any], ...]
    seconds: float

    @property
    def accuracy(self) -> float:
        """The fraction of test images whose class is right."""
        return self.probe.accuracy

    def to_dict(self) -> dict[str, Any]:
        """All of it as plain values."""
        curve = list(self.curve)
        more = {"card": self.card.to_dict(), "curve": curve, "seconds": self.seconds}
        return {**self.probe.to_dict(), **more}


def fine_tune(
    encoder: nn.Module,
    head: nn.Module | None,
    train_images: ImageTable,
    test_images: ImageTable,
    plan: FineTunePlan | None = None,
    *,
    split: str = "as given",
    device: torch.device | str = "cpu",
    workers: int = 0,
    folder: Path | None = None,
    console: Console | None = None,
) -> FineTuneResult:
    r"""Tunes a copy of an encoder, with a new classifier on top, on labelled images.

    .. math:: \min_{\theta, W, b}\; -\frac1n \sum_i
              \log \mathrm{softmax}(W\, t_\theta(a(x_i)) + b)_{y_i}

    with random views :math:`a`, :math:`W` and :math:`b` from zero and :math:`\theta` from where
    the encoder is. With an untrained encoder and ``tune="all"`` this is the supervised network.
    Neither the arguments nor the global random state are changed.

    Args:
        encoder: Takes (n, 3, s, s) floats in [0, 1] and returns (n, d).
        head: The first layers of its projection head, to be tuned as well; None: none of them.
        train_images: Unlabelled rows are left out, and drawn from by ``plan.label_fraction``.
        test_images: Read once, at the end.
        plan: The protocol; None is the default one.
        split: One sentence on how training and test images were parted, for the card.
        device: Where to compute.
        workers: Processes that decode images that are streamed. They do not change the result.
        folder: A run directory for the log and the checkpoints, continued where it exists; None
            leaves nothing behind.
        console: Where progress and the time left go; None shows nothing.

    Raises:
        ValueError: If a class has no labelled row or there are fewer than two classes.
        NonFiniteLoss: If the loss is not finite, as with a rate that is too high.
        RunError: If `folder` holds another run.

    References:
        Big Self-Supervised Models are Strong Semi-Supervised Learners (Chen et al., 2020), section
        2, on tuning from a middle layer of the head. https://arxiv.org/abs/2006.10029

    Example:
        >>> from relatum.data import load_splits
        >>> from relatum.models import build_encoder
        >>> digits = load_splits("digits", image_size=8)
        >>> new = build_encoder("conv-small", image_size=8)
        >>> plan = FineTunePlan(tune="all", epochs=4, batch_size=64, augmentation="none")
        >>> fine_tune(new, None, digits.train, digits.test, plan).accuracy > 0.5
        True
    """
    plan = plan or FineTunePlan()
    trunk = encoder if head is None else nn.Sequential(encoder, head)
    before = parameter_hash(trunk)
    task, rows = _labels(train_images, test_images, plan)
    images = train_images.select(torch.from_numpy(rows))
    network = _network(encoder, head, images, len(task.classes), plan).to(device)
    # Colours innermost, as in training: the same convolutions, a fifth faster on the CPU.
    network.to(memory_format=torch.channels_last)
    text = f"encoder: {before}\n{yaml.safe_dump(plan.choices, sort_keys=False)}"
    with nullcontext(folder) if folder else tempfile.TemporaryDirectory() as place:
        run = _open(Path(str(place)), text)
        state = _train(network, images, task, plan, workers, run, console)
        curve = tuple(run.metrics())
    asked = test_images.select(torch.from_numpy(task.test_x[:, 0].astype(np.int64)))
    logits = extract_features(network, asked.batches(workers=workers))
    found = score(task, logits, probe="fine-tuning", settings=plan.choices)
    prints = (before, parameter_hash(trunk))
    labelled = int((train_images.labels >= 0).sum())
    dim, counts = network.linear.in_features, (labelled, len(test_images))
    card = _card(plan, head, prints, split, dim, counts, normalises_by_batch(trunk))
    return FineTuneResult(found, card, curve, state.seconds)


def _card(
    plan: FineTunePlan,
    head: nn.Module | None,
    prints: tuple[str, str],
    split: str,
    dim: int,
    counts: tuple[int, int],
    by_batch: bool,
) -> ProtocolCard:
    kept = "" if head is None else f" and the first {_dense(head)} of the projection head"
    return ProtocolCard(
        encoder_hash_before=prints[0],
        encoder_hash_after=prints[1],
        layer="encoder output" if head is None else f"output of{kept.removeprefix(' and')}",
        feature_dim=dim,
        preprocessing=f"{WHOLE_SQUARE}, pixels scaled to [0, 1]; in training augmented by the "
        f"policy {plan.augmentation}",
        batch_norm=BATCH_NORMS[plan.normalises_by] if by_batch else "none",
        split=split,
        standardisation="none",
        regularisation_grid=(),
        regularisation_choice="no penalty; nothing is selected, the last step counts",
        seeds=(plan.seed,),
        n_train=counts[0],
        n_test=counts[1],
        tuned=TUNED[plan.tune] + (kept if plan.tune != "classifier" else ""),
        optimisation=plan.optimisation,
        labels="all"
        if plan.label_fraction == 1
        else f"{100 * plan.label_fraction:g} % of each class, drawn by seed {plan.seed}",
    )


class _Numbered(NamedTuple):
    """A task whose only feature is the number of the row, and the rows it trains on."""

    task: ProbeTask
    rows: Int64[np.ndarray, " n"]


def _labels(train_images: ImageTable, test_images: ImageTable, plan: FineTunePlan) -> _Numbered:
    """Which images of which classes: by the rules of every probe, that is by its own code."""
    parts = [
        labelled_rows(np.arange(len(images), dtype=np.float64)[:, None], images)
        for images in (train_images, test_images)
    ]
    share = None if plan.label_fraction == 1 else plan.label_fraction
    task = probe_task(
        *parts[0], *parts[1], labels_per_class=None, label_fraction=share, seed=plan.seed
    )
    return _Numbered(task, task.train_x[:, 0].astype(np.int64))


def _network(
    encoder: nn.Module,
    head: nn.Module | None,
    images: ImageTable,
    classes: int,
    plan: FineTunePlan,
) -> Classifier:
    """Copies of encoder and head below a new classifier, in training mode, on the CPU."""
    body, top = copy.deepcopy(encoder).cpu(), copy.deepcopy(head)
    trunk = body if top is None else nn.Sequential(body, top.cpu())
    stem = stem_of(body) if plan.tune == "after-stem" else []
    network = Classifier(
        trunk,
        stem,
        extract_features(trunk, images.select(torch.arange(2)).batches()).shape[1],
        classes,
        frozen=plan.tune == "classifier",
        running=plan.normalises_by == "running",
    )
    return network.train()


def _dense(head: nn.Module) -> str:
    count = sum(isinstance(module, nn.Linear) for module in head.modules())
    return "dense layer" if count == 1 else f"{count} dense layers"


def _open(place: Path, text: str) -> Run:
    """The run in a folder, or a new one."""
    if not (place / "config.yaml").exists():
        return Run.create(place, text)
    run = Run.open(place)
    if run.config_text != text:
        raise RunError(f"{place} holds another fine-tuning; choose another folder, or remove it")
    return run


def _train(
    network: Classifier,
    images: ImageTable,
    task: ProbeTask,
    plan: FineTunePlan,
    workers: int,
    run: Run,
    console: Console | None,
) -> TrainingState:
    n = len(images)
    batch = plan.batch(n)
    device = network.linear.weight.device
    schedule = Plan(
        rows=n,
        batch_size=batch // plan.parts(n),
        accumulate_steps=plan.parts(n),
        steps=plan.steps(n),
        learning_rate=plan.learning_rate * batch / 256,
        warmup_steps=0,
        seed=plan.seed,
        log_every=n // batch,
        checkpoint_every=min(MOST_STEPS, plan.steps(n)),
    )
    tuned = [p for p in network.parameters() if p.requires_grad]
    optimizer = torch.optim.SGD(tuned, lr=0.0, momentum=plan.momentum, nesterov=True)
    scaler = torch.amp.GradScaler(device.type, enabled=plan.autocast == "fp16")
    state = TrainingState({"network": network}, optimizer, scaler)
    if run.checkpoint.exists():
        state.load_state_dict(load_checkpoint(run.checkpoint, device=device))
        forget_later_lines(run, state.step)
    policy = POLICIES[plan.augmentation](images.pixels.shape[-1])
    step = SupervisedStep(
        network,
        pixel_source(images, policy, workers=workers, device=device),
        torch.from_numpy(task.train_y).to(device),
        policy,
        AUTOCAST[plan.autocast],
    )
    step.images.follow(step.request(rows, seed) for rows, seed in schedule.remaining(state.step))
    per_epoch = schedule.steps_per_epoch
    with Monitor(
        run, schedule.steps, done=state.step, steps_per_epoch=per_epoch, console=console
    ) as monitor:
        train(step, state, schedule, run, monitor)
    return state

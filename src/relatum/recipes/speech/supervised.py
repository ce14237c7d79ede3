"""The same network trained with labels: what a contrastive representation is measured against."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import torch
from jaxtyping import Int64
from rich.console import Console
from torch import Tensor, nn
from torch.nn import functional

from ...data.audio import PHONES, Windows, unit_windows
from ...models import SpeechNetwork, SpeechSizes
from ...runs import Run, RunError
from ...settings import to_yaml
from ...training import Monitor, Plan, StepOutput, TrainingState, build_optimizer, load_checkpoint
from ...training import train as train_steps
from ..continuing import forget_later_lines
from ..images.resolve import found_device
from .build import check_same_sounds, data_card, sizes_of
from .settings import TrainSpeech

__all__ = ["TARGETS", "LabelStep", "frame_labels_at", "train_supervised"]

TARGETS: Final = ("phones", "speakers")

_UNKNOWN: Final = -1  # a frame without a label: it is not trained on


def frame_labels_at(
    labels: Int64[np.ndarray, " t"], first: int, frames: int, hop: int = 160
) -> Int64[np.ndarray, " frames"]:
    """The labels of the frames of a window that begins at sample `first`; −1 where there is none.

    Frame f of the window covers the samples from first + f · hop on, label l those from l · hop
    on: the nearest one is taken, at most half a hop away.
    """
    numbers = (first + hop * np.arange(frames) + hop // 2) // hop
    known = numbers < len(labels)
    return np.where(known, labels[np.minimum(numbers, len(labels) - 1)], _UNKNOWN)


@dataclass(frozen=True)
class LabelStep:
    r"""Cross-entropy of a linear classifier on contexts: phones of every frame, or who speaks.

    .. math:: -\frac1n \sum_{i,t} \log \mathrm{softmax}(W c_{i,t} + b)_{y_{i,t}}

    over all labelled frames; for speakers over the mean context of each window.

    Attributes:
        network: Its contexts are classified; predictors have no part.
        classifier: Linear.
        windows: Training windows.
        labels: Of each utterance of their corpus, or None to tell speakers apart.
        normalize: Whether windows are brought to mean 0 and variance 1.
    """

    network: SpeechNetwork
    classifier: nn.Linear
    windows: Windows
    labels: Sequence[Int64[np.ndarray, " t"]] | None
    normalize: bool = True

    def __call__(self, rows: Int64[Tensor, " n"], seed: int) -> StepOutput:
        """The loss of these windows, shifted at random by `seed`."""
        first = self.windows.first_samples(rows, torch.Generator().manual_seed(seed))
        device = self.classifier.weight.device
        samples = self.windows.read_at(rows, first).to(device)
        contexts = self.network(unit_windows(samples) if self.normalize else samples)[1]
        if self.labels is None:
            scores, truth = self.classifier(contexts.mean(1)), self.windows.speaker[rows]
        else:
            utterances = self.windows.utterance[rows].tolist()
            found = [
                frame_labels_at(self.labels[number], start, contexts.shape[1])
                for number, start in zip(utterances, first.tolist(), strict=True)
            ]
            truth = torch.from_numpy(np.stack(found)).flatten()
            scores = self.classifier(contexts).flatten(0, 1)
        known = (truth != _UNKNOWN).nonzero()[:, 0]
        scores, truth = scores[known.to(device)], truth[known].to(device)
        loss = functional.cross_entropy(scores, truth)
        right = (scores.argmax(1) == truth).float().mean()
        return StepOutput(
            loss,
            terms=dict,
            readings=lambda: {"accuracy": float(right)},
            finish=lambda: None,
        )


def train_supervised(
    settings: TrainSpeech,
    plan: Plan,
    windows: Windows,
    labels: Sequence[Int64[np.ndarray, " t"]] | None,
    folder: Path,
    console: Console,
) -> SpeechNetwork:
    """Trains the network of these settings with labels, in a run folder of its own.

    Sizes, optimiser, rate, batches, device and number of updates are those of the settings; only
    the loss differs. A run that was killed is continued.

    Args:
        settings: Resolved.
        plan: Of the training.
        windows: Training windows.
        labels: Phones of each utterance of the corpus, or None to train on speakers.
        folder: Of the run.
        console: Where progress goes.

    Returns:
        The network in evaluation mode.

    Raises:
        RunError: If the folder holds a run of other settings, targets or recordings.
        NonFiniteLoss: If the loss is not finite.
    """
    device = torch.device(found_device(settings.device))
    classes = len(windows.corpus.speakers) if labels is None else PHONES
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(settings.seed)
        sizes: SpeechSizes = sizes_of(settings)
        network = SpeechNetwork(sizes, settings.window)
        classifier = nn.Linear(network.dim, classes)
    network.to(device)
    classifier.to(device)
    kept = nn.ModuleList([network.encoder, network.context])
    optimizer = build_optimizer(
        settings.optimizer, [kept, classifier],
        learning_rate=settings.learning_rate, weight_decay=settings.weight_decay,
    )  # fmt: skip
    scaler = torch.amp.GradScaler(device.type, enabled=False)
    state = TrainingState({"kept": kept, "classifier": classifier}, optimizer, scaler)
    target = TARGETS[1] if labels is None else TARGETS[0]
    run = _open(folder, f"supervised: {target}\n{to_yaml(settings)}", windows)
    if run.checkpoint.exists():
        state.load_state_dict(load_checkpoint(run.checkpoint, device=device))
        forget_later_lines(run, state.step)
    step = LabelStep(network, classifier, windows, labels, settings.normalize)
    monitor = Monitor(
        run, plan.steps, done=state.step, steps_per_epoch=plan.steps_per_epoch,
        tensorboard=False, console=console,
    )  # fmt: skip
    with monitor:
        train_steps(step, state, plan, run, monitor)
    return network.eval()


def _open(folder: Path, text: str, windows: Windows) -> Run:
    """The run in a folder, if it is of these settings and recordings, or a new one."""
    if (folder / "config.yaml").exists():
        run = Run.open(folder)
        before, now = run.config_text.splitlines(), text.splitlines()
        if before != now:
            was = "; ".join(line for line in before if line not in now)
            wanted = "; ".join(line for line in now if line not in before)
            raise RunError(
                f"{folder} was started with other settings ({was or 'none'} then, "
                f"{wanted or 'none'} now); choose another folder, or remove it"
            )
    else:
        run = Run.create(folder, text)
    if not (folder / "data.json").exists():  # new, or killed before it was written
        run.write_json("data.json", data_card(windows))
    check_same_sounds(run, windows)
    return run

"""``relatum finetune``: what a trained encoder is worth as the start of training on labels.

Every cell (run, share of the labels, draw) is a fine-tuning of its own; finished cells are kept in
the run, so that a job that was stopped goes on where it was.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

from rich.console import Console
from torch import nn

from ..data import POLICIES, Splits
from ..probes import labels_share, parameter_hash
from ..runs import Run, strict_json
from ..settings import POSITIONAL, check_choices, choice
from .finetuning import BATCH_NORMS, TUNED, FineTunePlan, fine_tune
from .images import read_settings, untrained_encoder
from .images.build import trained_head
from .images.resolve import found_device
from .inputs import (
    check_alone,
    check_run_images,
    images_key,
    labelled_rows,
    load_run_images,
    open_runs,
    remark_on,
    run_encoder,
)
from .shares import shares
from .tables import finetune_table

__all__ = ["FineTune", "head_layers", "main"]


@dataclass(frozen=True)
class FineTune:
    """Train a whole network on labels, from the encoder of each run or from scratch.

    The defaults are those of the RPC paper's code on CIFAR-10; on ImageNet it takes
    --learning-rate 0.16 --epochs 90 --batch-size 4096, of which one GPU holds a part at a time
    (--micro-batch-size 128). Nothing is selected: the last step counts, and the test images are
    read once, after it. The run's own encoder is left as it is.
    """

    runs: list[Path] = field(metadata=POSITIONAL)
    """Run directories of `relatum train images`."""

    data: str | None = None
    """Where the images of the runs lie now, if they have moved; that they are the same images is
    checked. Default: where they lay in training."""

    label_fraction: str = "0.01,0.1,1"
    """Shares of the labelled training images of each class to tune on, with commas."""

    draws: int = 1
    """How often the labels of a share below 1 are drawn anew (seeds 1000 x run seed + 0, 1, ...).
    """

    from_scratch: bool = False
    """Begin with the untrained network of the run: the supervised network beside the tuned one.
    """

    tune: str | None = choice(None, TUNED)
    """What is trained besides a new classifier. Default: after-stem; all with --from-scratch."""

    head_layers: int = 0
    """Keep so many dense layers of the projection head and tune them as well."""

    epochs: float = 100.0
    """Passes over the labelled images of a share."""

    batch_size: int = 512
    """Images of a batch; all of a share where it has fewer."""

    micro_batch_size: int | None = None
    """Images that go through the network at a time: the gradient of the whole batch in the memory
    of a part of it, a divisor of --batch-size. Batch normalisation sees the part. Default: all.
    """

    learning_rate: float = 0.1
    """Highest rate for 256 images: times batch / 256, then a cosine to zero, without warm-up."""

    augmentation: str = choice("crop-flip", POLICIES)
    """How an image is changed before each step."""

    batch_norm: str | None = choice(None, BATCH_NORMS)
    """batch = normalise by the batch while tuning; running = by the running statistics of the
    run. Default: running for --tune classifier, else batch."""

    autocast: str = choice("none", ("none", "bf16", "fp16"))
    """16-bit floats inside the network. fp16 uses a loss scaler."""

    device: str = "auto"
    """auto (cuda where there is one, else cpu), cpu, cuda or cuda:1."""

    def __post_init__(self) -> None:
        check_choices(self)
        if not self.runs:
            raise ValueError("name at least one run directory")
        if self.draws < 1 or self.head_layers < 0:
            raise ValueError(
                "draws must be at least 1 and head_layers at least 0, got "
                f"{self.draws} and {self.head_layers}"
            )
        if self.from_scratch and (self.head_layers or self.tune in ("after-stem", "classifier")):
            raise ValueError("from_scratch trains everything, and has no head to keep: tune all")
        self.plans(0)

    def plans(self, run_seed: int) -> list[FineTunePlan]:
        """The protocol of each cell of a run: every share, and every draw of one below 1."""
        plan = FineTunePlan(
            tune=self.tune or ("all" if self.from_scratch else "after-stem"),
            epochs=self.epochs,
            batch_size=self.batch_size,
            micro_batch_size=self.micro_batch_size,
            learning_rate=self.learning_rate,
            augmentation=self.augmentation,
            batch_norm=self.batch_norm,
            autocast=self.autocast,
        )
        return [
            replace(plan, label_fraction=share, seed=1000 * run_seed + draw)
            for share in shares(self.label_fraction)
            for draw in range(self.draws if share < 1 else 1)
        ]


class Cell(NamedTuple):
    """One fine-tuning that is to be done."""

    run: Run
    encoder: nn.Module
    head: nn.Module | None
    splits: Splits
    plan: FineTunePlan
    key: dict[str, Any]

    @property
    def folder(self) -> Path:
        """Where its log and checkpoints are: a folder for each protocol and start."""
        mark = hashlib.sha256(strict_json(self.key).encode()).hexdigest()[:8]
        start, plan = self.key["features"], self.plan
        name = f"{start}-{plan.label_fraction:g}-seed{plan.seed}-{mark}"
        return self.run.path / "finetuning" / name

    @property
    def cost(self) -> int:
        """Images that go through the network."""
        labelled = int((self.splits.train.labels >= 0).sum())
        rows = max(2, round(self.plan.label_fraction * labelled))
        return self.plan.steps(rows) * self.plan.batch(rows)


def main(settings: FineTune, console: Console | None = None) -> list[dict[str, Any]]:
    """Tunes every cell, stores ``results/finetune.json`` in its run, prints one table.

    Returns:
        The payload of each run's result.

    Raises:
        RunError: If a run is missing, given twice, has no checkpoint, or saw other images.
        ValueError: If a share leaves a class without labels.
        NonFiniteLoss: If a loss is not finite; finished cells are kept.
    """
    check_alone("finetune")
    console = console or Console()
    settings = replace(settings, device=found_device(settings.device))
    runs = open_runs(settings.runs, settings.data, "fine-tuned")
    cells = _cells(runs, settings, console)
    left = [cell for cell in cells if _kept(cell) is None]
    if len(left) < len(cells):
        said = f"{len(cells) - len(left)} of {len(cells)} cells are finished and were kept"
        console.out(said, highlight=False)
    began, done = time.perf_counter(), 0
    for number, cell in enumerate(left, 1):
        what = "from scratch" if settings.from_scratch else "from the trained encoder"
        share = f"{100 * cell.plan.label_fraction:g} % of the labels"
        title = f"cell {number} of {len(left)}: {cell.run.name} {what}, {share}"
        if done:
            rest = sum(other.cost for other in left[number - 1 :])
            minutes = (time.perf_counter() - began) / done * rest / 60
            title += f"; about {minutes:.1f} minutes left"
        console.out(title, highlight=False)
        _tune(cell, settings, console)
        done += cell.cost
    console.print(finetune_table(settings.runs))
    return [_stored(run) for run in runs]


def _cells(runs: Sequence[Run], settings: FineTune, console: Console) -> list[Cell]:
    """All cells of a call; what can be said against one is said before work begins."""
    loaded: dict[tuple[object, ...], Splits] = {}
    cells = []
    for run in runs:
        trained = read_settings(run)
        if settings.from_scratch:
            encoder = untrained_encoder(trained)
        else:
            encoder = run_encoder(run, "cpu")
            if remark := remark_on(run):
                said = f"note: {run.path} {remark}; its last checkpoint is tuned"
                console.out(said, highlight=False)
        head = head_layers(run, settings.head_layers)
        images = images_key(trained, settings.data)
        if images not in loaded:
            loaded[images] = load_run_images(trained, settings.data)
        splits = loaded[images]
        check_run_images(run, splits, settings.data)
        names = labelled_rows(splits.train.labels.numpy()[:, None], splits.train)[1]
        start = {
            "features": "untrained" if settings.from_scratch else "encoder",
            "encoder": parameter_hash(encoder),
            "head_layers": settings.head_layers,
        }
        for plan in settings.plans(trained.seed):
            labels_share(names, plan.label_fraction, plan.seed)
            cells.append(Cell(run, encoder, head, splits, plan, {**start, "plan": plan.choices}))
    return cells


def head_layers(run: Run, count: int) -> nn.Module | None:
    """The first dense layers of a run's projection head, with what follows each; None for none.

    Raises:
        ValueError: If there are not so many.
    """
    if count == 0:
        return None
    head = trained_head(run)
    if count >= len(head.widths):
        raise ValueError(
            f"head_layers must be from 0 to {len(head.widths) - 1}, as many as the head of "
            f"{run.path} has dense layers; got {count}"
        )
    return head.upto(count)


def _stored(run: Run) -> dict[str, Any]:
    """The result so far."""
    if not (run.path / "results" / "finetune.json").exists():
        return {"rows": []}
    payload: dict[str, Any] = run.read_json("results/finetune.json")["payload"]
    return payload


def _kept(cell: Cell) -> dict[str, Any] | None:
    """The row of a finished cell."""
    return next((row for row in _stored(cell.run)["rows"] if row["cell"] == cell.key), None)


def _tune(cell: Cell, settings: FineTune, console: Console) -> None:
    """Does one cell and adds its row to the result; rows of an encoder that is gone are dropped."""
    result = fine_tune(
        cell.encoder,
        cell.head,
        *cell.splits[:2],
        cell.plan,
        split=cell.splits.how,
        device=settings.device,
        workers=read_settings(cell.run).workers,
        folder=cell.folder,
        console=console,
    )
    row = {"features": cell.key["features"], "cell": cell.key, **result.to_dict()}
    # Cells of an encoder that is gone (the run was trained on) would pass for those of this one.
    kept = [
        old
        for old in _stored(cell.run)["rows"]
        if old["features"] != row["features"] or old["cell"]["encoder"] == cell.key["encoder"]
    ]
    cell.run.write_result("finetune", "finetune", {"rows": [*kept, row]})
    console.out(f"accuracy {100 * result.accuracy:.1f} %", highlight=False)

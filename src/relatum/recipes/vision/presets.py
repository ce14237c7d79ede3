"""What one training of the published vision experiments is, at three sizes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from ...objectives import OBJECTIVES
from ..experiments.cells import Cell
from ..images import TrainImages
from ..images.resolve import found_device
from ..train_images import TRAINER

__all__ = ["PAPER_CRITIC", "PRESETS", "cell", "settings_of", "training_of"]

PRESETS: Final[dict[str, dict[str, Any]]] = {
    # 4 million multiply-adds an image; 5,000 images, 8 epochs: about 40 s of one core.
    "cpu": {
        "image_size": 16, "limit": 5000, "encoder": "conv-medium", "batch_size": 128,
        "epochs": 8.0, "optimizer": "adamw", "learning_rate": 0.003, "device": "cpu",
    },
    # The paper's network and batch for a tenth of its epochs.
    "gpu": {
        "encoder": "resnet18", "batch_size": 512, "epochs": 100.0, "optimizer": "lars",
        "learning_rate": 2.0, "warmup_epochs": 10.0, "autocast": "bf16",
    },
    # Tsai et al. (2021): LARS at 1.0 · batch / 256, 10 epochs of warm-up, cosine, no blur; bf16 is
    # ours. As configs/vision/cifar10-*-paper.yaml.
    "paper": {
        "encoder": "resnet18", "batch_size": 512, "epochs": 1000.0, "optimizer": "lars",
        "learning_rate": 2.0, "warmup_epochs": 10.0, "normalization": "sync", "autocast": "bf16",
    },
}  # fmt: skip

# The authors' critics: RPC scores raw dot products / 128, the others cosines / 0.5.
PAPER_CRITIC: Final[dict[str, dict[str, Any]]] = {
    name: {"critic": "dot", "temperature": 128.0}
    if name in ("rpc", "chi2")
    else {"critic": "cosine", "temperature": 0.5}
    for name in OBJECTIVES
}

_LAYOUTS: Final = {
    "cifar-10-batches-py": "cifar10", "cifar-100-python": "cifar100", "stl10_binary": "stl10",
}  # fmt: skip

_ROWS: Final = {"stl10": 105_000}  # training images, where they are not 50,000

# Settings that a result does not depend on: where things are, and what is written when. Not so the
# interval of checkpoints: of a training that ran away, the last before is measured.
_FREE: Final = (set(TRAINER.free) - {"checkpoint_every"}) | {
    "data", "threads", "certify_every", "certify_images",
}  # fmt: skip


def settings_of(preset: str, **given: Any) -> TrainImages:
    """The settings of one training: a preset, with what is given in its place."""
    values: dict[str, Any] = {"augmentation": "simclr-cifar", "on_nonfinite": "record"}
    device = {"device": found_device("auto")}
    return TrainImages(**{**values, **device, **PRESETS[preset], **given})


def cell(name: str, settings: TrainImages, **more: Any) -> Cell:
    """The cell of a training; what is measured of it besides accuracy is in `more`."""
    plan = {key: value for key, value in asdict(settings).items() if key not in _FREE}
    rows = settings.limit or _ROWS.get(str(more.get("set")), 50_000)
    steps = settings.steps or round(settings.epochs * (rows // settings.batch_size))
    return Cell(name, {**more, **plan}, steps, asdict(TrainImages()))


def source_of(folder: Path) -> str:
    """The folder as the setting ``data`` names it: torchvision's layouts by their data set."""
    for inside, name in _LAYOUTS.items():
        if (folder / inside).exists():
            return f"{name}:{folder}"
    return str(folder)


def training_of(plan: Mapping[str, Any], data: Path, out: Path) -> TrainImages:
    """The settings that a cell's plan stands for."""
    known = {key: plan[key] for key in asdict(TrainImages()) if key in plan}
    return TrainImages(
        **known, data=source_of(data), out=out, threads=1 if plan["device"] == "cpu" else None,
        tensorboard=False, log_every=2 if plan["batch_size"] >= 512 else 10,
    )  # fmt: skip

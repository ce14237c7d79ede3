"""From settings to data, networks and losses; used wherever a run is made or rebuilt."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Literal, NamedTuple, cast

import torch
from torch import nn

from ...base import Critic
from ...critics import Bilinear, Cosine, DotProduct, JointMLP, TwoTower
from ...data import Splits, load_splits
from ...distributed import ALONE, Group
from ...losses import ContrastiveLoss
from ...models import (
    Encoder,
    ProjectionHead,
    build_encoder,
    group_normalized,
    spectrally_normalized,
    synchronized,
)
from ...objectives import OBJECTIVES, Released
from ...runs import Run, RunError
from ...settings import from_yaml
from ...training import load_checkpoint
from ..kinds import check_kind
from .resolve import objective_parameters, stored_size
from .settings import TrainImages

__all__ = [
    "CRITICS",
    "Networks",
    "build_networks",
    "check_same_images",
    "data_card",
    "load_images",
    "read_settings",
    "trained_encoder",
    "trained_head",
    "trained_networks",
    "untrained_encoder",
]


def _tower(dim: int) -> nn.Module:
    return nn.Sequential(nn.Linear(dim, dim), nn.ReLU(), nn.Linear(dim, dim))


# Each takes the width of an embedding, the temperature and whether that is learned.
CRITICS: Final[dict[str, Callable[[int, float, bool], nn.Module]]] = {
    "dot": lambda dim, temperature, learn: DotProduct(temperature, learn),
    "cosine": lambda dim, temperature, learn: Cosine(temperature, learn),
    "bilinear": lambda dim, temperature, learn: Bilinear(dim, dim, temperature, learn),
    "two-tower": lambda dim, temperature, learn: TwoTower(
        _tower(dim), _tower(dim), temperature, learn
    ),
    "joint": lambda dim, temperature, learn: JointMLP(dim, dim),
}


class Networks(NamedTuple):
    """What is trained: encoder, projection head, and the loss with its critic."""

    encoder: Encoder
    head: ProjectionHead
    loss: ContrastiveLoss


def build_networks(settings: TrainImages, group: Group = ALONE) -> Networks:
    """New networks of a run, with the weights that its seed gives; settings must be resolved.

    Args:
        settings: Of the run.
        group: The processes that share its batches.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(settings.seed)
        encoder = build_encoder(settings.encoder, image_size=stored_size(settings))
        hidden = settings.projection_hidden or encoder.dim
        head = ProjectionHead(
            encoder.dim,
            hidden,
            settings.projection_dim,
            settings.projection_layers,
            offset=settings.projection_offset,
        )
        critic = CRITICS[cast(str, settings.critic)](
            settings.projection_dim, settings.temperature or 1.0, settings.learn_temperature
        )
        if settings.spectral_norm:
            for network in (encoder, head, critic):
                spectrally_normalized(network)
    for network in (encoder, head):
        if settings.normalization == "sync":
            synchronized(network, group)
        elif settings.normalization == "group":
            group_normalized(network)
    objective = OBJECTIVES[settings.objective](**objective_parameters(settings))
    if settings.released_devices:
        objective = Released(objective, settings.released_devices)
    scorer = cast(Critic, critic)  # nn.Module's attributes have no types of their own
    loss = ContrastiveLoss(
        objective,
        scorer,
        settings.pairing,
        settings.block_size,
        group=group,
        positive_prior=settings.positive_prior,
    )
    return Networks(encoder, head, loss)


def load_images(settings: TrainImages) -> Splits:
    """The training and test images that the settings name; pixels in memory unless streamed."""
    return load_splits(
        settings.data,
        image_size=stored_size(settings),
        test_fraction=settings.test_fraction,
        split_seed=settings.split_seed,
        on_bad_file=cast(Literal["error", "skip"], settings.on_bad_file),
        workers=settings.workers,
        download=settings.download,
        limit=settings.limit,
        stream=settings.stream,
        cache=settings.cache,
        label_column=settings.label_column,
    )


def data_card(splits: Splits) -> dict[str, Any]:
    """What a run saw, enough to notice that the data have changed."""
    train, test = splits.train, splits.test
    skipped = dict.fromkeys([*train.skipped, *test.skipped])
    return {
        "source": train.source,
        "split": splits.how,
        "train": len(train),
        "test": len(test),
        "classes": list(train.classes),
        "notes": list(dict.fromkeys([*train.notes, *test.notes])),
        "skipped": [{"row": file.index, "id": file.id, "reason": file.reason} for file in skipped],
        "checksum": train.checksum,
        "test_checksum": test.checksum,
    }


_IDENTITY: Final = ("train", "test", "classes", "checksum", "test_checksum")


def check_same_images(run: Run, splits: Splits) -> None:
    """Refuses images that are not those the run was trained on.

    A split that is drawn anew from other files would put training images among the test images.

    Raises:
        RunError: If the number of images, the classes or the pixels differ.
    """
    if not (run.path / "data.json").exists():
        return
    seen, now = run.read_json("data.json"), data_card(splits)
    keys = [key for key in _IDENTITY if key in seen]  # older runs have no test_checksum
    changed = [key for key in keys if seen[key] != now[key]]
    if changed:
        raise RunError(
            f"{run.path} was started on other images: {splits.train.source} has changed since "
            f"({', '.join(changed)})"
        )


def read_settings(run: Run) -> TrainImages:
    """The resolved settings of a run.

    Raises:
        ValueError: If its ``config.yaml`` is not that of a training run on images.
    """
    where = str(run.path / "config.yaml")
    check_kind(run, "train images")
    settings = from_yaml(TrainImages, run.config_text, where=where)
    if settings.critic is None:
        raise RunError(f"{where} leaves settings open: it was not written by `relatum train`")
    return settings


def untrained_encoder(settings: TrainImages) -> Encoder:
    """The encoder of a run as it was before the first step."""
    return build_networks(settings).encoder


def trained_encoder(run: Run) -> Encoder:
    """The encoder of a run's last checkpoint, on the CPU, in evaluation mode.

    Raises:
        RunError: If there is no readable checkpoint.
    """
    return trained_networks(run).encoder


def trained_head(run: Run) -> ProjectionHead:
    """The projection head of a run's last checkpoint, likewise; ``upto`` gives its first layers.

    Raises:
        RunError: If there is no readable checkpoint.
    """
    return trained_networks(run).head


def trained_networks(run: Run) -> Networks:
    """Encoder and head of a run's last checkpoint, likewise; loss and critic as at the start."""
    state = load_checkpoint(run.checkpoint)
    networks = build_networks(read_settings(run))
    for name in ("encoder", "head"):
        getattr(networks, name).load_state_dict(state["modules"][name])
        getattr(networks, name).eval()
    return networks

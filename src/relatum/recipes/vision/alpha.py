"""How much alpha has to say: its share of the gradient of one step."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import torch
from jaxtyping import UInt8
from rich.console import Console
from torch import Tensor

from ...data import POLICIES
from ...losses import ContrastiveLoss
from ...objectives import RPC
from ...runs import Run
from ..experiments.cells import Cell, Record
from ..images import TrainImages
from ..images.build import Networks, build_networks, trained_networks
from ..images.resolve import resolve
from .cells import images_of, train_cell
from .grid import DECIDING
from .presets import training_of

__all__ = ["alpha_share", "train_alpha_cell"]

_ROWS: Final = 128


def train_alpha_cell(cell: Cell, folder: Path, console: Console, *, data: Path) -> Record:
    """As :func:`train_cell`; at alpha = 0 of the deciding cells also alpha's share."""
    record = train_cell(cell, folder, console, data=data)
    if cell.plan["alpha"] != 0 or (cell.plan["beta"], cell.plan["gamma"]) != DECIDING:
        return record
    settings = resolve(training_of(cell.plan, data, cell.run(folder)), cell.plan["limit"] or 50_000)
    pixels = images_of(settings).train.pixels[:_ROWS]
    fresh = build_networks(settings)
    shares = {"untrained": alpha_share(fresh, settings, pixels)}
    shares["trained"] = alpha_share(trained_networks(Run.open(cell.run(folder))), settings, pixels)
    return {**record, "alpha_share": shares}


def alpha_share(
    networks: Networks, settings: TrainImages, pixels: UInt8[Tensor, "n 3 s s"]
) -> float:
    r"""How far the gradient of one step moves when alpha goes from 0 to 1.

    .. math:: \frac{\|\nabla_\theta L_{\alpha = 1} - \nabla_\theta L_{\alpha = 0}\|}
                   {\|\nabla_\theta L_{\alpha = 0}\|}

    over all weights of encoder and head, on one batch of two views, with the beta and gamma of the
    settings. Where the 2 n embeddings of the batch sum to zero, the mean negative score is a sum
    over positives and squared norms divided by 2 n − 2, and the share is small.

    Args:
        networks: Encoder, head and critic.
        settings: Resolved.
        pixels: The images of the batch.
    """
    generator = torch.Generator().manual_seed(0)
    policy = POLICIES[settings.augmentation or "none"](pixels.shape[-1])
    views = torch.cat([policy.apply(pixels, policy.draw(len(pixels), generator)) for _ in range(2)])
    weights = [p for part in networks[:2] for p in part.parameters()]

    def gradient(alpha: float) -> Tensor:
        objective = RPC(alpha, settings.beta or 0.0, settings.gamma or 0.0)
        loss = ContrastiveLoss(objective, networks.loss.critic, settings.pairing)
        x, y = networks.head(networks.encoder(views)).chunk(2)
        found = torch.autograd.grad(loss(x, y), weights, allow_unused=True)
        return torch.cat([each.flatten() for each in found if each is not None])

    for part in networks[:2]:
        part.train()
    zero, one = gradient(0.0), gradient(1.0)
    return float((one - zero).norm() / zero.norm())

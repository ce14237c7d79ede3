"""Joining the processes that a launcher such as ``torchrun`` has started."""

from __future__ import annotations

import atexit
import logging
import os
from typing import NamedTuple

import torch
import torch.distributed as dist

from ..distributed import ALONE, Group

__all__ = ["Place", "join_processes", "started_by_launcher"]


class Place(NamedTuple):
    """Where this process stands.

    Attributes:
        group: All processes of the run.
        device: The device of this one.
    """

    group: Group
    device: torch.device


def started_by_launcher() -> bool:
    """Whether this process is one of several that were started together."""
    return int(os.environ.get("WORLD_SIZE", "1")) > 1


def join_processes(device: str) -> Place:
    """Meets the other processes of the run; alone, there is nobody to meet.

    Lightning Fabric reads the launcher's environment, chooses the backend (gloo on CPUs, NCCL on
    GPUs) and gives each process its own GPU.

    Args:
        device: cpu, cuda or cuda:N, decided.

    Raises:
        ValueError: If Lightning Fabric is not installed, or one device is named for all.
    """
    if not started_by_launcher():
        return Place(ALONE, torch.device(device))
    if dist.is_initialized():
        name = f"cuda:{torch.cuda.current_device()}" if device == "cuda" else device
        return Place(Group.world(), torch.device(name))
    if ":" in device:
        raise ValueError(
            f"device {device!r} names one GPU for all processes; use --device cuda, and each takes "
            "its own"
        )
    try:
        from lightning_fabric import Fabric
    except ImportError:
        raise ValueError(
            "several processes need Lightning Fabric: pip install 'relatum[distributed]'"
        ) from None
    logging.getLogger("lightning_fabric").setLevel(logging.WARNING)  # its banners of success
    fabric = Fabric(
        accelerator=device,
        devices=int(os.environ.get("LOCAL_WORLD_SIZE", "1")),
        num_nodes=int(os.environ.get("GROUP_WORLD_SIZE", "1")),
        strategy="ddp",
    )
    fabric.launch()
    atexit.register(dist.destroy_process_group)
    return Place(Group.world(), fabric.device)

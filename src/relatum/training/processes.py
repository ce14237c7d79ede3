"""Joining the processes that a launcher such as ``torchrun`` has started."""

from __future__ import annotations

import atexit
import logging
import os
from typing import NamedTuple

import torch
import torch.distributed as dist

from ..distributed import ALONE, Group

__all__ = ["Place", "join_processes"]


class Place(NamedTuple):
    """Where this process stands.

    Attributes:
        group: All processes of the run.
        device: The device of this one.
    """

    group: Group
    device: torch.device


def join_processes(device: str) -> Place:
    """Meets the other processes of the run; alone, there is nobody to meet.

    Lightning Fabric reads the launcher's environment, chooses the backend (gloo on CPUs, NCCL on
    GPUs) and gives each process its own GPU.

    Args:
        device: cpu, cuda or cuda:N, decided.

    Raises:
        ValueError: If Lightning Fabric is not installed, one device is named for all, there are
            fewer GPUs than processes, or the launcher is not one that Fabric knows.
    """
    if dist.is_available() and dist.is_initialized():
        name = f"cuda:{torch.cuda.current_device()}" if device == "cuda" else device
        return Place(Group.world(), torch.device(name))
    expected = int(os.environ.get("WORLD_SIZE", "1"))  # Fabric will write its own into it
    if expected == 1:
        return Place(ALONE, torch.device(device))
    if ":" in device:
        raise ValueError(
            f"device {device!r} names one GPU for all processes; use --device cuda, and each takes "
            "its own"
        )
    here = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    if device == "cuda" and here > torch.cuda.device_count():
        raise ValueError(
            f"{here} processes were started on a machine with {torch.cuda.device_count()} GPUs, "
            "and each takes its own: start as many, or use --device cpu"
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
        devices=here,
        num_nodes=int(os.environ.get("GROUP_WORLD_SIZE", "1")),
        strategy="ddp",
    )
    fabric.launch()
    atexit.register(dist.destroy_process_group)
    group = Group.world()
    if group.size != expected:
        # Each would train on its own and write over the others' run.
        raise ValueError(
            f"WORLD_SIZE says {expected} processes, but {group.size} met: start them with torchrun"
        )
    return Place(group, fabric.device)

"""Networks in another mode for a while."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch import nn

__all__ = ["evaluation", "running_statistics_kept"]


@contextmanager
def running_statistics_kept(*networks: nn.Module) -> Iterator[None]:
    """Batch normalisation normalises as in training, without counting the same batch twice."""
    modules: list[Any] = [module for network in networks for module in network.modules()]
    kept = [
        (module, module.momentum, module.num_batches_tracked.clone())
        for module in modules
        if getattr(module, "track_running_stats", False)
    ]
    for module, _, _ in kept:
        module.momentum = 0.0
    try:
        yield
    finally:
        for module, momentum, count in kept:
            module.momentum = momentum
            module.num_batches_tracked.copy_(count)


@contextmanager
def evaluation(*modules: nn.Module) -> Iterator[None]:
    """The modules in evaluation mode for a while."""
    modes = [module.training for module in modules]
    for module in modules:
        module.eval()
    try:
        yield
    finally:
        for module, mode in zip(modules, modes, strict=True):
            module.train(mode)

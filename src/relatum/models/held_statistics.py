"""A network in training as a function of one image: batch normalisation by held statistics."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from ..distributed import ALONE
from .normalization import SynchronizedBatchNorm

__all__ = ["held_statistics"]

Statistics = tuple[Tensor, Tensor]


@contextmanager
def held_statistics(networks: Sequence[nn.Module], run: Callable[[], object]) -> Iterator[None]:
    r"""Within it, batch normalisation uses the statistics of the rows of one run before.

    .. math:: \hat x = w \, (x - \mu_B) / \sqrt{\sigma_B^2 + \epsilon} + b

    with mean and variance of the batch B that `run` sends through the networks. In training what a
    network makes of one image depends on all images of its batch; with the statistics held it is
    the same function, of one image. They stay functions of the weights, so that multiplying the
    weights before such a layer changes nothing, just as in training.

    Running statistics, which evaluation mode uses, are those of weights some steps ago. A penalty
    that shrinks the weights meets its bound there, and nowhere else.

    Running statistics are neither used nor changed, and modes of layers do not matter.

    Args:
        networks: Those whose layers are meant.
        run: Sends the batch through all of them.

    Raises:
        RuntimeError: If a layer is used twice in the run, or afterwards one that was not.

    Example:
        >>> layer, rows = nn.BatchNorm1d(2), torch.tensor([[0.0, 1.0], [2.0, 5.0]])
        >>> with held_statistics([layer], lambda: layer(rows)):
        ...     alone = layer(rows[:1])  # means 1 and 3, deviations 1 and 2
        >>> alone.detach()
        tensor([[-1.0000, -1.0000]])
    """
    layers = [part for net in networks for part in net.modules() if isinstance(part, _BatchNorm)]
    held: dict[_BatchNorm, Statistics] = {}
    try:
        for layer in layers:
            _use(layer, partial(_measured, held, layer))
        if layers:
            run()
        for layer in layers:
            _use(layer, partial(_by_held, held, layer))
        yield
    finally:
        for layer in layers:
            vars(layer).pop("forward", None)


def _use(layer: _BatchNorm, forward: Callable[[Tensor], Tensor]) -> None:
    """An attribute of the layer itself goes before the method of its class."""
    vars(layer)["forward"] = forward


def _measured(held: dict[_BatchNorm, Statistics], layer: _BatchNorm, x: Tensor) -> Tensor:
    if layer in held:
        raise RuntimeError("a batch normalisation is used twice in one run: which batch is meant?")
    held[layer] = _statistics(layer, x)
    return _by_held(held, layer, x)


def _by_held(held: dict[_BatchNorm, Statistics], layer: _BatchNorm, x: Tensor) -> Tensor:
    if layer not in held:
        raise RuntimeError("a batch normalisation is used that saw nothing of the batch")
    mean, variance = held[layer]
    scale = (variance + layer.eps).rsqrt()
    if layer.weight is not None:
        scale = scale * layer.weight
    shift = -mean * scale if layer.bias is None else layer.bias - mean * scale
    shape = _along_channels(x)
    return torch.addcmul(shift.view(shape), x, scale.view(shape))


def _statistics(layer: _BatchNorm, x: Tensor) -> Statistics:
    """Mean and biased variance of each channel, over all processes where the layer has those."""
    group = layer.group if isinstance(layer, SynchronizedBatchNorm) else ALONE
    over = [0, *range(2, x.ndim)]
    count = group.sum(x.new_tensor(x.numel() / x.shape[1]))
    mean = group.sum(x.sum(over)) / count
    centred = x - mean.view(_along_channels(x))
    return mean, group.sum(centred.square().sum(over)) / count


def _along_channels(x: Tensor) -> list[int]:
    return [1, -1, *[1] * (x.ndim - 2)]

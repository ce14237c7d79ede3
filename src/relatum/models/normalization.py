"""What batch normalisation normalises over: one batch, the batches of all processes, or none.

Batch normalisation ties the rows of a batch together, so a network's output, unlike a loss, changes
when a batch is divided among processes or into micro-batches. These two conversions undo that.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, final

import torch
from jaxtyping import Float
from torch import Tensor, nn

# torch.compiler.disable, loading the compiler at the first call and not at the import of relatum.
from torch._compile import _disable_dynamo as eagerly
from torch.autograd.function import once_differentiable
from torch.nn.functional import batch_norm
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.conv import _ConvNd
from torch.nn.utils.parametrizations import spectral_norm

from ..distributed import Group

__all__ = [
    "SynchronizedBatchNorm",
    "average_running_statistics",
    "group_normalized",
    "spectrally_normalized",
    "synchronized",
]


@final
class SynchronizedBatchNorm(_BatchNorm):
    r"""Batch normalisation over the rows of all processes; on any device and backend.

    .. math:: \hat x = w \, (x - \mu) / \sqrt{\sigma^2 + \epsilon} + b

    with mean and (biased) variance over all rows, and all positions, of all processes. One gather
    of two numbers a channel forward, one sum of as many backward; kept between the two is the input
    as it came, 16-bit under autocast, and nothing else of its size. With one process this is
    torch's own layer; torch's SyncBatchNorm needs a GPU. Parameters and buffers are those of the
    layer that it replaces.

    Args:
        layer: The layer to replace.
        group: The processes.

    Raises:
        ValueError: In training, if there is one value a channel: it has no variance.
        RuntimeError: If a second derivative is asked for in training on several processes. (WPC's
            gradient penalty takes it in evaluation mode.)
    """

    def __init__(self, layer: _BatchNorm, group: Group) -> None:
        super().__init__(
            layer.num_features, layer.eps, layer.momentum, layer.affine, layer.track_running_stats
        )
        self.weight, self.bias = layer.weight, layer.bias
        self.running_mean, self.running_var = layer.running_mean, layer.running_var
        self.num_batches_tracked = layer.num_batches_tracked
        self.group = group
        self.train(layer.training)

    def _check_input_dim(self, input: Tensor) -> None:
        """Any number of positions: this stands for 1d, 2d and 3d layers."""

    def forward(self, input: Float[Tensor, "n c *positions"]) -> Float[Tensor, "n c *positions"]:
        """The normalised batch; in evaluation mode by the running statistics, as always."""
        # Tensors without contents, on which costs are counted, cannot be sent.
        if not self.training or self.group.size == 1 or input.is_meta:
            return super().forward(input)
        return self._over_all_rows(input)

    @eagerly  # the compiler knows no collectives of ours
    def _over_all_rows(self, input: Tensor) -> Tensor:
        mean, variance, count = _statistics(input, self.group)
        self._track(mean, variance * count / (count - 1))
        given = (self.weight, self.bias, mean, variance, count, self.eps, self.group)
        out: Tensor = _Normalised.apply(input, *given)
        return out

    @torch.no_grad()
    def _track(self, mean: Tensor, variance: Tensor) -> None:
        if self.running_mean is None or self.running_var is None:
            return
        assert self.num_batches_tracked is not None
        self.num_batches_tracked.add_(1)
        share = self.momentum
        if share is None:  # the plain average over all batches
            share = 1 / float(self.num_batches_tracked)
        self.running_mean.lerp_(mean.to(self.running_mean), share)
        self.running_var.lerp_(variance.to(self.running_var), share)


@torch.no_grad()
def _statistics(x: Float[Tensor, "n c *positions"], group: Group) -> tuple[Tensor, Tensor, Tensor]:
    """Mean and variance of each channel over the rows of all processes, and how many values."""
    wide = x.float() if x.dtype.itemsize < 4 else x
    variances, means = torch.var_mean(wide, _all_but_channels(x), correction=0)
    count = means.new_tensor([x.numel() / x.shape[1]])
    found = group.gather(torch.cat([count, means, variances])[None], [1] * group.size)
    counts, means, variances = torch.split(found, [1, len(means), len(means)], dim=1)
    share = counts / counts.sum()
    mean = (share * means).sum(0)
    # Not E x² − (E x)², which would cancel where the mean is large.
    variance = (share * (variances + (means - mean).square())).sum(0)
    return mean, variance, counts.sum()


def _all_but_channels(x: Tensor) -> list[int]:
    return [0, *range(2, x.ndim)]


class _Normalised(torch.autograd.Function):
    r"""Normalises by statistics that depend on all rows, with the gradient through them.

    .. math::
        \partial x = \frac{w}{s} \Big( g - \frac1N \sum g - z \, \frac1N \sum g z \Big), \quad
        z = (x - \mu) / s, \quad s = \sqrt{\sigma^2 + \epsilon}

    with sums over all N values of a channel on all processes.
    """

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        weight: Tensor | None,
        bias: Tensor | None,
        mean: Tensor,
        variance: Tensor,
        count: Tensor,
        eps: float,
        group: Group,
    ) -> Tensor:
        inverse = (variance + eps).rsqrt()
        ctx.save_for_backward(x, weight, mean, inverse, count)
        ctx.group = group
        return batch_norm(x, mean, variance, weight, bias, eps=eps)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, weight, mean, inverse, count = ctx.saved_tensors
        shape = [1, -1, *[1] * (x.ndim - 2)]
        z = (x - mean.view(shape)) * inverse.view(shape)  # as wide as the mean
        of_bias = grad.sum(_all_but_channels(x), dtype=mean.dtype)
        of_weight = (grad * z).sum(_all_but_channels(x))
        first, second = (ctx.group.sum(torch.cat([of_bias, of_weight])) / count).chunk(2)
        slope = grad - first.view(shape) - z * second.view(shape)
        scale = inverse if weight is None else inverse * weight
        of_x = (slope * scale.view(shape)).to(x.dtype)
        asked = ctx.needs_input_grad
        return of_x, of_weight if asked[1] else None, of_bias if asked[2] else None, *[None] * 5


def synchronized(network: nn.Module, group: Group) -> None:
    """Replaces every batch normalisation by one over the rows of all processes, in place.

    Raises:
        ValueError: If the network itself is such a layer.
    """
    _replace(network, lambda layer: SynchronizedBatchNorm(layer, group))


def group_normalized(network: nn.Module) -> None:
    """Replaces every batch normalisation by group normalisation, in place.

    Each image is normalised over groups of at least 8 channels, at most 32 groups: no row depends
    on another, so micro-batches and processes change nothing at all. Scale and offset stay as they
    start; a layer without offset has none.

    Raises:
        ValueError: If the network itself is such a layer.

    References:
        Group Normalization (Wu & He, 2018). https://arxiv.org/abs/1803.08494
    """
    _replace(network, _group_norm)


def _group_norm(layer: _BatchNorm) -> nn.GroupNorm:
    channels = layer.num_features
    groups = math.gcd(max(1, channels // 8), 32)
    while channels % groups:
        groups //= 2
    new = nn.GroupNorm(groups, channels, eps=layer.eps)
    new.weight = layer.weight
    new.register_parameter("bias", layer.bias)
    return new


def _replace(network: nn.Module, by: Callable[[_BatchNorm], nn.Module]) -> None:
    if isinstance(network, _BatchNorm):
        raise ValueError("a single layer cannot be replaced in place: put it into a Sequential")
    made: dict[_BatchNorm, nn.Module] = {}  # a layer that stands in several places stays one
    for module in list(network.modules()):
        for name, child in list(module._modules.items()):
            if isinstance(child, _BatchNorm):
                if child not in made:
                    made[child] = _with_what_follows(child, by(child))
                setattr(module, name, made[child])


def _with_what_follows(layer: _BatchNorm, new: nn.Module) -> nn.Module:
    """The new layer, with the dropout and nonlinearity that timm puts into some of its own."""
    following = [getattr(layer, name, None) for name in ("drop", "act")]
    modules = [module for module in following if isinstance(module, nn.Module)]
    return nn.Sequential(new, *modules) if modules else new


def spectrally_normalized(network: nn.Module) -> None:
    r"""Divides the weights of all convolutions and dense layers by their spectral norm, in place.

    .. math:: W \leftarrow W / \sigma_1(W)

    with :math:`\sigma_1` by one step of power iteration a training forward pass. A kernel counts as
    the matrix of (channels out) x (channels in times taps).

    What this says, layer by layer. A dense layer is 1-Lipschitz (up to the iteration's error). A
    convolution of k x k taps is k-Lipschitz: 1 where its windows do not overlap, less than k in
    practice. Cosines have no constant near embeddings of length 0. **Batch or group normalisation
    divides by the deviation of what it gets, so a normalisation behind a layer undoes the division
    altogether**: in such networks, all ResNets and heads here among them, the functions that can be
    learned are the same as without (only the small epsilon and the size of gradients change), and
    no Lipschitz constant follows for the network. It bounds networks without normalisation layers,
    such as timm's vgg11.

    References:
        Spectral Normalization for Generative Adversarial Networks (Miyato et al., 2018).
        https://arxiv.org/abs/1802.05957
    """
    for module in list(network.modules()):
        if isinstance(module, nn.Linear | _ConvNd):
            spectral_norm(module)


@torch.no_grad()
def average_running_statistics(network: nn.Module, group: Group) -> None:
    """Gives all processes the mean of their running means and variances."""
    buffers = [
        buffer
        for module in network.modules()
        if isinstance(module, _BatchNorm)
        for buffer in (module.running_mean, module.running_var)
        if buffer is not None
    ]
    if group.size == 1 or not buffers:
        return
    flat = group.sum(torch.cat(buffers)) / group.size
    for buffer, mean in zip(buffers, torch.split(flat, [len(b) for b in buffers]), strict=True):
        buffer.copy_(mean)

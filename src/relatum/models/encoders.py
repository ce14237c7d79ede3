"""Encoders: image batch in [0, 1] to one representation vector an image.

An encoder is a module with an attribute ``dim``. The weights come from torch's global generator,
so call ``torch.manual_seed`` first where the same network is wanted again.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Sequence
from typing import Final, cast, final

import torchvision
from jaxtyping import Float
from torch import Tensor, nn

__all__ = ["ENCODERS", "ConvEncoder", "Encoder", "ResNetEncoder", "build_encoder"]

# Up to this size the ResNets keep their resolution in the stem: one 3 x 3 convolution without
# stride and no pooling, as everybody does on CIFAR. (The paper's own code says 32; 64 x 64
# Tiny-ImageNet images would be 2 x 2 pixels at the last group with the large stem.)
SMALL_IMAGE: Final = 64


@final
class ConvEncoder(nn.Module):
    """A plain convolutional network, for images of 16 to 32 pixels on a CPU.

    Each stage is a 3 x 3 convolution, batch normalisation and ReLU; the average over the last
    feature map is the representation. Cost an image: the sum over stages of
    9 · width_in · width_out · side² multiply-adds.

    Args:
        widths: Channels of the stages; the last one is the dimension of the representation.
        strides: Step of each stage's convolution, 1 or 2.

    Example:
        >>> import torch
        >>> ConvEncoder((16, 32), (2, 2))(torch.rand(5, 3, 28, 28)).shape
        torch.Size([5, 32])
    """

    def __init__(self, widths: Sequence[int], strides: Sequence[int]) -> None:
        super().__init__()
        if len(widths) != len(strides) or not widths:
            raise ValueError(f"widths {tuple(widths)} and strides {tuple(strides)} must pair up")
        stages: list[nn.Module] = []
        for before, after, stride in zip((3, *widths), widths, strides, strict=False):
            convolution = nn.Conv2d(before, after, 3, stride, padding=1, bias=False)
            # Fan-in scaling, as in the paper's code: signals keep their size through all stages.
            # With torch's default they shrink, and an untrained network, whose normalisation
            # still has no statistics, is a much worse baseline for some seeds than for others.
            nn.init.kaiming_normal_(convolution.weight, mode="fan_in", nonlinearity="relu")
            stages += [convolution, nn.BatchNorm2d(after), nn.ReLU()]
        self.stages = nn.Sequential(*stages)
        self.dim = widths[-1]

    def forward(self, images: Float[Tensor, "n 3 s s"]) -> Float[Tensor, "n d"]:
        """The representation of each image."""
        return cast(Tensor, self.stages(images).mean(dim=(2, 3)))


@final
class ResNetEncoder(nn.Module):
    """A ResNet (v1) up to its global average pooling.

    The last batch normalisation of every residual branch starts at zero (the branch begins as the
    identity), as in SimCLR's code. Images of at most 64 pixels get the small stem.

    Args:
        depth: 18 or 34 (basic blocks, 512 features) or 50 (bottlenecks, 2048 features).
        image_size: Side of the images in pixels.
    """

    def __init__(self, depth: int, image_size: int) -> None:
        super().__init__()
        build = getattr(torchvision.models, f"resnet{depth}")
        network = build(weights=None, zero_init_residual=True)
        if image_size <= SMALL_IMAGE:
            network.conv1 = nn.Conv2d(3, 64, 3, stride=1, padding=1, bias=False)
            nn.init.kaiming_normal_(network.conv1.weight, mode="fan_out", nonlinearity="relu")
            network.maxpool = nn.Identity()
        self.dim: int = network.fc.in_features
        network.fc = nn.Identity()
        self.network = network

    def forward(self, images: Float[Tensor, "n 3 s s"]) -> Float[Tensor, "n d"]:
        """The representation of each image."""
        return cast(Tensor, self.network(images))


Encoder = ConvEncoder | ResNetEncoder

# Multiply-adds an image: conv-small 0.9 M at 28 x 28, conv-medium 4 M at 16 x 16, 15 M at 32 x 32.
# conv-small has a fourth stage on purpose: with three of stride 2 a last feature sees 15 x 15
# pixels, less than a digit, and its average loses against raw pixels.
ENCODERS: Final[dict[str, Callable[[int], Encoder]]] = {
    "conv-small": lambda image_size: ConvEncoder((16, 32, 64, 128), (2, 2, 2, 2)),
    "conv-medium": lambda image_size: ConvEncoder((32, 64, 128, 256), (1, 2, 2, 2)),
    "resnet18": lambda image_size: ResNetEncoder(18, image_size),
    "resnet34": lambda image_size: ResNetEncoder(34, image_size),
    "resnet50": lambda image_size: ResNetEncoder(50, image_size),
}


def build_encoder(name: str, *, image_size: int) -> Encoder:
    """A new, untrained encoder.

    Args:
        name: One of :data:`ENCODERS`.
        image_size: Side of the images in pixels, at least 8.

    Raises:
        ValueError: If the name is unknown (the nearest known one is named) or the size too small.

    Example:
        >>> build_encoder("conv-small", image_size=28).dim
        128
    """
    if name not in ENCODERS:
        near = difflib.get_close_matches(name, ENCODERS, n=1, cutoff=0.0)[0]
        raise ValueError(
            f"unknown encoder {name!r}; did you mean {near!r}? Known: {', '.join(ENCODERS)}"
        )
    if image_size < 8:
        raise ValueError(f"image_size must be at least 8 pixels, got {image_size}")
    return ENCODERS[name](image_size)

"""Encoders: image batch in [0, 1] to one representation vector an image.

An encoder is a module with an attribute ``dim``. The weights come from torch's global generator,
so call ``torch.manual_seed`` first where the same network is wanted again.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Sequence
from typing import Final, cast, final

from jaxtyping import Float
from torch import Tensor, nn

from .base import Encoder

__all__ = ["ENCODERS", "ConvEncoder", "build_encoder", "check_encoder"]


@final
class ConvEncoder(Encoder):
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


# Multiply-adds an image: conv-small 0.9 M at 28 x 28, conv-medium 4 M at 16 x 16, 15 M at 32 x 32.
# conv-small has a fourth stage on purpose: with three of stride 2 a last feature sees 15 x 15
# pixels, less than a digit, and its average loses against raw pixels.
_CONVOLUTIONS: Final[dict[str, Callable[[], Encoder]]] = {
    "conv-small": lambda: ConvEncoder((16, 32, 64, 128), (2, 2, 2, 2)),
    "conv-medium": lambda: ConvEncoder((32, 64, 128, 256), (1, 2, 2, 2)),
}
_RESNET: Final = re.compile(r"resnet(18|34|50|101|152|200)(?:-([1-9])x)?(-sk)?")
_TIMM: Final = "timm:"

ENCODERS: Final = (
    *_CONVOLUTIONS,
    *(f"resnet{depth}" for depth in (18, 34, 50, 101, 152, 200)),
    *("resnet50-sk", "resnet50-2x", "resnet152-2x-sk"),
)
"""Names of encoders; -Wx multiplies the widths of any ResNet, -sk gives selective kernels to those
of depth 50 and more, and timm:NAME is timm's backbone of that name."""


def check_encoder(name: str) -> None:
    """Raises ValueError for what cannot be the name of an encoder; timm's names are taken as given.

    Example:
        >>> check_encoder("resnet19")
        Traceback (most recent call last):
        ValueError: unknown encoder 'resnet19'; did you mean 'resnet18'? Known: conv-small, ...
    """
    if name in _CONVOLUTIONS or name.startswith(_TIMM):
        return
    found = _RESNET.fullmatch(name)
    if found is None:
        near = difflib.get_close_matches(name, ENCODERS, n=1, cutoff=0.0)[0]
        raise ValueError(
            f"unknown encoder {name!r}; did you mean {near!r}? Known: {', '.join(ENCODERS)} and "
            "other resnetDEPTH-WIDTHx-sk, timm:NAME"
        )
    if found[3] and found[1] in ("18", "34"):
        raise ValueError(
            f"encoder {name!r}: selective kernels replace the 3 x 3 convolution of bottlenecks, "
            f"which resnet{found[1]} does not have; use resnet50-sk or deeper"
        )


def build_encoder(name: str, *, image_size: int) -> Encoder:
    """A new, untrained encoder.

    Args:
        name: One of :data:`ENCODERS`: a small network of convolutions; a ResNet of SimCLRv2,
            ``resnet{18,34,50,101,152,200}`` with ``-2x`` (any width from 1 to 9) and ``-sk``
            (selective kernels); or ``timm:NAME``.
        image_size: Side of the images in pixels, at least 8.

    Raises:
        ValueError: If the name is unknown (the nearest known one is named) or the size too small.

    Example:
        >>> build_encoder("conv-small", image_size=28).dim
        128
    """
    check_encoder(name)
    if image_size < 8:
        raise ValueError(f"image_size must be at least 8 pixels, got {image_size}")
    if name in _CONVOLUTIONS:
        return _CONVOLUTIONS[name]()
    from .resnet import ResNetEncoder, TimmEncoder  # timm takes a while to load

    found = _RESNET.fullmatch(name)
    if found is None:
        return TimmEncoder(name.removeprefix(_TIMM), image_size)
    depth, width, selective = found.groups()
    return ResNetEncoder(int(depth), image_size, int(width or 1), selective=bool(selective))

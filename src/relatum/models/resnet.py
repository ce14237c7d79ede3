"""The ResNets of SimCLRv2, and any backbone of timm."""

from __future__ import annotations

from typing import Any, Final, cast, final

import timm
import torch
from jaxtyping import Float
from timm.layers.selective_kernel import SelectiveKernelAttn
from timm.models.resnet import BasicBlock, Bottleneck, ResNet
from torch import Tensor, nn

from .base import Encoder

__all__ = ["DEPTHS", "ResNetEncoder", "SelectiveKernel", "TimmEncoder"]

DEPTHS: Final[dict[int, tuple[Any, tuple[int, ...]]]] = {
    18: (BasicBlock, (2, 2, 2, 2)),
    34: (BasicBlock, (3, 4, 6, 3)),
    50: (Bottleneck, (3, 4, 6, 3)),
    101: (Bottleneck, (3, 4, 23, 3)),
    152: (Bottleneck, (3, 8, 36, 3)),
    200: (Bottleneck, (3, 24, 36, 3)),
}

# Up to this size the ResNets keep their resolution in the stem: one 3 x 3 convolution without
# stride and no pooling, as everybody does on CIFAR. (SimCLR's own code says 32; 64 x 64
# Tiny-ImageNet images would be 2 x 2 pixels at the last group with the large stem.)
SMALL_IMAGE: Final = 64
SK_RATIO: Final = 0.0625
# Standard deviation of a standard normal variable that is cut at two.
_CUT_DEVIATION: Final = 0.87962566103423978


@final
class SelectiveKernel(nn.Module):
    r"""Two streams of one convolution, mixed channel by channel by what the image holds.

    .. math::
        u_1, u_2 = \mathrm{ReLU\,BN}(W x), \quad
        m = \mathrm{softmax}_{1,2}\big(V_2 \,\mathrm{ReLU\,BN}(V_1\, \overline{u_1 + u_2})\big),
        \quad y = m_1 u_1 + m_2 u_2

    with the bar for the mean over positions, and :math:`\max(32, \lfloor c / 16 \rfloor)` channels
    between :math:`V_1` and :math:`V_2`. Both streams are 3 x 3, as in SimCLRv2.

    Args:
        channels: c, of input and output.
        stride: Step of the convolution.

    References:
        Selective Kernel Networks (Li et al., 2019). https://arxiv.org/abs/1903.06586
    """

    def __init__(self, channels: int, stride: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(channels, 2 * channels, 3, stride, padding=1, bias=False)
        self.bn = nn.BatchNorm2d(2 * channels)
        self.attention = SelectiveKernelAttn(channels, 2, max(32, int(channels * SK_RATIO)))

    def forward(self, x: Float[Tensor, "n c h w"]) -> Float[Tensor, "n c i j"]:
        """The mixture of both streams."""
        streams = self.bn(self.conv(x)).relu().unflatten(1, (2, -1))
        return cast(Tensor, (streams * self.attention(streams)).sum(1))


@final
class ResNetEncoder(Encoder):
    """A ResNet (v1) of SimCLRv2 up to its global average pooling.

    Groups are 64, 128, 256 and 512 times `width` channels wide; bottlenecks put out four times
    that. The first block of every group has a projection shortcut (also in the first group of
    depths 18 and 34, where torchvision and timm have none). The last batch normalisation of a
    residual branch starts at zero, so the branch begins as the identity; convolutions start
    truncated normal with variance 1 / fan-in. Images of at most 64 pixels get a 3 x 3 stem.

    With selective kernels the 3 x 3 convolutions of the bottlenecks are :class:`SelectiveKernel`,
    the stem for larger images has three 3 x 3 convolutions instead of one of 7 x 7, and shortcuts
    average 2 x 2 pixels before their 1 x 1 convolution.

    Args:
        depth: 18 or 34 (basic blocks, 512 features), 50, 101, 152 or 200 (bottlenecks, 2048).
        image_size: Side of the images in pixels.
        width: Factor of all widths, at least 1.
        selective: Whether to use selective kernels; they belong to bottlenecks.

    Raises:
        ValueError: If there is no such network.

    References:
        Big Self-Supervised Models are Strong Semi-Supervised Learners (Chen et al., 2020),
        table 1. https://arxiv.org/abs/2006.10029
    """

    def __init__(
        self, depth: int, image_size: int, width: int = 1, *, selective: bool = False
    ) -> None:
        super().__init__()
        if depth not in DEPTHS or width < 1:
            raise ValueError(
                f"depth must be one of {', '.join(map(str, DEPTHS))} and width at least 1, got "
                f"{depth} and {width}"
            )
        block, counts = DEPTHS[depth]
        if selective and block is BasicBlock:
            raise ValueError(
                f"selective kernels replace the 3 x 3 convolution of bottlenecks, which depth "
                f"{depth} does not have; use depth 50 or more"
            )
        network: Any = ResNet(
            block,
            counts,
            num_classes=0,
            channels=tuple(width * channels for channels in (64, 128, 256, 512)),
            stem_type="deep",  # the only one whose width can be chosen; most get another one below
            stem_width=32 * width,
            avg_down=selective,
        )
        if image_size <= SMALL_IMAGE:
            network.conv1 = nn.Conv2d(3, 64 * width, 3, padding=1, bias=False)
            network.maxpool = nn.Identity()
        elif not selective:
            network.conv1 = nn.Conv2d(3, 64 * width, 7, 2, padding=3, bias=False)
        if block is BasicBlock:
            shortcut = nn.Conv2d(64 * width, 64 * width, 1, bias=False)
            network.layer1[0].downsample = nn.Sequential(shortcut, nn.BatchNorm2d(64 * width))
        if selective:
            _select(network)
        for module in network.modules():
            if isinstance(module, nn.Conv2d):
                _fan_in_(module.weight)
        self.network = network
        self.dim = int(network.num_features)

    def forward(self, images: Float[Tensor, "n 3 s s"]) -> Float[Tensor, "n d"]:
        """The representation of each image."""
        return cast(Tensor, self.network(images))


def _select(network: Any) -> None:
    """Puts selective kernels into all bottlenecks, and pooling into the one shortcut without."""
    for block in network.modules():
        if isinstance(block, Bottleneck):
            before = block.conv2
            kernel = SelectiveKernel(before.in_channels, before.stride[0])
            block.add_module("conv2", kernel)
            block.add_module("bn2", nn.Identity())  # it stands inside, before the mixture
    # Of stride 1. What lies beyond the edge does not count: repeating the edge has that effect.
    average = nn.Sequential(nn.ReplicationPad2d((0, 1, 0, 1)), nn.AvgPool2d(2, 1))
    network.layer1[0].downsample[0] = average


@torch.no_grad()
def _fan_in_(weight: Tensor) -> None:
    """Truncated normal with variance 1 / fan-in, cut at two standard deviations."""
    deviation = weight[0].numel() ** -0.5 / _CUT_DEVIATION
    nn.init.trunc_normal_(weight, std=deviation, a=-2 * deviation, b=2 * deviation)


@final
class TimmEncoder(Encoder):
    """A backbone of timm, by its name there, from random weights.

    Its classifier is left out, so that its pooled features are the representation. It sees pixels
    in [0, 1], like all encoders here; nothing is subtracted.

    Args:
        name: As in ``timm.list_models()``.
        image_size: Side of the images in pixels.

    Raises:
        ValueError: If timm has no such model, or it does not make one vector of such an image.
    """

    def __init__(self, name: str, image_size: int) -> None:
        super().__init__()
        if not timm.is_model(name):
            near = timm.list_models(f"*{name}*")[:3] or ["resnet18", "vit_tiny_patch16_224"]
            raise ValueError(f"timm has no model {name!r}; it has, for example, {', '.join(near)}")
        known = timm.get_pretrained_cfg(name)
        # Transformers have as many position embeddings as patches.
        fixed = known is not None and known.fixed_input_size
        size: dict[str, Any] = {"img_size": image_size} if fixed else {}
        try:
            network = timm.create_model(name, pretrained=False, num_classes=0, **size).eval()
            with torch.no_grad():
                features = network(torch.zeros(1, 3, image_size, image_size))
            if features.ndim != 2:
                raise ValueError(f"it gives features of the shape {tuple(features.shape[1:])}")
        except (RuntimeError, ValueError, AssertionError) as error:
            raise ValueError(
                f"timm:{name} does not make one vector of an image of {image_size} x {image_size} "
                f"pixels: {' '.join(str(error).split())}"
            ) from error
        self.network = network.train()
        self.dim = features.shape[1]

    def forward(self, images: Float[Tensor, "n 3 s s"]) -> Float[Tensor, "n d"]:
        """The representation of each image."""
        return cast(Tensor, self.network(images))

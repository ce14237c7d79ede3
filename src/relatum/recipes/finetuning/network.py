"""The network that is tuned, and what of it stays as it is."""

from __future__ import annotations

from typing import Final, cast, final

from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

__all__ = ["Classifier", "normalises_by_batch", "stem_of"]

STEMS: Final = ("stem", "conv1", "conv_stem", "patch_embed")


@final
class Classifier(nn.Module):
    r"""A trunk and a linear classifier that starts at zero: :math:`x \mapsto W\, t(x) + b`.

    Args:
        trunk: The encoder, or the encoder and the first layers of its projection head.
        stem: Parts of the trunk whose weights stay; their batch normalisation works as elsewhere.
        dim: Width of the trunk's output.
        classes: Number of classes.
        frozen: Whether the whole trunk stays, in evaluation mode.
        running: Whether batch normalisation keeps to its running statistics.
    """

    def __init__(
        self,
        trunk: nn.Module,
        stem: list[nn.Module],
        dim: int,
        classes: int,
        *,
        frozen: bool,
        running: bool,
    ) -> None:
        super().__init__()
        self.trunk = trunk
        self.linear = nn.utils.skip_init(nn.Linear, dim, classes)  # type: ignore[no-untyped-call]
        for parameter in self.linear.parameters():
            nn.init.zeros_(parameter)
        self.frozen, self.running = frozen, running
        trunk.requires_grad_(not frozen)
        for part in stem:
            part.requires_grad_(False)

    def train(self, mode: bool = True) -> Classifier:
        """Training mode, but for the parts whose statistics or whose all is kept."""
        super().train(mode)
        if self.frozen:
            self.trunk.eval()
        elif self.running:
            for module in self.trunk.modules():
                if isinstance(module, _BatchNorm):
                    module.eval()
        return self

    def forward(self, images: Float[Tensor, "n 3 s s"]) -> Float[Tensor, "n c"]:
        """The class scores of each image."""
        return cast(Tensor, self.linear(self.trunk(images)))


def stem_of(encoder: nn.Module) -> list[nn.Module]:
    """The first layers of an encoder, up to its first block.

    An attribute ``stem`` says so, or one of the names that timm gives it; of a plain convolutional
    network it is the first stage.

    Raises:
        ValueError: If the encoder shows none of these.
    """
    for body in (encoder, getattr(encoder, "network", None)):
        first = next((part for name in STEMS if (part := getattr(body, name, None))), None)
        if isinstance(first, nn.Module):
            norm = getattr(body, "bn1", None)
            return [first, norm] if isinstance(norm, nn.Module) else [first]
    if isinstance(stages := getattr(encoder, "stages", None), nn.Sequential):
        return list(stages[:2])
    raise ValueError(
        f"where the stem of a {type(encoder).__name__} ends is not known: tune 'all', or give it "
        "an attribute stem"
    )


def normalises_by_batch(network: nn.Module) -> bool:
    """Whether there is batch normalisation in a network."""
    return any(isinstance(module, _BatchNorm) for module in network.modules())

"""WPC's gradient penalty on images: of views, and of interpolates between images."""

from __future__ import annotations

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor

from ...data import Frames
from ...penalty import gradient_penalty
from .build import Networks
from .modes import evaluation

__all__ = ["excess"]


def excess(
    networks: Networks,
    view: Callable[[Frames], Tensor],
    share: Float[Tensor, "n 1 1 1"],
    *frames: Frames,
) -> Float[Tensor, ""]:
    """The penalty of n images, times n; in 32-bit floats, whatever autocast does elsewhere.

    Both views of a pair are mixed with the same other image in the same proportion, so an
    interpolate is a pair again. Batch normalisation uses its running statistics here: with the
    batch's own, the score of one pair would depend on all images.

    Args:
        networks: Of the run.
        view: Makes views of frames.
        share: Of the other image in the interpolate.
        frames: First views of own images, second ones, first views of the others, second ones.
    """

    def pair(own: Frames, other: Frames) -> Tensor:
        seen = view(own)
        mixed = torch.lerp(seen, view(other), share.to(seen))
        return torch.cat([seen, mixed])

    def score(x: Tensor, y: Tensor) -> Tensor:
        z = networks.head(networks.encoder(torch.cat([x, y])))
        scores: Tensor = networks.loss.critic(*z.chunk(2))
        return scores

    with evaluation(networks.encoder, networks.head):
        found = gradient_penalty(score, pair(*frames[::2]), pair(*frames[1::2]))
    return found * len(share)

"""WPC's gradient penalty on images: of views, and of interpolates between images."""

from __future__ import annotations

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor

from ...data import Frames
from ...models import held_statistics
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
    interpolate is a pair again. Batch normalisation uses the statistics of the views, as in the
    loss, but held: else the score of one pair would depend on all images. (Not its running
    statistics: they are those of larger weights some steps ago, so that shrinking weights meet the
    bound there while the network in training exceeds it.)

    Args:
        networks: Of the run.
        view: Makes views of frames.
        share: Of the other image in the interpolate.
        frames: First views of own images, second ones, first views of the others, second ones.
    """
    views = [view(each) for each in frames]
    own, others = views[:2], views[2:]
    batch = torch.cat(own)
    pairs = [
        torch.cat([seen, torch.lerp(seen, other, share.to(seen))])
        for seen, other in zip(own, others, strict=True)
    ]

    def score(x: Tensor, y: Tensor) -> Tensor:
        z = networks.head(networks.encoder(torch.cat([x, y])))
        scores: Tensor = networks.loss.critic(*z.chunk(2))
        return scores

    trunk = (networks.encoder, networks.head)
    with evaluation(*trunk), held_statistics(trunk, lambda: trunk[1](trunk[0](batch))):
        found = gradient_penalty(score, *pairs)
    return found * len(share)

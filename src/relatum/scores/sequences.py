r"""Pairings of sequences: a prediction against the frame that comes, and sampled other frames.

Of b sequences of T frames, the anchors are the first A frames of each. The prediction
:math:`\hat z_{t,k}` made at anchor t has one positive, the frame :math:`z_{t+k}` of its own
sequence, and negatives that are drawn once for each anchor and shared by all k:

================== =====================================================================
scope              a sequence, uniformly among              and a frame
================== =====================================================================
``any``            all of the batch                         uniformly among those whose
``same_speaker``   those of the anchor's speaker            place differs from t
``same_sequence``  its own
================== =====================================================================

A draw may be the positive itself (place t + k of the own sequence), with a probability of
1 / (b (T - 1)) in scope ``any``. It counts as in the published code, or is left out where
``exclude_positive`` says so. It is known by its place, never by its value: frames that a collapsed
encoder makes equal stay negatives, so that collapse is not rewarded.
"""

from __future__ import annotations

from typing import Final

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from ..base import Critic, Scores, SeparableCritic
from ..products import matmul
from .factors import wide_factors
from .negatives import PooledNegatives
from .strategies import Dense

__all__ = ["SCOPES", "draw_negatives", "look_ahead"]

SCOPES: Final = ("any", "same_speaker", "same_sequence")


def draw_negatives(
    speakers: Int64[Tensor, " b"],
    frames: int,
    anchors: int,
    count: int,
    scope: str,
    generator: torch.Generator,
) -> Int64[Tensor, "b a k"]:
    """Numbers of the frames drawn for each anchor: sequence · frames + place.

    Args:
        speakers: The speaker of each sequence; looked at in scope ``same_speaker`` alone.
        frames: T, at least 2.
        anchors: A < T.
        count: Negatives of each anchor.
        scope: One of :data:`SCOPES`.
        generator: On the CPU, as the draws are, so that they do not depend on the device.

    Raises:
        ValueError: If an argument is out of its range.
    """
    if scope not in SCOPES:
        raise ValueError(f"scope must be one of {', '.join(SCOPES)}, got {scope!r}")
    if frames < 2 or not 0 < anchors < frames or count < 1:
        raise ValueError(
            f"negatives need 0 < anchors < frames and count > 0, got anchors {anchors}, frames "
            f"{frames}, count {count}: a sequence of one frame has no other to draw"
        )
    b = len(speakers)
    shape = (b, anchors, count)
    places = torch.randint(frames - 1, shape, generator=generator)
    # Places from t on move up by one: all but t itself, uniformly.
    places += places >= torch.arange(anchors)[:, None]
    own = torch.arange(b)[:, None, None]
    if scope == "same_sequence":
        return own * frames + places
    if scope == "any":
        return torch.randint(b, shape, generator=generator) * frames + places
    mates = speakers.cpu()[:, None] == speakers.cpu()
    # The mates of each sequence stand first in its row; a draw is a number among them.
    order = mates.long().argsort(dim=1, descending=True, stable=True)
    share = torch.rand(shape, generator=generator, dtype=torch.float64)
    number = (share * mates.sum(1)[:, None, None]).long()
    return order[own, number] * frames + places


def look_ahead(
    critic: Critic,
    predictions: Float[Tensor, "b a d"],
    frames: Float[Tensor, "b t c"],
    step: int,
    negatives: Int64[Tensor, "b a k"],
    *,
    exclude_positive: bool = False,
) -> Scores:
    """The scores of all predictions `step` frames ahead.

    Inner products are taken of all predictions with all frames of the batch, in one product, and
    those that count are picked: less work for the memory than to copy k frames to each anchor.

    Args:
        critic: How a prediction and a frame are scored.
        predictions: Of each sequence, one for each anchor.
        frames: Of each sequence, at least a + `step`.
        step: The look-ahead k >= 1.
        negatives: From :func:`draw_negatives`.
        exclude_positive: Leave out draws that are the positive.

    Raises:
        ValueError: If the frames do not reach `step` ahead of the last anchor.

    Example:
        >>> from relatum import DotProduct
        >>> frames = torch.tensor([[[1.0], [2.0], [3.0]]])
        >>> look_ahead(DotProduct(), torch.ones(1, 2, 1), frames, 1, torch.tensor([[[2], [0]]]))
        Scores(positives=tensor([2., 3.]), ...)
    """
    (b, a, _), t = predictions.shape, frames.shape[1]
    if step < 1 or a + step > t:
        raise ValueError(f"{a} anchors look {step} ahead: {a + step} frames are needed, got {t}")
    at = torch.arange(b)[:, None] * t + torch.arange(a) + step
    picked = torch.cat([at[..., None], negatives.cpu()], 2).flatten(0, 1).to(frames.device)
    x, y = predictions.flatten(0, 1), frames.flatten(0, 1)
    if isinstance(critic, SeparableCritic):
        u, v = wide_factors(critic, x, y)
        scores = matmul(u, v.T).gather(1, picked)
    else:
        scores = critic(x[:, None], y[picked])
    excluded = picked[:, 1:] == picked[:, :1] if exclude_positive else None
    return Scores(scores[:, 0], PooledNegatives(Dense(scores[:, 1:], excluded)))

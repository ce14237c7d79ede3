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

Of several processes each holds some of the sequences, and draws reach those of all.

A draw may be the positive itself (place t + k of the own sequence), with a probability of
1 / (b (T - 1)) in scope ``any``. It counts as in the published code, or is left out where
``exclude_positive`` says so. It is known by its place, never by its value: frames that a collapsed
encoder makes equal stay negatives, so that collapse is not rewarded.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from ..base import Critic, Scores, SeparableCritic
from ..distributed import ALONE, Group
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
    predictions: Sequence[Float[Tensor, "b a d"]],
    frames: Float[Tensor, "b t c"],
    negatives: Int64[Tensor, "b a k"],
    *,
    exclude_positive: bool = False,
    group: Group = ALONE,
) -> list[Scores]:
    """The scores of the predictions 1, 2, ..., K frames ahead, for each of these look-aheads.

    Look-aheads share their negatives, so those are copied to the anchors once, and inner products
    with all K predictions of an anchor are one small matrix product.

    Args:
        critic: How a prediction and a frame are scored.
        predictions: Of each look-ahead, in order; of each sequence one for each anchor.
        frames: Of each sequence, at least a + K.
        negatives: From :func:`draw_negatives`.
        exclude_positive: Leave out draws that are the positive.
        group: The processes that share the batch: each has the sequences, predictions and negatives
            of its own anchors, in order of rank, and frames are gathered, with their gradient.

    Raises:
        ValueError: If the frames do not reach K ahead of the last anchor.

    Example:
        >>> from relatum import DotProduct
        >>> frames = torch.tensor([[[1.0], [2.0], [3.0]]])
        >>> drawn = torch.tensor([[[2], [0]]])
        >>> look_ahead(DotProduct(), [torch.ones(1, 2, 1)], frames, drawn)[0].positives
        tensor([2., 3.])
    """
    (b, a, _), t, steps = predictions[0].shape, frames.shape[1], len(predictions)
    if a + steps > t:
        raise ValueError(f"{a} anchors look {steps} ahead: {a + steps} frames are needed, got {t}")
    rows = group.rows(b)
    first = sum(rows[: group.rank])
    at = (torch.arange(first, first + b)[:, None] * t + torch.arange(a)).flatten()
    ahead = torch.stack([at + k for k in range(1, steps + 1)])
    drawn = negatives.cpu().flatten(0, 1)
    masks = [drawn == own[:, None] if exclude_positive else None for own in ahead]
    ahead, drawn, x = ahead.to(frames.device), drawn.to(frames.device), torch.stack([*predictions])
    x, y = x.flatten(1, 2), group.gather(frames, rows).flatten(0, 1)
    if isinstance(critic, SeparableCritic):
        u, v = wide_factors(critic, x.flatten(0, 1), y)
        u = u.view(steps, b * a, -1)
        # index_select: its gradient is an index_add, where that of v[drawn] is sorted first.
        copies = v.index_select(0, drawn.flatten()).view(*drawn.shape, -1)
        positives = (u * v.index_select(0, ahead.flatten()).view_as(u)).sum(-1)
        scores = matmul(copies, u.permute(1, 2, 0)).permute(2, 0, 1)
    else:
        positives = torch.stack([critic(x[k], y[own]) for k, own in enumerate(ahead)])
        scores = torch.stack([critic(each[:, None], y[drawn]) for each in x])
    # unbind, not scores[k]: the gradients of K slices would be K tensors of the size of all.
    sides = zip(positives.unbind(), scores.contiguous().unbind(), masks, strict=True)
    held = [
        (own, Dense(others, None if mask is None else mask.to(own.device)))
        for own, others, mask in sides
    ]
    return [Scores(own, PooledNegatives(dense, group), group.sum) for own, dense in held]

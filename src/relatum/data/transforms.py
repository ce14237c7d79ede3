"""Colours of whole batches, each image with parameters of its own.

Images are ``(n, 3, h, w)`` floats in [0, 1]. A name that ends in an underscore changes its argument
in place (augmentation is bound by memory traffic) and returns it. On each image an operation equals
torchvision's of the same name with the same parameter.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int64
from torch import Tensor

__all__ = [
    "BRIGHTNESS",
    "CONTRAST",
    "HUE",
    "NOTHING",
    "SATURATION",
    "adjust_hue_",
    "blend_",
    "colour_jitter_",
    "greyscale",
    "jitter_arrangement",
]

BRIGHTNESS, CONTRAST, SATURATION, HUE, NOTHING = range(5)
"""Codes of the colour operations, in the order of torchvision's ``ColorJitter``."""

_GREY = (0.2989, 0.587, 0.114)  # luma weights of ITU-R BT.601, with torchvision's digits


def greyscale(x: Float[Tensor, "n 3 h w"]) -> Float[Tensor, "n 1 h w"]:
    """The grey level of each pixel."""
    return (x[:, 0:1] * _GREY[0]).add_(x[:, 1:2], alpha=_GREY[1]).add_(x[:, 2:3], alpha=_GREY[2])


def blend_(
    x: Float[Tensor, "n 3 h w"],
    factor: Float[Tensor, " n"],
    pixel: Float[Tensor, " n"],
    mean: Float[Tensor, " n"],
) -> Float[Tensor, "n 3 h w"]:
    r"""Brightness, contrast or saturation, each image its own; then clips to [0, 1].

    All three move an image away from a reference (factor above 1) or towards it:
    :math:`x' = f x + (1 - f) g`, where :math:`g` is black (brightness), the image's mean grey level
    (contrast), or each pixel's grey level (saturation). So one pass serves a batch of mixed kinds.

    Args:
        x: Images in [0, 1].
        factor: 0 or more; 1 changes nothing.
        pixel: 1 where the reference is each pixel's grey level, else 0.
        mean: 1 where it is the mean grey level, else 0.
    """
    factor, pixel, mean = (each.view(-1, 1, 1, 1) for each in (factor, pixel, mean))
    reference = greyscale(x)
    constant = reference.mean(dim=(2, 3), keepdim=True).mul_(mean)
    reference.mul_(pixel).add_(constant)
    return torch.lerp(reference, x, factor, out=x).clamp_(0, 1)


def adjust_hue_(
    x: Float[Tensor, "n 3 h w"], shift: Float[Tensor, " n"]
) -> Float[Tensor, "n 3 h w"]:
    r"""Turns each image's hue by its shift, a fraction of the circle in [-1/2, 1/2].

    The exact turn in HSV. The lowest channel and the chroma :math:`C = \max - \min` stay. Measured
    from red in sixths of the circle, the hue is :math:`H = \pm (1 + (g + b - r - \min) / C)`, with
    the sign of :math:`g - b`; a channel whose own place is :math:`p \in \{0, 2, -2\}` becomes
    :math:`\min + C \cdot \mathrm{clip}_{[0, 1]}(|\,|H + 6 s - p| - 3| - 1)`.
    """
    red, green, blue = x[:, 0:1], x[:, 1:2], x[:, 2:3]
    low = torch.minimum(red, green)
    torch.minimum(low, blue, out=low)
    chroma = torch.maximum(red, green)
    torch.maximum(chroma, blue, out=chroma).sub_(low)
    # A grey pixel has numerator 0, so the smallest normal number only avoids 0 / 0.
    hue = (green + blue).sub_(red).sub_(low).div_(chroma.clamp_min(torch.finfo(x.dtype).tiny))
    hue.add_(1).copysign_(green - blue)
    # In [-3, 3) like the hue itself: up to 6 the formula needs no remainder of the whole image.
    turn = 6 * shift.view(-1, 1) - torch.tensor([0, 2, -2], dtype=x.dtype).to(x.device)
    turn = torch.remainder(turn + 3, 6).sub_(3).view(-1, 3, 1, 1)
    share = torch.empty_like(hue)
    for channel in range(3):
        torch.add(hue, turn[:, channel : channel + 1], out=share)
        share.abs_().sub_(3).abs_().sub_(1).clamp_(0, 1)
        torch.addcmul(low, chroma, share, out=x[:, channel : channel + 1])
    return x


def jitter_arrangement(order: Int64[Tensor, "n 4"]) -> Int64[Tensor, " n"] | None:
    """The arrangement of a batch in which :func:`colour_jitter_` touches contiguous runs.

    Images are sorted by the number of operations before their hue turn, falling; those without any
    operation come last. None: no image has an operation.
    """
    nothing = order == NOTHING
    idle = nothing.all(dim=1)
    if bool(idle.all()):
        return None
    count = (~(nothing | _from_hue_on(order))).sum(dim=1)
    return torch.where(idle, -1, count).argsort(descending=True, stable=True)


def _from_hue_on(order: Int64[Tensor, "n 4"]) -> Tensor:
    return (order == HUE).cumsum(dim=1) > 0


def _around_hue(order: Int64[Tensor, "n 4"]) -> tuple[Tensor, Tensor, Tensor]:
    """Codes before the hue turn, codes after it (both left-aligned), and whether it happens."""
    passed = _from_hue_on(order)
    before = torch.where(passed, NOTHING, order)
    following = (~passed).sum(dim=1, keepdim=True) + torch.arange(1, 4)
    after = F.pad(order, (0, 4), value=NOTHING).gather(1, following)
    return before, after, passed[:, 3]


def colour_jitter_(
    x: Float[Tensor, "n 3 h w"], order: Int64[Tensor, "n 4"], factors: Float[Tensor, "n 4"]
) -> Float[Tensor, "n 3 h w"]:
    """Brightness, contrast, saturation and hue, in each image's own order; a clip after each.

    The batch is worked off in seven steps: up to three blends before the hue turn, the turn of all
    images at once, up to three blends after it. A step touches the smallest run of the batch that
    holds its images, so arrange the batch first (:func:`jitter_arrangement`).

    Args:
        x: Images in [0, 1].
        order: Codes in the order of their use, on the CPU; NOTHING at the end.
        factors: Column i belongs to code i: three factors and the hue shift.
    """
    before, after, turned = _around_hue(order)
    codes = torch.cat([before, after], dim=1)
    factors = torch.cat([factors, torch.ones(len(factors), 1)], dim=1)
    weights = [factors.gather(1, codes), codes == SATURATION, codes == CONTRAST]
    blends = torch.stack([each.to(x.dtype) for each in weights]).to(x.device)
    runs = [_run(column != NOTHING) for column in codes.unbind(1)]
    for step, (start, end) in enumerate(runs[:4]):
        if end > start:
            blend_(x[start:end], *blends[:, start:end, step])
    start, end = _run(turned)
    if end > start:
        shift = torch.where(turned, factors[:, HUE], 0.0)[start:end]
        adjust_hue_(x[start:end], shift.to(x.device, x.dtype))
    for step, (start, end) in enumerate(runs[4:], start=4):
        if end > start:
            blend_(x[start:end], *blends[:, start:end, step])
    return x


def _run(active: Tensor) -> tuple[int, int]:
    """The smallest range that holds all active positions; (0, 0) if there is none."""
    where = active.nonzero().squeeze(1).tolist()
    return (where[0], where[-1] + 1) if where else (0, 0)

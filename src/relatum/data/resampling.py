"""Geometry of whole batches: crops, rotations and blurs, each image with parameters of its own.

Images are ``(n, 3, h, w)`` floats in [0, 1]. On each image an operation equals torchvision's of the
same name with the same parameter.
"""

from __future__ import annotations

import functools

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int64, UInt8
from torch import Tensor

__all__ = ["crop_resize", "gaussian_blur", "rotate_crop_resize"]

_TABLE_ENTRIES = 4_000_000  # 16 MB: all crop windows of images up to about 50 pixels
_NEAR = 64  # small images that a step of several products takes at a time
_BLOCK = 32  # pixels that one product of the blur yields


def crop_resize(
    images: Float[Tensor, "n 3 h w"] | UInt8[Tensor, "n 3 h w"],
    boxes: Int64[Tensor, "n 4"],
    flip: Tensor,
    size: int,
) -> Float[Tensor, "n 3 size size"]:
    r"""Cuts a box out of each image, resizes it bicubically with antialiasing, may mirror it.

    .. math:: X' = A_y X A_x^\top

    where the rows of the small matrices hold each output pixel's weights; a mirrored image has the
    columns of its :math:`A_x^\top` reversed. Only pixels inside the box count, as when the crop is
    made first. Values are clipped to [0, 1], since bicubic weights overshoot.

    Args:
        images: uint8, or floats in [0, 1].
        boxes: Top, left, height, width of each box, inside the image.
        flip: Boolean (n,): mirror left to right?
        size: Side of the result.
    """
    n, _, height, width = images.shape
    on_cpu = images.device.type == "cpu"
    dtype = images.dtype if images.is_floating_point() else torch.float32
    views = images.new_empty(n, 3, size, size, dtype=dtype)
    if on_cpu and not _tabled(width, size):
        return _crop_one_by_one(images, boxes, flip, views)
    top, left, box_height, box_width = boxes.unbind(1)
    upright = torch.zeros_like(flip)
    downs, down_row = _matrices(top, box_height, upright, height, size, dtype, on_left=True)
    acrosses, across_row = _matrices(left, box_width, flip, width, size, dtype, on_left=False)
    few = _NEAR if on_cpu else max(1, n)  # a few at a time: what lies between stays in the cache
    for i in range(0, n, few):
        down = downs.index_select(0, down_row[i : i + few])
        across = acrosses.index_select(0, across_row[i : i + few])
        if not images.is_floating_point():
            across /= 255
        rows = torch.bmm(images[i : i + few].to(dtype).reshape(-1, 3 * height, width), across)
        part = torch.matmul(down.unsqueeze(1), rows.view(-1, 3, height, size))
        torch.clamp(part, 0, 1, out=views[i : i + few])
    return views


def _crop_one_by_one(
    images: Tensor, boxes: Int64[Tensor, "n 4"], flip: Tensor, views: Float[Tensor, "n 3 s s"]
) -> Float[Tensor, "n 3 s s"]:
    """The same by torch's own resampling: on CPU, cheaper than products with large matrices."""
    real = torch.promote_types(views.dtype, torch.float32)
    each = zip(views, images, boxes.tolist(), flip.tolist(), strict=True)
    for view, image, (top, left, height, width), mirrored in each:
        part = image[None, :, top : top + height, left : left + width]
        part = (part.flip(-1) if mirrored else part).to(real)
        part = F.interpolate(part, view.shape[1:], mode="bicubic", antialias=True)[0]
        view.copy_(part if images.is_floating_point() else part.div_(255))
    return views.clamp_(0, 1)


def _tabled(size_in: int, size_out: int) -> bool:
    """Is the table of all windows small enough to keep?"""
    return size_in * (size_in + 1) * size_in * size_out <= _TABLE_ENTRIES


def _matrices(
    start: Int64[Tensor, " n"],
    length: Int64[Tensor, " n"],
    flip: Tensor,
    size_in: int,
    size_out: int,
    dtype: torch.dtype,
    *,
    on_left: bool,
) -> tuple[Tensor, Int64[Tensor, " n"]]:
    """Resampling matrices, and which of them each window has."""
    if not _tabled(size_in, size_out):
        weights = _bicubic_weights(start, length, flip, size_in, size_out).to(dtype)
        weights = weights.transpose(1, 2).contiguous() if on_left else weights
        return weights, torch.arange(len(weights), device=start.device)
    table = _window_table(size_in, size_out, dtype, start.device, on_left)
    # Windows are stored by length, then start: those shorter number sum_{k<length} (in - k + 1).
    shorter = (length - 1) * (size_in + 1) - length * (length - 1) // 2
    return table, shorter + start + flip.long() * (size_in * (size_in + 1) // 2)


@functools.lru_cache(maxsize=16)
def _window_table(
    size_in: int, size_out: int, dtype: torch.dtype, device: torch.device, on_left: bool
) -> Tensor:
    """The matrices of all windows of a side, plain and then mirrored: small images have few."""
    windows = [
        (start, length) for length in range(1, size_in + 1) for start in range(size_in - length + 1)
    ]
    start, length = torch.tensor(windows, dtype=torch.int64, device=device).repeat(2, 1).unbind(1)
    flip = torch.arange(2 * len(windows), device=device) >= len(windows)
    weights = _bicubic_weights(start, length, flip, size_in, size_out).to(dtype)
    return weights.transpose(1, 2).contiguous() if on_left else weights


def _bicubic_weights(
    start: Int64[Tensor, " n"],
    length: Int64[Tensor, " n"],
    flip: Tensor,
    size_in: int,
    size_out: int,
) -> Float[Tensor, "n size_in size_out"]:
    """Keys' cubic with a = -1/2, widened by the scale when the window shrinks (antialiasing)."""
    device = start.device
    real = torch.float64 if device.type == "cpu" else torch.float32
    pixel = torch.arange(size_in, device=device).view(1, -1, 1)
    first, extent = start.view(-1, 1, 1), length.view(-1, 1, 1)
    output = torch.arange(size_out, device=device, dtype=real).view(1, 1, -1)
    output = torch.where(flip.view(-1, 1, 1), size_out - 1 - output, output)
    scale = extent.to(real) / size_out
    centre = first + scale * (output + 0.5) - 0.5
    t = ((pixel - centre) / scale.clamp_min(1)).abs_()
    near = (1.5 * t - 2.5) * t * t + 1
    far = ((-0.5 * t + 2.5) * t - 4) * t + 2
    weight = torch.where(t < 1, near, torch.where(t < 2, far, torch.zeros_like(t)))
    weight = weight * ((pixel >= first) & (pixel < first + extent))
    return weight / weight.sum(dim=1, keepdim=True)


def rotate_crop_resize(
    images: Float[Tensor, "n 3 s s"] | UInt8[Tensor, "n 3 s s"],
    boxes: Int64[Tensor, "n 4"],
    flip: Tensor,
    angle: Float[Tensor, " n"],
    shift: Float[Tensor, "n 2"],
) -> Float[Tensor, "n 3 s s"]:
    """Crop, mirror, rotation and shift in one bilinear resampling of square images.

    A box no larger than the image is only ever enlarged here, so no antialiasing is needed.
    What comes from outside the image is black.

    Args:
        images: uint8, or floats in [0, 1].
        boxes: Top, left, height, width of each box.
        flip: Boolean (n,): mirror left to right?
        angle: Rotation of the content, radians, counter-clockwise.
        shift: Shift of the box down and right, as a fraction of the side.
    """
    side = images.shape[-1]
    x = images if images.is_floating_point() else images.float().div_(255)
    box = boxes.to(x.dtype)
    half = box[:, 2:] / side  # half-extent in affine_grid's coordinates, where the side is 2
    centre = (2 * box[:, :2] + box[:, 2:]) / side - 1 + 2 * shift.to(x.dtype)
    sine, cosine = angle.to(x.dtype).sin(), angle.to(x.dtype).cos()
    mirror = 1 - 2 * flip.to(x.dtype)
    # Output (u, v) reads the input at centre + half * R (mirror * u, v); y points down.
    # Written out, since torch's affine_grid is several times slower than the sampling itself.
    ticks = (2 * torch.arange(side, device=x.device, dtype=x.dtype) + 1) / side - 1
    along_u = torch.stack([half[:, 1] * cosine, half[:, 0] * sine], dim=1) * mirror.unsqueeze(1)
    along_v = torch.stack([-half[:, 1] * sine, half[:, 0] * cosine], dim=1)
    u = ticks.view(1, 1, side, 1) * along_u.view(-1, 1, 1, 2)
    v = ticks.view(1, side, 1, 1) * along_v.view(-1, 1, 1, 2) + centre.flip(1).view(-1, 1, 1, 2)
    return F.grid_sample(x, u + v, align_corners=False).clamp_(0, 1)


def gaussian_blur(
    x: Float[Tensor, "n 3 h w"], sigma: Float[Tensor, " n"], kernel: int
) -> Float[Tensor, "n 3 h w"]:
    """Blurs each image with its own sigma (> 0, pixels); borders are mirrored.

    Args:
        x: Images, each side larger than half the kernel.
        sigma: Standard deviation of each image's Gaussian.
        kernel: Odd number of taps.
    """
    height, width = x.shape[2:]
    offset = torch.arange(kernel, device=x.device, dtype=x.dtype) - kernel // 2
    taps = (-0.5 * (offset / sigma.to(x.dtype).unsqueeze(1)).square()).softmax(dim=1)
    band = _band(taps, min(_BLOCK, max(height, width))).unsqueeze(1)
    x = F.pad(x, (kernel // 2,) * 4, mode="reflect")
    # Outside the band of a whole side's matrix is nothing but zeros: stretch by stretch instead.
    x = torch.cat(
        [band[..., :n, :m] @ x[:, :, i : i + m] for i, n, m in _stretches(height, kernel)], dim=2
    )
    x = torch.cat(
        [x[..., i : i + m] @ band[..., :n, :m].mT for i, n, m in _stretches(width, kernel)], dim=3
    )
    return x.clamp_(0, 1)  # the taps sum to 1 up to rounding only


def _stretches(side: int, kernel: int) -> list[tuple[int, int, int]]:
    """Start and length of each, and how many pixels of the padded side it reads."""
    lengths = [(start, min(_BLOCK, side - start)) for start in range(0, side, _BLOCK)]
    return [(start, length, length + kernel - 1) for start, length in lengths]


def _band(taps: Float[Tensor, "n k"], length: int) -> Float[Tensor, "n length m"]:
    """Row i holds the taps from column i on, and zeros."""
    kernel = taps.shape[1]
    band = taps.new_zeros(len(taps), length, length + kernel)
    band[..., :kernel] = taps.unsqueeze(1)
    # One column too many in each row: read with rows one shorter, each row starts one later.
    return band.flatten(1)[:, : length * (length + kernel - 1)].view(len(taps), length, -1)

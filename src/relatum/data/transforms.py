"""Image operations on whole batches, each image with parameters of its own.

Images are ``(n, 3, h, w)`` floats in [0, 1]. A name that ends in an underscore changes its argument
in place (augmentation is bound by memory traffic) and returns it. On each image an operation equals
torchvision's of the same name with the same parameter.
"""

from __future__ import annotations

import functools

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int64, UInt8
from torch import Tensor

__all__ = [
    "BRIGHTNESS",
    "CONTRAST",
    "HUE",
    "NOTHING",
    "SATURATION",
    "adjust_hue_",
    "blend_",
    "blend_maps",
    "colour_jitter_",
    "crop_resize",
    "gaussian_blur",
    "greyscale",
    "jitter_arrangement",
    "rotate_crop_resize",
]

BRIGHTNESS, CONTRAST, SATURATION, HUE, NOTHING = range(5)
"""Codes of the colour operations, in the order of torchvision's ``ColorJitter``."""

_GREY = (0.2989, 0.587, 0.114)  # luma weights of ITU-R BT.601, with torchvision's digits
_TABLE_ENTRIES = 4_000_000  # 16 MB: all crop windows of images up to about 50 pixels


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
    dtype = images.dtype if images.is_floating_point() else torch.float32
    top, left, box_height, box_width = boxes.unbind(1)
    upright = torch.zeros_like(flip)
    down = _window_matrices(top, box_height, upright, height, size, dtype, on_left=True)
    across = _window_matrices(left, box_width, flip, width, size, dtype, on_left=False)
    if not images.is_floating_point():
        images = images.to(dtype)
        across = across / 255
    rows = torch.bmm(images.reshape(n, 3 * height, width), across).view(n, 3, height, size)
    return _from_left(down, rows).clamp_(0, 1)


def _from_left(
    matrix: Float[Tensor, "n out in"], x: Float[Tensor, "n 3 in w"]
) -> Float[Tensor, "n 3 out w"]:
    """Each image's matrix times each of its channels."""
    result = x.new_empty(len(x), 3, matrix.shape[1], x.shape[3])
    for channel in range(3):  # a broadcast product would first copy the matrices three times
        result[:, channel] = torch.bmm(matrix, x[:, channel])
    return result


def _window_matrices(
    start: Int64[Tensor, " n"],
    length: Int64[Tensor, " n"],
    flip: Tensor,
    size_in: int,
    size_out: int,
    dtype: torch.dtype,
    *,
    on_left: bool,
) -> Tensor:
    """Resampling matrices, one for each window; transposed where they act from the right."""
    if size_in * (size_in + 1) * size_in * size_out > _TABLE_ENTRIES:
        weights = _bicubic_weights(start, length, flip, size_in, size_out).to(dtype)
        return weights.transpose(1, 2).contiguous() if on_left else weights
    table = _window_table(size_in, size_out, dtype, start.device, on_left)
    # Windows are stored by length, then start: those shorter number sum_{k<length} (in - k + 1).
    shorter = (length - 1) * (size_in + 1) - length * (length - 1) // 2
    row = shorter + start + flip.long() * (size_in * (size_in + 1) // 2)
    return table.index_select(0, row)


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


def greyscale(x: Float[Tensor, "n 3 h w"]) -> Float[Tensor, "n 1 h w"]:
    """The grey level of each pixel."""
    return (x[:, 0:1] * _GREY[0]).add_(x[:, 1:2], alpha=_GREY[1]).add_(x[:, 2:3], alpha=_GREY[2])


def blend_maps(
    kind: Int64[Tensor, "n k"], factor: Float[Tensor, "n k"]
) -> tuple[Float[Tensor, "n k 3 3"], Float[Tensor, "n k 1 3"]]:
    r"""Brightness, contrast and saturation as maps of the channels.

    All three move an image away from a reference (factor above 1) or towards it:
    :math:`x' = f x + (1 - f) g`, where :math:`g` is black (brightness), the image's mean grey level
    (contrast), or each pixel's grey level (saturation). So all are
    :math:`x' = M x + c \cdot \bar x`
    with the channel means :math:`\bar x`, and one pass serves a batch of mixed kinds.

    Args:
        kind: BRIGHTNESS, CONTRAST, SATURATION, or NOTHING.
        factor: 0 or more; ignored for NOTHING.

    Returns:
        :math:`M` and :math:`c`.
    """
    factor = torch.where(kind == NOTHING, 1.0, factor)
    grey = torch.tensor(_GREY, dtype=factor.dtype)
    rest = (1 - factor)[..., None, None] * grey  # a row: (1 - f) * grey weights
    keep = factor[..., None, None] * torch.eye(3, dtype=factor.dtype)
    matrix = keep + rest * (kind == SATURATION)[..., None, None]
    return matrix, rest * (kind == CONTRAST)[..., None, None]


def blend_(
    x: Float[Tensor, "n 3 h w"],
    matrix: Float[Tensor, "n 3 3"],
    pull: Float[Tensor, "n 1 3"],
) -> Float[Tensor, "n 3 h w"]:
    """Applies the maps of :func:`blend_maps`, each image its own, then clips."""
    flat = x.flatten(2)
    constant = pull @ flat.mean(dim=2, keepdim=True)
    return x.copy_(torch.baddbmm(constant, matrix, flat).clamp_(0, 1).view_as(x))


def adjust_hue_(
    x: Float[Tensor, "n 3 h w"], shift: Float[Tensor, " n"]
) -> Float[Tensor, "n 3 h w"]:
    r"""Turns each image's hue by its shift, a fraction of the circle in [-1/2, 1/2].

    The exact turn in HSV: value and chroma :math:`C = \max - \min` stay, and with the new hue
    :math:`H \in [0, 6)` the channels are :math:`\min + C \cdot \mathrm{clip}_{[0, 1]}` of
    :math:`|H - 3| - 1`, :math:`2 - |H - 2|` and :math:`2 - |H - 4|`.
    """
    red, green, blue = x[:, 0:1], x[:, 1:2], x[:, 2:3]
    high, low = x.amax(dim=1, keepdim=True), x.amin(dim=1, keepdim=True)
    chroma = high - low
    # 0/1 in floats and lerp: much faster than torch.where, which does not vectorise on CPU.
    hue = (red - green).add_(chroma, alpha=4)
    hue.lerp_((blue - red).add_(chroma, alpha=2), (green - high).ge_(0))
    hue.lerp_(green - blue, (red - high).ge_(0))
    # A grey pixel has numerator 0, so the smallest normal number only avoids 0 / 0.
    hue.div_(chroma.clamp_min(torch.finfo(x.dtype).tiny)).add_((6 * shift).view(-1, 1, 1, 1))
    hue.sub_((hue / 6).floor_(), alpha=6)
    centres = torch.tensor([3, 2, 4], dtype=x.dtype).view(1, 3, 1, 1).to(x.device)
    ends = torch.tensor([1, 2, 2], dtype=x.dtype).view(1, 3, 1, 1).to(x.device)
    # |clip(t, 1, 2) - 1| is clip(t - 1, 0, 1), and |clip(t, 1, 2) - 2| is clip(2 - t, 0, 1).
    share = (hue - centres).abs_().clamp_(1, 2).sub_(ends).abs_()
    return torch.addcmul(low, chroma, share, out=x)


def jitter_arrangement(order: Int64[Tensor, "n 4"]) -> Int64[Tensor, " n"] | None:
    """The arrangement of a batch in which :func:`colour_jitter_` touches contiguous runs.

    Images are sorted by the number of operations before their hue turn, falling; those without any
    operation come last. None: no image has an operation.
    """
    idle = (order == NOTHING).all(dim=1)
    if bool(idle.all()):
        return None
    count = (_around_hue(order)[0] != NOTHING).sum(dim=1)
    return torch.where(idle, -1, count).argsort(descending=True, stable=True)


def _around_hue(order: Int64[Tensor, "n 4"]) -> tuple[Tensor, Tensor, Tensor]:
    """Codes before the hue turn, codes after it (both left-aligned), and whether it happens."""
    is_hue = order == HUE
    turned = is_hue.any(dim=1)
    passed = is_hue.cumsum(dim=1) > 0
    before = torch.where(passed, NOTHING, order)
    after = torch.where(passed & ~is_hue, order, NOTHING)
    after = after.gather(1, (after == NOTHING).long().argsort(dim=1, stable=True))
    return before, after, turned


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
    padded = torch.cat([factors, torch.ones(len(factors), 1)], dim=1).to(x.dtype)
    matrix, pull = (part.to(x.device) for part in blend_maps(codes, padded.gather(1, codes)))
    runs = [_run(column != NOTHING) for column in codes.unbind(1)]
    for step, (start, end) in enumerate(runs[:4]):
        if end > start:
            blend_(x[start:end], matrix[start:end, step], pull[start:end, step])
    start, end = _run(turned)
    if end > start:
        shift = torch.where(turned, factors[:, HUE], 0.0)[start:end]
        adjust_hue_(x[start:end], shift.to(x.device, x.dtype))
    for step, (start, end) in enumerate(runs[4:], start=4):
        if end > start:
            blend_(x[start:end], matrix[start:end, step], pull[start:end, step])
    return x


def _run(active: Tensor) -> tuple[int, int]:
    """The smallest range that holds all active positions; (0, 0) if there is none."""
    where = active.nonzero().squeeze(1).tolist()
    return (where[0], where[-1] + 1) if where else (0, 0)


def gaussian_blur(
    x: Float[Tensor, "n 3 h w"], sigma: Float[Tensor, " n"], kernel: int
) -> Float[Tensor, "n 3 h w"]:
    """Blurs each image with its own sigma (> 0, pixels); borders are mirrored.

    Args:
        x: Images, each side larger than half the kernel.
        sigma: Standard deviation of each image's Gaussian.
        kernel: Odd number of taps.
    """
    n, _, height, width = x.shape
    offset = torch.arange(kernel, device=x.device, dtype=x.dtype) - kernel // 2
    taps = (-0.5 * (offset / sigma.to(x.dtype).unsqueeze(1)).square()).softmax(dim=1)
    down = _toeplitz(taps, height)
    across = down if width == height else _toeplitz(taps, width)
    across = across.transpose(1, 2).contiguous()
    rows = torch.bmm(x.reshape(n, 3 * height, width), across).view(n, 3, height, width)
    return _from_left(down, rows)


def _toeplitz(taps: Float[Tensor, "n k"], side: int) -> Float[Tensor, "n side side"]:
    """Row i holds the taps centred on i; what falls outside is mirrored at the border pixels."""
    kernel = taps.shape[1]
    source = torch.arange(side).unsqueeze(1) + torch.arange(kernel) - kernel // 2
    source = source.abs()
    source = torch.where(source >= side, 2 * (side - 1) - source, source).to(taps.device)
    matrix = taps.new_zeros(len(taps), side, side)
    index = source.expand(len(taps), -1, -1)
    return matrix.scatter_add_(2, index, taps.unsqueeze(1).expand(-1, side, -1))

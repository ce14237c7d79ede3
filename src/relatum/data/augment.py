"""Random views of whole batches: one independent draw for each image, no loop over images.

Drawing and applying are separate. :meth:`Augmentation.draw` takes all random numbers from one
generator; :meth:`Augmentation.apply` is a pure function of images and draws. Draws can be kept,
replayed and sliced: applying slices gives the slices of applying the whole.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from dataclasses import dataclass, fields, replace

import torch
from jaxtyping import Bool, Float, Int64, UInt8
from torch import Tensor

from . import resampling, transforms

__all__ = ["POLICIES", "Augmentation", "Draws"]

_TRIES = 10  # candidate crops before the fallback, as in torchvision
_NUMBERS = 38  # uniform numbers an image uses, whatever the policy
_CACHED = 2**20  # numbers of views in work at a time per thread: 4 MB, reused and near


@dataclass(frozen=True)
class Draws:
    """All that is random about n views; row i belongs to image i."""

    boxes: Int64[Tensor, "n 4"]
    """Top, left, height, width of the crop, pixels."""
    crop: Float[Tensor, "n 22"]
    """The uniform numbers behind `boxes`, for an image of another size."""
    flip: Bool[Tensor, " n"]
    """Mirrored left to right?"""
    order: Int64[Tensor, "n 4"]
    """Order of brightness 0, contrast 1, saturation 2, hue 3; 4 = nothing (left)."""
    factors: Float[Tensor, "n 4"]
    """Brightness, contrast and saturation factors (1 = unchanged), hue shift (0 = unchanged)."""
    greyscale: Bool[Tensor, " n"]
    """Made grey?"""
    sigma: Float[Tensor, " n"]
    """Standard deviation of the blur, pixels; 0 = not blurred."""
    angle: Float[Tensor, " n"]
    """Rotation, radians."""
    shift: Float[Tensor, "n 2"]
    """Shift down and right, fraction of the side."""

    def __len__(self) -> int:
        return len(self.flip)

    def __getitem__(self, rows: slice | Tensor) -> Draws:
        return Draws(**{field.name: getattr(self, field.name)[rows] for field in fields(self)})

    def cropped(self, size: int) -> Draws:
        """What is left to do for images that were cropped and resized to `size` already."""
        return replace(self, boxes=torch.tensor([0, 0, size, size]).repeat(len(self), 1))


@dataclass(frozen=True)
class Augmentation:
    r"""A policy of random crop, flip, rotation, colour jitter, greyscale and blur.

    Per image and independently: a crop whose area is a uniform fraction of the image and whose
    aspect ratio is log-uniform (the distribution of torchvision's ``RandomResizedCrop``, with its
    ten tries and its fallback to the whole image); a flip; with `jitter_probability`, brightness
    (multiplicative), contrast, saturation and hue in random order, clipped to [0, 1] after each;
    greyscale; blur. Resampling is bicubic with antialiasing, or bilinear where a rotation or shift
    is asked for.

    What differs from the code behind Chen et al. (2020) and Tsai et al. (2021):

    * blur: every image has a strength of its own, theirs draws one for a batch of first or second
      views; borders are mirrored, theirs are padded with zeros;
    * crop: the aspect ratio is log-uniform, theirs uniform;
    * contrast: blends with the mean of the grey image, theirs each channel with its own mean;
    * saturation: blends with the grey image, theirs scales S of hue, saturation and value.

    Contrast and saturation are torchvision's. As in theirs, pixels stay in [0, 1] and are not
    standardised by a mean and a deviation.

    Args:
        size: Side of the views, pixels.
        input_size: Side of the images; None means `size`.
        crop_area: Range of the crop's share of the area, in (0, 1]; None = no crop.
        crop_aspect: Range of the crop's width / height.
        flip: Probability of a mirror image.
        rotate: Largest rotation either way, degrees.
        shift: Largest shift either way along each axis, fraction of the side.
        jitter_probability: Probability that the four colour operations happen.
        brightness: Factor drawn from [max(0, 1 - b), 1 + b].
        contrast: Likewise.
        saturation: Likewise.
        hue: Shift drawn from [-hue, hue], at most 1/2.
        greyscale: Probability of greyscale.
        blur: Probability of blur. The kernel has ``2 * (size // 10 // 2) + 1`` taps (SimCLR's
            rule: 23 at 224, 3 at 32).
        blur_sigma: Range of the blur's standard deviation, pixels.

    Raises:
        ValueError: If a value is outside its range; the message names it.

    Example:
        >>> augmentation = POLICIES["simclr-cifar"](32)
        >>> images = torch.zeros(5, 3, 32, 32, dtype=torch.uint8)
        >>> augmentation(images, torch.Generator().manual_seed(0)).shape
        torch.Size([5, 3, 32, 32])
    """

    size: int
    input_size: int | None = None
    crop_area: tuple[float, float] | None = (0.08, 1.0)
    crop_aspect: tuple[float, float] = (3 / 4, 4 / 3)
    flip: float = 0.5
    rotate: float = 0.0
    shift: float = 0.0
    jitter_probability: float = 0.8
    brightness: float = 0.0
    contrast: float = 0.0
    saturation: float = 0.0
    hue: float = 0.0
    greyscale: float = 0.0
    blur: float = 0.0
    blur_sigma: tuple[float, float] = (0.1, 2.0)

    def __post_init__(self) -> None:
        for name in ("flip", "jitter_probability", "greyscale", "blur"):
            _require(0 <= getattr(self, name) <= 1, name, getattr(self, name), "in [0, 1]")
        for name in ("brightness", "contrast", "saturation", "rotate"):
            _require(0 <= getattr(self, name), name, getattr(self, name), "0 or more")
        _require(self.size >= 1, "size", self.size, "at least 1")
        _require(self._side >= 1, "input_size", self.input_size, "at least 1")
        _require(0 <= self.hue <= 0.5, "hue", self.hue, "in [0, 1/2]")
        _require(0 <= self.shift <= 1, "shift", self.shift, "in [0, 1]")
        if self.crop_area is not None:
            low, high = self.crop_area
            _require(0 < low <= high <= 1, "crop_area", self.crop_area, "ordered, in (0, 1]")
        for name in ("crop_aspect", "blur_sigma"):
            low, high = getattr(self, name)
            _require(0 < low <= high, name, (low, high), "ordered and positive")
        if self._moves and self._side != self.size:
            raise ValueError(
                f"rotate and shift need images of the views' size {self.size}, "
                f"got input_size={self.input_size}"
            )

    @property
    def _side(self) -> int:
        return self.size if self.input_size is None else self.input_size

    @property
    def _moves(self) -> bool:
        return self.rotate > 0 or self.shift > 0

    def __call__(
        self,
        images: UInt8[Tensor, "n 3 h w"] | Float[Tensor, "n 3 h w"],
        generator: torch.Generator,
    ) -> Float[Tensor, "n 3 s s"]:
        """One random view of each image."""
        return self.apply(images, self.draw(len(images), generator))

    def draw(self, n: int, generator: torch.Generator) -> Draws:
        """The random numbers of n views, on the CPU.

        Each image takes the same count of numbers from the generator, in turn: the first m of n
        draws are what drawing m from the same state gives.
        """
        u = torch.rand(n, _NUMBERS, generator=generator, dtype=torch.float64, device="cpu")
        order = u[:, 24:28].argsort(dim=1)
        strengths = (self.brightness, self.contrast, self.saturation, self.hue)
        happens = torch.tensor([strength > 0 for strength in strengths])[order]
        happens &= (u[:, 23] < self.jitter_probability).unsqueeze(1)
        order[~happens] = transforms.NOTHING
        # What does not happen goes last, so a policy with two operations has two rounds, not four.
        order = order.gather(1, (order == transforms.NOTHING).long().argsort(dim=1, stable=True))
        factors = [_between(u[:, 28 + i], max(0.0, 1 - s), 1 + s) for i, s in enumerate(strengths)]
        factors[3] = _between(u[:, 31], -self.hue, self.hue)
        radians = math.radians(self.rotate)
        return Draws(
            boxes=self.crop_boxes(u[:, :22], self._side, self._side),
            crop=u[:, :22],
            flip=u[:, 22] < self.flip,
            order=order,
            factors=torch.stack(factors, dim=1).float(),
            greyscale=u[:, 32] < self.greyscale,
            sigma=(_between(u[:, 34], *self.blur_sigma) * (u[:, 33] < self.blur)).float(),
            angle=_between(u[:, 35], -radians, radians).float(),
            shift=_between(u[:, 36:38], -self.shift, self.shift).float(),
        )

    def crop_boxes(self, u: Float[Tensor, "n 22"], rows: int, columns: int) -> Int64[Tensor, "n 4"]:
        """Crops of images of `rows` x `columns` pixels, drawn as torchvision does, all at once.

        Args:
            u: Uniform numbers, those of :attr:`Draws.crop`.
            rows: Height of the images.
            columns: Width of the images.

        Returns:
            Top, left, height, width of each; without `crop_area`, the centred square.
        """
        n = len(u)
        if self.crop_area is None:
            side = min(rows, columns)
            box = [(rows - side) // 2, (columns - side) // 2, side, side]
            return torch.tensor(box).repeat(n, 1)
        area = rows * columns * _between(u[:, :_TRIES], *self.crop_area)
        low, high = self.crop_aspect
        aspect = _between(u[:, _TRIES : 2 * _TRIES], math.log(low), math.log(high)).exp()
        width = (area * aspect).sqrt().round().long()
        height = (area / aspect).sqrt().round().long()
        fits = (width > 0) & (width <= columns) & (height > 0) & (height <= rows)
        first = fits.long().argmax(dim=1, keepdim=True)
        found = fits.any(dim=1)
        # The fallback: the largest centred box whose aspect ratio is allowed.
        spare_width = min(columns, round(rows * high))
        spare_height = min(rows, round(columns / low))
        width = torch.where(found, width.gather(1, first).squeeze(1), spare_width)
        height = torch.where(found, height.gather(1, first).squeeze(1), spare_height)
        top = torch.where(found, (u[:, 20] * (rows - height + 1)).long(), (rows - height) // 2)
        left = torch.where(found, (u[:, 21] * (columns - width + 1)).long(), (columns - width) // 2)
        return torch.stack([top, left, height, width], dim=1)

    def apply(
        self, images: UInt8[Tensor, "n 3 h w"] | Float[Tensor, "n 3 h w"], draws: Draws
    ) -> Float[Tensor, "n 3 s s"]:
        """The views that the draws describe, on the images' device.

        Args:
            images: uint8, or floats in [0, 1]; n square images of the policy's input size.
            draws: n draws of this policy.

        Returns:
            New floats in [0, 1]: float32 for uint8 images, else of the images' type.

        Raises:
            ValueError: If shape, type or number of the images do not fit.
        """
        self._check(images, draws)
        piece = self._piece(images.device)
        if len(images) <= piece:
            return self._apply(images, draws)
        dtype = images.dtype if images.is_floating_point() else torch.float32
        views = images.new_empty(len(images), 3, self.size, self.size, dtype=dtype)
        for start in range(0, len(images), piece):
            rows = slice(start, start + piece)
            views[rows] = self._apply(images[rows], draws[rows])
        return views

    def _piece(self, device: torch.device) -> int:
        """Images to work on at a time: on CPU what the caches hold, on a GPU all."""
        if device.type != "cpu":
            return sys.maxsize
        return max(1, _CACHED * torch.get_num_threads() // (3 * self.size**2))

    def _apply(self, images: Tensor, draws: Draws) -> Float[Tensor, "n 3 s s"]:
        arranged = transforms.jitter_arrangement(draws.order)
        if arranged is None:
            return self._change(images, draws)
        where = arranged.to(images.device)
        views = self._change(images.index_select(0, where), draws[arranged])
        return views.index_select(0, where.argsort())

    def _change(self, images: Tensor, draws: Draws) -> Float[Tensor, "n 3 s s"]:
        x = self._resample(images, draws)
        transforms.colour_jitter_(x, draws.order, draws.factors)
        grey = draws.greyscale.nonzero().squeeze(1).to(x.device)
        if len(grey):
            levels = transforms.greyscale(x.index_select(0, grey))
            x.index_copy_(0, grey, levels.expand(-1, 3, -1, -1))
        blurred = draws.sigma.nonzero().squeeze(1)
        kernel = 2 * (self.size // 10 // 2) + 1
        if len(blurred) and kernel > 1:
            where, sigma = blurred.to(x.device), draws.sigma[blurred].to(x.device)
            sharp = x.index_select(0, where)
            x.index_copy_(0, where, resampling.gaussian_blur(sharp, sigma, kernel))
        return x

    def _check(self, images: Tensor, draws: Draws) -> None:
        want = (len(draws), 3, self._side, self._side)
        if images.shape != want:
            raise ValueError(
                f"{len(draws)} draws of this policy need images of shape {want}, "
                f"got {tuple(images.shape)}"
            )
        if images.dtype != torch.uint8 and not images.is_floating_point():
            raise ValueError(f"images must be uint8 or floats in [0, 1], got {images.dtype}")

    def _resample(self, images: Tensor, draws: Draws) -> Float[Tensor, "n 3 s s"]:
        boxes, flip = draws.boxes.to(images.device), draws.flip.to(images.device)
        if self._moves:
            angle, shift = draws.angle.to(images.device), draws.shift.to(images.device)
            return resampling.rotate_crop_resize(images, boxes, flip, angle, shift)
        whole = torch.tensor([0, 0, self.size, self.size])
        if self._side == self.size and bool((draws.boxes == whole).all()):
            views = images.clone() if images.is_floating_point() else images.float().div_(255)
            mirrored = flip.nonzero().squeeze(1)
            return views.index_copy_(0, mirrored, views.index_select(0, mirrored).flip(-1))
        return resampling.crop_resize(images, boxes, flip, self.size)


def _require(holds: bool, name: str, value: object, allowed: str) -> None:
    if not holds:
        raise ValueError(f"{name} must be {allowed}, got {value}")


def _between(u: Float[Tensor, " ..."], low: float, high: float) -> Float[Tensor, " ..."]:
    return low + (high - low) * u


def _simclr(size: int) -> Augmentation:
    """SimCLR on ImageNet: colour strength c = 1 (0.8 c, 0.8 c, 0.8 c, 0.2 c), blur."""
    return Augmentation(
        size, brightness=0.8, contrast=0.8, saturation=0.8, hue=0.2, greyscale=0.2, blur=0.5
    )


def _simclr_cifar(size: int) -> Augmentation:
    """SimCLR on CIFAR: colour strength c = 1/2, no blur."""
    return Augmentation(size, brightness=0.4, contrast=0.4, saturation=0.4, hue=0.1, greyscale=0.2)


def _digits(size: int) -> Augmentation:
    """Grey digits on black: no mirror images, mild crops, small rotations and shifts."""
    return Augmentation(
        size,
        crop_area=(0.5, 1.0),
        flip=0.0,
        rotate=15.0,
        shift=0.08,
        brightness=0.4,
        contrast=0.4,
    )


def _crop_flip(size: int) -> Augmentation:
    return Augmentation(size)


def _none(size: int) -> Augmentation:
    return Augmentation(size, crop_area=None, flip=0.0)


POLICIES: dict[str, Callable[[int], Augmentation]] = {
    "simclr": _simclr,
    "simclr-cifar": _simclr_cifar,
    "digits": _digits,
    "crop-flip": _crop_flip,
    "none": _none,
}
"""Augmentation policies by name; each takes the image size."""

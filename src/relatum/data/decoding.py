"""One image: from encoded bytes, a file, a piece of a file or an array to RGB.

How one image becomes RGB (:func:`open_rgb`) of the stored size (:func:`decode_image`):

* the orientation in its EXIF data is applied;
* transparent pixels are composited on white;
* 16-bit grey is scaled to 8 bits, ``round(value / 257)``: 65535 is white, 32768 mid-grey; float
  images with values in [0, 1] are scaled by 255; other integer or float pixels have no known
  white and are an error;
* grey, palette, CMYK and other colour spaces are converted to RGB;
* of an animation the first frame is used;
* the shorter side is resized to the stored size (bicubic with antialiasing) and the centre square
  is kept, in one step without intermediate rounding; an image of the right size is not resampled.
"""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import UInt8
from numpy.typing import NDArray
from PIL import Image, ImageFile, ImageOps, UnidentifiedImageError

__all__ = ["DataError", "Item", "Range", "cut", "decode_image", "encoded", "open_rgb"]


class DataError(ValueError):
    """Data that is missing, unreadable or not what its format promises."""


class Range(NamedTuple):
    """An encoded image that is a piece of a larger file, such as a tar shard."""

    path: Path
    start: int
    length: int


Item = bytes | Path | Range | NDArray[Any]
"""What an image may be before it is decoded; an array is uint8, (h, w) grey or (h, w, 3) RGB."""


def encoded(item: Item) -> bytes:
    """The bytes that the image is kept as.

    Raises:
        DataError: If they cannot be read whole.
    """
    if isinstance(item, bytes):
        return item
    if isinstance(item, np.ndarray):
        return item.tobytes()
    path, start, length = item if isinstance(item, Range) else (item, 0, -1)
    try:
        with path.open("rb") as file:
            file.seek(start)
            data = file.read(length)
    except OSError as error:
        raise DataError(f"cannot read the file: {error.strerror}") from error
    if length > len(data):
        raise DataError(f"{path} ends before the image does")
    return data


def open_rgb(item: Item) -> tuple[Image.Image, str]:
    """One image in its own size, and what it was converted from ("" for plain RGB).

    Raises:
        DataError: If the image cannot be read whole, or its pixel format has no known meaning.
    """
    if isinstance(item, np.ndarray):
        return Image.fromarray(item).convert("RGB"), "grey" if item.ndim == 2 else ""
    data = encoded(item)
    if not data:
        raise DataError("the file is empty (0 bytes)")
    tolerant = ImageFile.LOAD_TRUNCATED_IMAGES
    try:
        # Another library may have switched this on; half an image must not pass as a whole one.
        ImageFile.LOAD_TRUNCATED_IMAGES = False
        with Image.open(io.BytesIO(data)) as opened:
            opened.load()
            return _to_rgb(opened)
    except DataError:
        raise
    except UnidentifiedImageError as error:  # its own text holds a memory address
        raise DataError("this is not an image, or of a format that Pillow cannot read") from error
    except Exception as error:  # Pillow's decoders raise many kinds; each means "unreadable"
        raise DataError(f"{type(error).__name__}: {error}") from error
    finally:
        ImageFile.LOAD_TRUNCATED_IMAGES = tolerant


def decode_image(item: Item, size: int) -> tuple[UInt8[np.ndarray, "s s 3"], str]:
    """One image as RGB of the stored size, by the rules at the top of this module.

    Args:
        item: Encoded bytes, a file, a piece of one, or an array.
        size: Side s of the stored image.

    Returns:
        The pixels, and what they were converted from ("" for plain RGB).

    Raises:
        DataError: If the image cannot be read whole, or its pixel format has no known meaning.

    Example:
        >>> pixels, converted_from = decode_image(np.full((2, 2), 7, dtype=np.uint8), 2)
        >>> pixels.shape, pixels.max(), converted_from
        ((2, 2, 3), np.uint8(7), 'grey')
    """
    image, kind = open_rgb(item)
    return _to_size(image, size), kind


def cut(
    image: Image.Image, box: tuple[int, int, int, int], size: int
) -> UInt8[np.ndarray, "s s 3"]:
    """A box of an image (top, left, height, width), resized bicubically with antialiasing.

    Only pixels inside the box count: it is cut out first.
    """
    top, left, height, width = box
    part = image.crop((left, top, left + width, top + height))
    if part.size != (size, size):
        part = part.resize((size, size), Image.Resampling.BICUBIC)
    return np.asarray(part)


def _to_rgb(opened: Image.Image) -> tuple[Image.Image, str]:
    frame = "the first frame of an animation, " if getattr(opened, "is_animated", False) else ""
    image = ImageOps.exif_transpose(opened)
    mode = image.mode
    if mode.startswith("I;16") or (mode == "I" and opened.format == "PNG"):
        grey = np.round(np.asarray(image).astype(np.float64) / 257.0).astype(np.uint8)
        return Image.fromarray(grey).convert("RGB"), f"{frame}16-bit grey"
    if mode == "F":
        return _float_to_rgb(image), f"{frame}float grey in [0, 1]"
    if mode == "I":
        raise DataError(
            "its pixels are 32-bit or signed integers, which have no known white; "
            "save it as 8-bit or unsigned 16-bit"
        )
    if image.has_transparency_data:
        rgba = image.convert("RGBA")
        white = Image.new("RGBA", rgba.size, (255, 255, 255, 255))
        return Image.alpha_composite(white, rgba).convert("RGB"), f"{frame}{mode} with alpha"
    names = {"L": "grey", "1": "black and white", "P": "a palette"}
    kind = "" if mode == "RGB" and not frame else f"{frame}{names.get(mode, mode)}"
    return image.convert("RGB"), kind


def _float_to_rgb(image: Image.Image) -> Image.Image:
    values = np.asarray(image)
    low, high = float(values.min()), float(values.max())
    if not (low >= 0.0 and high <= 1.0):
        raise DataError(
            f"its pixels are floats from {low:g} to {high:g}; floats must lie in [0, 1], "
            "or save it as 8-bit or unsigned 16-bit"
        )
    return Image.fromarray(np.round(values * 255.0).astype(np.uint8)).convert("RGB")


def _to_size(image: Image.Image, size: int) -> UInt8[np.ndarray, "s s 3"]:
    width, height = image.size
    if (width, height) != (size, size):
        side = min(width, height)
        left, top = (width - side) / 2, (height - side) / 2
        box = (left, top, left + side, top + side)
        image = image.resize((size, size), Image.Resampling.BICUBIC, box=box)
    return np.asarray(image)

"""Images decoded once into one uint8 tensor, with labels and ids that stay aligned.

Every source (folder, archive, table, embedded set) first becomes a :class:`Listing`: what there
is, not yet decoded. Splits and limits act on listings, so only what is used is decoded, by
:func:`decode`, into an :class:`ImageTable`.

How one image becomes RGB of the stored size (:func:`decode_image`):

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
import multiprocessing
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Int64, UInt8
from numpy.typing import NDArray
from PIL import Image, ImageFile, ImageOps, UnidentifiedImageError
from torch import Tensor

__all__ = [
    "DataError",
    "ImageTable",
    "Listing",
    "OnBadFile",
    "SkippedFile",
    "decode",
    "decode_image",
]

OnBadFile = Literal["error", "skip"]
Item = bytes | Path | NDArray[Any]

_CHUNK = 128  # images a worker decodes per message: large enough to hide the messaging


class DataError(ValueError):
    """Data that is missing, unreadable or not what its format promises."""


@dataclass(frozen=True)
class SkippedFile:
    """A file that could not be decoded and was left out: row in the source, id, why."""

    index: int
    id: str
    reason: str


@dataclass(frozen=True)
class ImageTable:
    """Decoded images of one split, in memory; row i of every field belongs to the same image."""

    pixels: UInt8[Tensor, "n 3 h w"]
    """RGB, 0 to 255."""
    labels: Int64[Tensor, " n"]
    """Index into `classes`; -1 = unlabelled."""
    ids: tuple[str, ...]
    """File path relative to the root, or for example "mnist5k:123"."""
    rows: Int64[Tensor, " n"]
    """Row numbers in the source; skipped files leave gaps."""
    classes: tuple[str, ...]
    """Class names."""
    source: str
    """Where the images come from."""
    skipped: tuple[SkippedFile, ...] = ()
    """The files left out because they could not be decoded."""
    notes: tuple[str, ...] = ()
    """What a reader should know: converted, ignored, skipped."""

    def __len__(self) -> int:
        return len(self.ids)

    def select(self, rows: Int64[Tensor, " m"]) -> ImageTable:
        """The table of the rows at these positions (0 to n-1), in the order given."""
        index = rows.cpu()
        return replace(
            self,
            pixels=self.pixels[index],
            labels=self.labels[index],
            rows=self.rows[index],
            ids=tuple(self.ids[i] for i in index.tolist()),
        )


@dataclass(frozen=True)
class Listing:
    """Images that are known but not yet decoded: encoded bytes, files, or pixel arrays."""

    items: Sequence[Item]
    ids: Sequence[str]
    labels: NDArray[np.int64]
    classes: tuple[str, ...]
    source: str
    rows: NDArray[np.int64]
    notes: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.items)

    def take(self, positions: NDArray[np.int64]) -> Listing:
        """The listing of these positions, in the order given."""
        chosen = positions.tolist()
        return replace(
            self,
            items=[self.items[i] for i in chosen],
            ids=[self.ids[i] for i in chosen],
            labels=self.labels[positions],
            rows=self.rows[positions],
        )


def decode(
    listing: Listing, *, image_size: int, on_bad_file: OnBadFile = "error", workers: int = 0
) -> ImageTable:
    """Decodes a listing. The result does not depend on `workers`.

    Args:
        listing: What to decode.
        image_size: Side of the stored square images, in pixels, at least 1.
        on_bad_file: "error" stops at the first image that cannot be decoded; "skip" leaves such
            images out, and the table lists them.
        workers: Processes that decode; 0 decodes in this one. With workers, a script needs the
            usual ``if __name__ == "__main__":`` guard of :mod:`multiprocessing`.

    Raises:
        DataError: If an image cannot be decoded; the message names it. With "skip": if none can.
        ValueError: If an argument is out of its range.
    """
    if image_size < 1:
        raise ValueError(f"image_size must be at least 1, got {image_size}")
    if workers < 0:
        raise ValueError(f"workers must be 0 or more, got {workers}")
    if on_bad_file not in ("error", "skip"):
        raise ValueError(f"on_bad_file must be 'error' or 'skip', got {on_bad_file!r}")
    pixels = np.empty((len(listing), 3, image_size, image_size), dtype=np.uint8)
    kept: list[int] = []
    skipped: list[SkippedFile] = []
    conversions: Counter[str] = Counter()
    for position, result in enumerate(_decode_all(listing, image_size, workers)):
        if isinstance(result, str):
            where = f"{listing.ids[position]} (in {listing.source})"
            if on_bad_file == "error":
                raise DataError(
                    f"cannot decode {where}: {result}. Replace or remove it, or leave such files "
                    "out with --on-bad-file skip"
                )
            skipped.append(SkippedFile(int(listing.rows[position]), listing.ids[position], result))
            continue
        image, conversion = result
        pixels[len(kept)] = image.transpose(2, 0, 1)
        kept.append(position)
        conversions[conversion] += 1
    if skipped and not kept:
        first = skipped[0]
        raise DataError(
            f"none of the {len(skipped)} images of {listing.source} can be decoded; "
            f"the first is {first.id}: {first.reason}"
        )
    return ImageTable(
        pixels=torch.from_numpy(pixels[: len(kept)]),
        labels=torch.from_numpy(np.ascontiguousarray(listing.labels[kept])),
        ids=tuple(listing.ids[i] for i in kept),
        rows=torch.from_numpy(np.ascontiguousarray(listing.rows[kept])),
        classes=listing.classes,
        source=listing.source,
        skipped=tuple(skipped),
        notes=(*listing.notes, *_conversion_notes(conversions, len(kept)), *_skip_note(skipped)),
    )


def _conversion_notes(conversions: Counter[str], n: int) -> list[str]:
    converted = sorted((what, count) for what, count in conversions.items() if what)
    return [f"{count} of {n} images converted to RGB from {what}" for what, count in converted]


def _skip_note(skipped: Sequence[SkippedFile]) -> list[str]:
    if not skipped:
        return []
    names = ", ".join(file.id for file in skipped[:3]) + (", ..." if len(skipped) > 3 else "")
    return [f"{len(skipped)} files could not be decoded and were left out: {names}"]


Result = tuple[NDArray[np.uint8], str] | str


def _decode_all(listing: Listing, size: int, workers: int) -> Iterator[Result]:
    if workers == 0:
        yield from (_try_decode(item, size) for item in listing.items)
        return
    # Not "fork": a forked child of a process with torch's threads running can deadlock.
    methods = multiprocessing.get_all_start_methods()
    context = multiprocessing.get_context("forkserver" if "forkserver" in methods else "spawn")
    # The server imports this module once for all its workers; elsewhere each does so by itself.
    context.set_forkserver_preload([__name__])
    starts = range(0, len(listing), _CHUNK)
    chunks = [(listing.items[start : start + _CHUNK], size) for start in starts]
    with ProcessPoolExecutor(workers, mp_context=context) as pool:
        try:
            for results in pool.map(_decode_chunk, chunks):
                yield from results
        finally:
            pool.shutdown(cancel_futures=True)


def _decode_chunk(job: tuple[Iterable[Item], int]) -> list[Result]:
    items, size = job
    return [_try_decode(item, size) for item in items]


def _try_decode(item: Item, size: int) -> Result:
    """The decoded image and what it was converted from ("" if nothing), or why it failed."""
    try:
        return decode_image(item, size)
    except DataError as error:
        return str(error)


def decode_image(item: Item, size: int) -> tuple[UInt8[np.ndarray, "s s 3"], str]:
    """One image as RGB of the stored size, by the rules at the top of this module.

    Args:
        item: Encoded bytes, a file, or an array: uint8 (h, w) grey or (h, w, 3) RGB.
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
    if isinstance(item, np.ndarray):
        image, kind = Image.fromarray(item), "grey" if item.ndim == 2 else ""
        return _to_size(image.convert("RGB"), size), kind
    data = item if isinstance(item, bytes) else _read(item)
    if not data:
        raise DataError("the file is empty (0 bytes)")
    tolerant = ImageFile.LOAD_TRUNCATED_IMAGES
    try:
        # Another library may have switched this on; half an image must not pass as a whole one.
        ImageFile.LOAD_TRUNCATED_IMAGES = False
        with Image.open(io.BytesIO(data)) as opened:
            opened.load()
            image, kind = _to_rgb(opened)
    except DataError:
        raise
    except UnidentifiedImageError as error:  # its own text holds a memory address
        raise DataError("this is not an image, or of a format that Pillow cannot read") from error
    except Exception as error:  # Pillow's decoders raise many kinds; each means "unreadable"
        raise DataError(f"{type(error).__name__}: {error}") from error
    finally:
        ImageFile.LOAD_TRUNCATED_IMAGES = tolerant
    return _to_size(image, size), kind


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise DataError(f"cannot read the file: {error.strerror}") from error


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

"""Images with labels and ids that stay aligned: listed, then decoded once, or while training.

:func:`decode` makes an :class:`ImageTable` of a listing. Its pixels are one uint8 tensor, or, where
they would not fit into memory, the images as they are kept (:class:`Encoded`).
"""

from __future__ import annotations

import itertools
import multiprocessing
import zlib
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import dataclass, replace
from multiprocessing.context import BaseContext
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Int64, UInt8, UInt32
from numpy.typing import NDArray
from torch import Tensor

from .decoding import DataError, Item, decode_image, encoded, open_rgb
from .listing import Listing

__all__ = [
    "DataError",
    "Encoded",
    "ImageTable",
    "OnBadFile",
    "SkippedFile",
    "decode",
    "decode_image",
    "worker_context",
]

OnBadFile = Literal["error", "skip"]

_CHUNK = 128  # images a worker decodes per message: large enough to hide the messaging
_AHEAD = 2  # chunks for each worker that are decoded or in work before they are asked for


@dataclass(frozen=True)
class SkippedFile:
    """A file that could not be decoded and was left out: row in the source, id, why."""

    index: int
    id: str
    reason: str


@dataclass(frozen=True)
class Encoded:
    """Images as they are kept, each known to be whole, for decoding when they are wanted."""

    items: Sequence[Item]
    """Files, pieces of files, bytes or arrays."""
    checksums: UInt32[np.ndarray, " n"]
    """CRC-32 of each image's bytes."""
    size: int
    """Side of the square images that they become, pixels."""

    def __len__(self) -> int:
        return len(self.items)

    @property
    def shape(self) -> torch.Size:
        """That of the pixels, (n, 3, size, size)."""
        return torch.Size((len(self), 3, self.size, self.size))

    def take(self, positions: Int64[Tensor, " m"]) -> Encoded:
        """The images at these positions, in the order given."""
        items = [self.items[i] for i in positions.tolist()]
        return replace(self, items=items, checksums=self.checksums[positions.numpy()])


@dataclass(frozen=True)
class ImageTable:
    """Images of one split; row i of every field belongs to the same image."""

    pixels: UInt8[Tensor, "n 3 h w"]
    """RGB, 0 to 255. (Of a table that :func:`decode` was asked to stream: an `Encoded`.)"""
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
    fingerprint: int | None = None
    """Checksum of the encoded images, where the table was made to be streamed."""

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def checksum(self) -> int:
        """CRC-32 of the images' bytes if the table was made to be streamed, else of its pixels."""
        if self.fingerprint is not None:
            return self.fingerprint
        return zlib.crc32(self.pixels.contiguous().numpy().data)

    def select(self, rows: Int64[Tensor, " m"]) -> ImageTable:
        """The table of the rows at these positions (0 to n-1), in the order given."""
        index = rows.cpu()
        pixels: Any = self.pixels
        chosen: Any = pixels.take(index) if isinstance(pixels, Encoded) else pixels[index]
        return replace(
            self,
            pixels=chosen,
            labels=self.labels[index],
            rows=self.rows[index],
            ids=tuple(self.ids[i] for i in index.tolist()),
            fingerprint=_crc(chosen) if isinstance(chosen, Encoded) else None,
        )

    def batches(self, size: int = 512, workers: int = 0) -> Iterator[UInt8[Tensor, "b 3 h w"]]:
        """The pixels, so many images at a time: from memory, or decoded ahead of their use.

        Args:
            size: Images in a batch; the last may have fewer.
            workers: Processes that decode, where pixels are not in memory. Memory holds what they
                have in work, whatever the size of the table.

        Raises:
            DataError: If an image cannot be read any more; the message names it.
        """
        pixels: Any = self.pixels
        if not isinstance(pixels, Encoded):
            yield from torch.split(pixels, size)
            return
        results = zip(self.ids, _each(pixels.items, pixels.size, workers), strict=True)
        while rows := list(itertools.islice(results, size)):
            batch = np.empty((len(rows), *pixels.shape[1:]), dtype=np.uint8)
            for square, (name, result) in zip(batch, rows, strict=True):
                if isinstance(result, str):
                    raise DataError(f"cannot decode {name} (in {self.source}): {result}")
                square[:] = result[0].transpose(2, 0, 1)
            yield torch.from_numpy(batch)

    def held(self, workers: int = 0) -> ImageTable:
        """The same table with its pixels in memory, decoded now if they were to be streamed."""
        pixels: Any = self.pixels
        if not isinstance(pixels, Encoded):
            return self
        held, row = torch.empty(pixels.shape, dtype=torch.uint8), 0
        for batch in self.batches(workers=workers):
            held[row : row + len(batch)] = batch
            row += len(batch)
        return replace(self, pixels=held)


def _crc(images: Encoded) -> int:
    return zlib.crc32(np.ascontiguousarray(images.checksums).data)


def decode(
    listing: Listing,
    *,
    image_size: int,
    on_bad_file: OnBadFile = "error",
    workers: int = 0,
    stream: bool = False,
) -> ImageTable:
    """Decodes a listing. The result does not depend on `workers`.

    Args:
        listing: What to decode.
        image_size: Side of the stored square images, in pixels, at least 1.
        on_bad_file: "error" stops at the first image that cannot be decoded; "skip" leaves such
            images out, and the table lists them.
        workers: Processes that decode; 0 decodes in this one. With workers, a script needs the
            usual ``if __name__ == "__main__":`` guard of :mod:`multiprocessing`.
        stream: Keep no pixels. Every image is still decoded once here, so that a damaged file is
            found now and not hours later.

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
    n = len(listing)
    found: NDArray[Any] = np.empty(n, dtype=np.uint32)
    if not stream:
        found = np.empty((n, 3, image_size, image_size), dtype=np.uint8)
    kept: list[int] = []
    skipped: list[SkippedFile] = []
    conversions: Counter[str] = Counter()
    results = _each(listing.items, None if stream else image_size, workers)
    for position, result in enumerate(results):
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
        found[len(kept)] = image if stream else image.transpose(2, 0, 1)
        kept.append(position)
        conversions[conversion] += 1
    if skipped and not kept:
        first = skipped[0]
        raise DataError(
            f"none of the {len(skipped)} images of {listing.source} can be decoded; "
            f"the first is {first.id}: {first.reason}"
        )
    pixels: Any = found[: len(kept)]
    if stream:
        pixels = Encoded([listing.items[i] for i in kept], pixels, image_size)
    return ImageTable(
        pixels=pixels if stream else torch.from_numpy(pixels),
        labels=torch.from_numpy(np.ascontiguousarray(listing.labels[kept])),
        ids=tuple(listing.ids[i] for i in kept),
        rows=torch.from_numpy(np.ascontiguousarray(listing.rows[kept])),
        classes=listing.classes,
        source=listing.source,
        skipped=tuple(skipped),
        notes=(*listing.notes, *_conversion_notes(conversions, len(kept)), *_skip_note(skipped)),
        fingerprint=_crc(pixels) if stream else None,
    )


def _conversion_notes(conversions: Counter[str], n: int) -> list[str]:
    converted = sorted((what, count) for what, count in conversions.items() if what)
    return [f"{count} of {n} images converted to RGB from {what}" for what, count in converted]


def _skip_note(skipped: Sequence[SkippedFile]) -> list[str]:
    if not skipped:
        return []
    names = ", ".join(file.id for file in skipped[:3]) + (", ..." if len(skipped) > 3 else "")
    return [f"{len(skipped)} files could not be decoded and were left out: {names}"]


# Pixels (s, s, 3), or a checksum, with what the image was converted from; or why it failed.
Result = tuple[Any, str] | str


def _each(items: Sequence[Item], size: int | None, workers: int) -> Iterator[Result]:
    """Every image in turn, decoded at a size; with None, looked at, and its checksum."""
    if workers == 0:
        yield from (_try_decode(item, size) for item in items)
        return
    starts = range(0, len(items), _CHUNK)
    with ProcessPoolExecutor(workers, mp_context=worker_context()) as pool:
        # Not pool.map: what is decoded faster than it is used would all be kept.
        ahead: deque[Future[list[Result]]] = deque()
        try:
            for start in starts:
                ahead.append(pool.submit(_decode_chunk, items[start : start + _CHUNK], size))
                if len(ahead) > _AHEAD * workers:
                    yield from ahead.popleft().result()
            while ahead:
                yield from ahead.popleft().result()
        finally:
            pool.shutdown(cancel_futures=True)


def worker_context() -> BaseContext:
    """How processes that decode are started.

    Not by "fork": a forked child of a process with torch's threads running can deadlock.
    """
    methods = multiprocessing.get_all_start_methods()
    context = multiprocessing.get_context("forkserver" if "forkserver" in methods else "spawn")
    # The server imports what they need once for all workers; elsewhere each does so by itself.
    context.set_forkserver_preload([f"{__package__}.streamed"])
    return context


def _decode_chunk(items: Sequence[Item], size: int | None) -> list[Result]:
    return [_try_decode(item, size) for item in items]


def _try_decode(item: Item, size: int | None) -> Result:
    """The decoded image and what it was converted from ("" if nothing), or why it failed."""
    try:
        if size is not None:
            return decode_image(item, size)
        return zlib.crc32(encoded(item)), open_rgb(item)[1]
    except DataError as error:
        return str(error)

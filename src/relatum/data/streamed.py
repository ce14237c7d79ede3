"""Where a training step finds its images: in memory, or decoded by workers ahead of their use.

A step asks for rows and hands over the random draws of its views. From memory it gets the stored
squares and all draws are still to be applied. Streamed, a worker has cut each view's random crop
out of the whole image already, as published, and what is left are flips, colours and blur.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from jaxtyping import Float64, Int64, UInt8
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from .augment import Augmentation, Draws
from .decoding import DataError, Item, cut, open_rgb
from .images import Encoded, ImageTable, worker_context

__all__ = ["Frames", "InMemory", "PixelSource", "Request", "Streamed", "pixel_source"]

_CHUNK = 32  # images that a worker hands over at a time
_AHEAD = 2  # batches that are decoded or in work before they are asked for


@dataclass(frozen=True)
class Frames:
    """Pixels of one view of each image, and the draws that are still to be applied to them."""

    pixels: UInt8[Tensor, "n 3 s s"]
    draws: Draws

    def __len__(self) -> int:
        return len(self.pixels)

    def __getitem__(self, rows: slice | Tensor) -> Frames:
        where = rows.to(self.pixels.device) if isinstance(rows, Tensor) else rows
        return Frames(self.pixels[where], self.draws[rows])


class Request(NamedTuple):
    """What a step asks for: row numbers, and the draws of each view of them."""

    rows: Int64[Tensor, " n"]
    draws: Sequence[Draws]

    def same(self, other: Request) -> bool:
        """Whether the other asks for the same crops of the same images."""
        return torch.equal(self.rows, other.rows) and all(
            torch.equal(a.crop, b.crop) for a, b in zip(self.draws, other.draws, strict=True)
        )


class PixelSource(Protocol):
    """Gives a step its images."""

    @property
    def device(self) -> torch.device:
        """Where the pixels come to lie."""
        ...

    def follow(self, requests: Iterable[Request]) -> None:
        """Says what will be asked for, in this order, so that it can be made ready ahead."""
        ...

    def frames(self, request: Request) -> list[Frames]:
        """One for each view."""
        ...


@dataclass(frozen=True)
class InMemory:
    """All images of the stored size, on the networks' device."""

    pixels: UInt8[Tensor, "n 3 s s"]

    @property
    def device(self) -> torch.device:
        """Where the pixels lie."""
        return self.pixels.device

    def follow(self, requests: Iterable[Request]) -> None:
        """Nothing to do: all is ready."""

    def frames(self, request: Request) -> list[Frames]:
        """The stored squares, the same for each view; every draw is still to be applied."""
        pixels = self.pixels[request.rows.to(self.device)]
        return [Frames(pixels, draws) for draws in request.draws]


class Streamed:
    """Images that worker processes read, decode and crop while the networks are at work.

    A crop is drawn from the whole image, of whatever size and shape, and resized bicubically to
    8-bit pixels, as torchvision does with Pillow images. Images of the stored size give what
    :class:`InMemory` gives up to that rounding; of larger ones memory holds a centre square of the
    stored size only, so that a crop of 8 % of it is far blurrier than what is published, and never
    reaches the margins. What comes out depends on the draws alone, not on the number of workers.

    Args:
        images: The images.
        policy: Says how crops are drawn.
        workers: Processes; 0 decodes in this one when the images are asked for.
        device: Where the pixels are wanted.

    Raises:
        ValueError: If the policy rotates or shifts, which is one resampling with the crop, or is
            for another size.
    """

    def __init__(
        self,
        images: Encoded,
        policy: Augmentation,
        *,
        workers: int = 0,
        device: torch.device | None = None,
    ) -> None:
        if policy.rotate or policy.shift:
            raise ValueError(
                "an augmentation that rotates or shifts needs the images in memory: they cannot be "
                "streamed"
            )
        if policy.size != images.size or policy.input_size not in (None, images.size):
            raise ValueError(
                f"the augmentation must be for the images' size {images.size}, got {policy.size}"
            )
        self.images, self.workers = images, workers
        self.device = device or torch.device("cpu")
        self._cutter = _Cutter(policy)
        self._expected: Iterator[Request] = iter(())
        self._served: Iterator[Tensor] = iter(())
        self._next: Request | None = None

    def follow(self, requests: Iterable[Request]) -> None:
        """Says what will be asked for, in this order; from the first on, decoding runs ahead."""
        self._expected, ahead = itertools.tee(requests)
        self._next = next(self._expected, None)
        self._served = self._serve(ahead)

    def frames(self, request: Request) -> list[Frames]:
        """Crops of each view. What is asked for out of order is decoded now.

        Raises:
            DataError: If an image cannot be read any more; the message names it.
        """
        if self._next is not None and self._next.same(request):
            pixels = next(self._served)
            self._next = next(self._expected, None)
        else:
            pixels = torch.cat([_whole(self._cutter.cut(jobs)) for jobs in self._jobs(request)])
        pixels = pixels.to(self.device, non_blocking=True)
        size = self.images.size
        return [Frames(pixels[:, v], each.cropped(size)) for v, each in enumerate(request.draws)]

    def _jobs(self, request: Request) -> list[list[_Job]]:
        crops = torch.stack([draws.crop for draws in request.draws], dim=1).numpy()
        items = self.images.items
        jobs = [(items[row], crop) for row, crop in zip(request.rows.tolist(), crops, strict=True)]
        return [jobs[start : start + _CHUNK] for start in range(0, len(jobs), _CHUNK)]

    def _serve(self, requests: Iterator[Request]) -> Iterator[Tensor]:
        """The crops of each request, decoded ahead."""
        counts: deque[int] = deque()

        def jobs() -> Iterator[list[_Job]]:
            for request in requests:
                parts = self._jobs(request)
                counts.append(len(parts))
                yield from parts

        chunks = iter(self._loader(jobs()))
        for chunk in chunks:
            parts = [chunk, *itertools.islice(chunks, counts.popleft() - 1)]
            yield torch.cat([_whole(part) for part in parts])

    def _loader(self, jobs: Iterator[list[_Job]]) -> Iterable[Tensor | str]:
        """Chunks in the order of the jobs, two batches ahead."""
        options: dict[str, Any] = {}
        if self.workers:
            chunks = -(-len(self._next.rows) // _CHUNK) if self._next else 1
            options = {
                "num_workers": self.workers,
                "prefetch_factor": max(2, -(-_AHEAD * chunks // self.workers)),
                "multiprocessing_context": worker_context(),
                "pin_memory": self.device.type == "cuda",
            }
        return DataLoader(
            self._cutter,
            batch_sampler=jobs,  # jobs in place of numbers
            collate_fn=_as_they_are,
            generator=torch.Generator(),  # the loader must not draw from training's own
            **options,
        )


def pixel_source(
    images: ImageTable, policy: Augmentation, *, workers: int, device: torch.device
) -> PixelSource:
    """The source that a table is made for: its memory, or workers that decode."""
    pixels: Any = images.pixels
    if isinstance(pixels, Encoded):
        return Streamed(pixels, policy, workers=workers, device=device)
    return InMemory(pixels.to(device))


# An image, and the uniform numbers behind the crop of each of its views.
_Job = tuple[Item, Float64[np.ndarray, "views 22"]]


class _Cutter(Dataset[Tensor]):
    """What a worker does; it is handed the images themselves and holds none."""

    def __init__(self, policy: Augmentation) -> None:
        self.policy = policy

    def __getitems__(self, jobs: list[_Job]) -> Tensor | str:
        return self.cut(jobs)

    def cut(self, jobs: list[_Job]) -> UInt8[Tensor, "n views 3 s s"] | str:
        """The crops of some images; or what is wrong with one, since errors lose their names."""
        size = self.policy.size
        views = np.empty((len(jobs), len(jobs[0][1]), size, size, 3), dtype=np.uint8)
        for image_views, (item, crops) in zip(views, jobs, strict=True):
            try:
                image, _ = open_rgb(item)
            except DataError as error:
                return f"cannot decode {_name(item)}: {error}; it was whole when training began"
            boxes = self.policy.crop_boxes(torch.from_numpy(crops), image.height, image.width)
            for view, box in zip(image_views, boxes.tolist(), strict=True):
                view[:] = cut(image, box, size)
        return torch.from_numpy(views.transpose(0, 1, 4, 2, 3).copy())


def _name(item: Item) -> str:
    return "an image" if isinstance(item, bytes | np.ndarray) else str(item)


def _as_they_are(chunk: Any) -> Any:
    return chunk


def _whole(chunk: Tensor | str) -> Tensor:
    if isinstance(chunk, str):
        raise DataError(chunk)
    return chunk

"""One sound file to samples: loose or inside a tar, any rate, any number of channels.

How a file becomes samples (:func:`read_sound`):

* integers become floats in [-1, 1); float files are taken as they are, also beyond ±1, but a NaN or
  an infinity is an error;
* several channels become one by the channel policy, which is never guessed;
* another rate is resampled (soxr, HQ); n samples at r become n R / r, rounded, at R.

Nothing is normalised: loud stays loud, and a silent file is zeros, which is legal.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple, get_args

import numpy as np
from jaxtyping import Float32
from numpy.typing import NDArray

from ..images import DataError

try:
    import soundfile as untyped_soundfile
    import soxr as untyped_soxr
except ImportError:
    raise ImportError("sounds need soundfile and soxr: pip install 'relatum[audio]'") from None

__all__ = ["CHANNELS", "Channels", "Place", "SoundHeader", "read_header", "read_sound"]

# soundfile and soxr have no types.
soundfile: Any = untyped_soundfile
soxr: Any = untyped_soxr

Channels = Literal["mean", "first", "error"]
CHANNELS: Final[tuple[str, ...]] = get_args(Channels)


@dataclass(frozen=True)
class Place:
    """Where the bytes of one sound are.

    Attributes:
        path: The file itself, or the tar that holds it.
        member: Its name in the tar; "" for a loose file.
        offset: Where its bytes begin in the tar.
        size: How many bytes it has there.
    """

    path: Path
    member: str = ""
    offset: int = 0
    size: int = 0

    def __str__(self) -> str:
        return f"{self.path}:{self.member}" if self.member else str(self.path)

    def source(self) -> io.BytesIO | str:
        """What soundfile opens; a member is read whole, so no unpacked copy is needed."""
        if not self.member:
            return str(self.path)
        with self.path.open("rb") as archive:
            archive.seek(self.offset)
            return io.BytesIO(archive.read(self.size))


class SoundHeader(NamedTuple):
    """What a file says of itself: samples per channel, samples per second, channels."""

    frames: int
    rate: int
    channels: int

    def frames_at(self, rate: int) -> int:
        """Samples after resampling to `rate`: n R / r, halves rounded up as soxr does."""
        return (2 * self.frames * rate + self.rate) // (2 * self.rate)


def read_header(place: Place) -> SoundHeader:
    """The header of a sound.

    Raises:
        DataError: If the file is no sound, or holds no samples; the message names it.
    """
    with _opened(place) as sound:
        header = SoundHeader(int(sound.frames), int(sound.samplerate), int(sound.channels))
    if header.frames < 1:
        raise DataError(f"{place} holds no samples: its length is 0")
    return header


def read_sound(
    place: Place,
    *,
    rate: int,
    channels: Channels,
    start: int = 0,
    frames: int | None = None,
) -> Float32[np.ndarray, " n"]:
    """Samples at `rate`, one channel.

    Where the file has that rate already, only the part asked for is decoded. Otherwise the whole
    file is resampled and cut afterwards, so that a part never depends on where it was cut.

    Args:
        place: The file.
        rate: Samples per second of the result.
        channels: "mean" averages the channels, "first" takes the first, "error" refuses more.
        start: First sample, counted at `rate`.
        frames: How many; None for all that follow.

    Raises:
        DataError: If the file cannot be decoded, holds no samples or fewer than asked for, has
            several channels under "error", or holds a NaN or an infinity; the message names it.
    """
    with _opened(place) as sound:
        whole = sound.samplerate != rate
        if not whole:
            sound.seek(min(start, sound.frames))
        asked = -1 if whole or frames is None else frames
        samples = np.asarray(sound.read(asked, dtype="float32", always_2d=True))
        found = int(sound.samplerate)
    mono = _one_channel(samples, place, channels)
    if not np.isfinite(mono).all():
        first = int(np.argmin(np.isfinite(mono)))
        raise DataError(f"{place}: sample {first} is {mono[first]}; repair or remove the file")
    if whole:
        mono = np.asarray(soxr.resample(mono, found, rate), np.float32)[start:]
        mono = mono if frames is None else mono[:frames]
    if len(mono) < (1 if frames is None else frames):
        wanted = "no samples" if frames is None else f"{len(mono)} of {frames} samples asked for"
        raise DataError(f"{place} holds {wanted} from sample {start} on")
    return np.ascontiguousarray(mono)


def _one_channel(
    samples: NDArray[np.float32], place: Place, channels: Channels
) -> NDArray[np.float32]:
    count = samples.shape[1]
    if count > 1 and channels == "error":
        raise DataError(
            f"{place} has {count} channels; say what to do with them: --channels mean or first"
        )
    one: NDArray[np.float32] = (
        samples.mean(1, dtype=np.float32) if channels == "mean" else samples[:, 0]
    )
    return one


@contextmanager
def _opened(place: Place) -> Iterator[Any]:
    """An open sound, with every error of its decoder told together with the file's name."""
    try:
        with soundfile.SoundFile(place.source()) as sound:
            yield sound
    except (soundfile.LibsndfileError, OSError) as error:
        cause = str(error).rpartition(": ")[2] or str(error)
        raise DataError(f"{place} cannot be decoded ({cause})") from error

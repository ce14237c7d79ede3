"""A corpus: every sound opened and checked once, none of them held.

What becomes of a file that is not as it should be:

* no samples, not decodable, a NaN: an error that names it, or, with ``on_bad_file="skip"``, left
  out and counted;
* another rate: resampled; several channels: by the channel policy, and counted;
* silent, or clipped (flat tops at the largest value of the file): legal, kept, and counted, since
  both are facts about the recording that a reader of results should know.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

import numpy as np
from jaxtyping import Float32
from numpy.typing import NDArray

from ..images import DataError, SkippedFile
from .listing import ListedSound
from .reading import Channels, Place, read_header, read_sound

__all__ = ["Corpus", "Utterance", "is_clipped", "open_corpus"]

# Resampled files are kept, the latest first, up to so many samples (128 MB): a file of another
# rate is resampled as a whole, which is dear where windows of it follow each other.
_KEPT_SAMPLES: Final = 2**25

# Flat tops: this many samples in a row at the largest value. One is a peak, two can be chance.
_FLAT: Final = 3


@dataclass(frozen=True)
class Utterance:
    """One sound of a corpus.

    Attributes:
        id: As listed.
        speaker: "" where nobody said.
        place: Where its bytes are.
        frames: Samples at the rate of the corpus.
        resampled: Whether the file has another rate.
    """

    id: str
    speaker: str
    place: Place
    frames: int
    resampled: bool


@dataclass(frozen=True)
class Corpus:
    """Sounds that can be read in any part, at one rate and in one channel.

    Attributes:
        utterances: In the natural order of their ids.
        rate: Samples per second.
        channels: What is done with several channels.
        skipped: Files left out.
        notes: What a reader should know of the data.
    """

    utterances: tuple[Utterance, ...]
    rate: int
    channels: Channels
    skipped: tuple[SkippedFile, ...] = ()
    notes: tuple[str, ...] = ()
    _kept: OrderedDict[int, NDArray[np.float32]] = field(
        default_factory=OrderedDict, repr=False, compare=False
    )

    def __len__(self) -> int:
        return len(self.utterances)

    @property
    def speakers(self) -> tuple[str, ...]:
        """All speakers, in the order of their names."""
        return tuple(sorted({utterance.speaker for utterance in self.utterances}))

    @property
    def seconds(self) -> float:
        """Length of everything."""
        return sum(utterance.frames for utterance in self.utterances) / self.rate

    def read(
        self, number: int, start: int = 0, frames: int | None = None
    ) -> Float32[np.ndarray, " n"]:
        """Samples of one utterance from `start` on; all that follow where `frames` is None.

        Raises:
            DataError: If the file has changed so that they are no longer there.
        """
        utterance = self.utterances[number]
        place, rate, channels = utterance.place, self.rate, self.channels
        if not utterance.resampled:
            return read_sound(place, rate=rate, channels=channels, start=start, frames=frames)
        if number not in self._kept:
            self._kept[number] = read_sound(place, rate=rate, channels=channels)
            while len(self._kept) > 1 and sum(map(len, self._kept.values())) > _KEPT_SAMPLES:
                self._kept.popitem(last=False)
        self._kept.move_to_end(number)
        return self._kept[number][start : None if frames is None else start + frames].copy()


def open_corpus(
    sounds: Sequence[ListedSound],
    *,
    rate: int = 16000,
    channels: Channels = "mean",
    on_bad_file: Literal["error", "skip"] = "error",
    check: bool = True,
) -> Corpus:
    """Opens every sound once; decodes each whole where `check` is set (about 2000 s a second).

    Args:
        sounds: As listed.
        rate: Samples per second of the corpus; other files are resampled.
        channels: "mean", "first" or "error" for files of several channels.
        on_bad_file: "error" stops at the first bad file, "skip" leaves it out and counts it.
        check: Decode each file to the end. Without it only headers are read, and a file that is
            damaged further on stops whoever comes to it.

    Raises:
        DataError: If a file is bad under "error", or no file is left under "skip".
        ValueError: If `rate` is not positive, or `check` is off under "skip".
    """
    if rate < 1:
        raise ValueError(f"rate must be at least 1 sample a second, got {rate}")
    if on_bad_file == "skip" and not check:
        raise ValueError("on_bad_file 'skip' must decode every file to find the bad ones: check it")
    facts = _Facts()
    utterances, skipped = [], []
    for row, sound in enumerate(sounds):
        try:
            utterances.append(_opened(sound, rate, channels, check, facts))
        except DataError as error:
            if on_bad_file == "error":
                raise
            skipped.append(SkippedFile(row, sound.id, str(error)))
    if not utterances:
        first = f"; the first: {skipped[0].reason}" if skipped else ""
        raise DataError(f"no sound is left of {len(sounds)}{first}")
    if skipped:
        facts.notes.append(
            f"kept {len(utterances)} of {len(sounds)} sounds; {len(skipped)} cannot be used, the "
            f"first: {skipped[0].reason}"
        )
    return Corpus(tuple(utterances), rate, channels, tuple(skipped), facts.said(rate, channels))


def is_clipped(samples: Float32[np.ndarray, " n"]) -> bool:
    """Whether the largest absolute value is held for three samples in a row, on one side.

    Silence is not clipped.

    Example:
        >>> tone = np.sin(np.arange(100, dtype=np.float32))
        >>> is_clipped(tone), is_clipped(np.clip(tone, -0.5, 0.5))
        (False, True)
    """
    peak = np.abs(samples).max()
    if peak == 0:
        return False
    for side in (samples == peak, samples == -peak):
        if np.convolve(side, np.ones(_FLAT), "valid").max(initial=0) >= _FLAT:
            return True
    return False


@dataclass
class _Facts:
    """What was seen while files were opened."""

    rates: dict[int, int] = field(default_factory=dict)
    several: int = 0
    silent: int = 0
    clipped: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def said(self, rate: int, channels: str) -> tuple[str, ...]:
        notes = list(self.notes)
        if set(self.rates) - {rate}:
            found = ", ".join(f"{n} of {r} Hz" for r, n in sorted(self.rates.items()))
            notes.append(f"resampled to {rate} Hz: {found}")
        if self.several:
            notes.append(f"{self.several} sounds have several channels: policy {channels!r}")
        if self.silent:
            notes.append(f"{self.silent} sounds are silent from end to end")
        if self.clipped:
            notes.append(f"{len(self.clipped)} sounds are clipped, the first: {self.clipped[0]}")
        return tuple(notes)


def _opened(
    sound: ListedSound, rate: int, channels: Channels, check: bool, facts: _Facts
) -> Utterance:
    header = read_header(sound.place)
    frames = header.frames_at(rate)
    if frames < 1:
        raise DataError(f"{sound.place} holds no samples at {rate} Hz: it is too short")
    if check:
        samples = read_sound(sound.place, rate=header.rate, channels=channels)
        # Compressed formats may promise more than they hold; only what is there can be read.
        if header.rate == rate:
            frames = min(frames, len(samples))
        facts.silent += not samples.any()
        if is_clipped(samples):
            facts.clipped.append(sound.id)
    facts.rates[header.rate] = facts.rates.get(header.rate, 0) + 1
    facts.several += header.channels > 1
    return Utterance(sound.id, sound.speaker, sound.place, frames, header.rate != rate)

"""One utterance for people to hear and see: sound, spectrogram, and what a probe makes of it."""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import soundfile as untyped_soundfile
from jaxtyping import Bool, Float, Int64
from scipy.special import softmax

from ...data.audio import Corpus, log_mel, mel_centres
from ...probes import ProbeResult

__all__ = ["Excerpt", "flac"]

# soundfile has no types.
soundfile: Any = untyped_soundfile

_SECONDS: Final = 4
_RANGE: Final = 60 / 10 * np.log(10)  # 60 dB below the loudest, in nats of energy
_DEVIATIONS: Final = 3


@dataclass(frozen=True)
class Excerpt:
    """The first seconds of one utterance of a corpus.

    Attributes:
        corpus: The recordings.
        number: Of the utterance.
        held_out: Whether it is one of those held out.
    """

    corpus: Corpus
    number: int
    held_out: bool

    @classmethod
    def of(cls, corpus: Corpus, test: Bool[np.ndarray, " n"]) -> Excerpt:
        """The first held-out utterance that lasts four seconds, else the longest of them.

        Of all utterances where none is held out.
        """
        numbers = np.flatnonzero(test) if test.any() else np.arange(len(corpus))
        most = _SECONDS * corpus.rate
        frames = np.array([min(corpus.utterances[i].frames, most) for i in numbers])
        return cls(corpus, int(numbers[frames.argmax()]), bool(test.any()))

    @property
    def samples(self) -> Float[np.ndarray, " n"]:
        """What is heard."""
        most = min(self.corpus.utterances[self.number].frames, _SECONDS * self.corpus.rate)
        return self.corpus.read(self.number, 0, most)

    def record(self, features: Float[np.ndarray, "t d"]) -> dict[str, Any]:
        """What the report draws: sound, spectrogram, and the features of the whole utterance."""
        samples, utterance = self.samples, self.corpus.utterances[self.number]
        energies = log_mel(samples, self.corpus.rate)
        shown = features[: len(energies)].astype(np.float64)
        deviation = shown.std(0)
        scaled = (shown - shown.mean(0)) / np.where(deviation > 0, deviation, 1)
        return {
            "id": utterance.id,
            "speaker": utterance.speaker,
            "held_out": self.held_out,
            "seconds": len(samples) / self.corpus.rate,
            "whole_seconds": utterance.frames / self.corpus.rate,
            "sound": base64.b64encode(flac(samples, self.corpus.rate)).decode(),
            "hertz": mel_centres(self.corpus.rate).tolist(),
            "spectrogram": _packed((energies - energies.max()) / _RANGE + 1),
            "features": _packed(scaled / (2 * _DEVIATIONS) + 0.5),
        }

    def phones(
        self, found: ProbeResult, test: Bool[np.ndarray, " n"],
        labels: Sequence[Int64[np.ndarray, " t"]], lengths: Sequence[int], names: Sequence[str],
    ) -> dict[str, Any]:  # fmt: skip
        """The probe's posteriors, and the true phones of the frames that have them.

        Args:
            found: With scores, of all held-out frames that have labels.
            test: Which utterances are held out.
            labels: Of each utterance; negative numbers are none.
            lengths: Frames of each utterance's features.
            names: Of the phones.
        """
        assert found.scores is not None, "the probe was asked to keep its scores"
        earlier = np.flatnonzero(test[: self.number]).tolist()
        before = sum(int((labels[i][: lengths[i]] >= 0).sum()) for i in earlier)
        mine = labels[self.number][: min(lengths[self.number], _SECONDS * 100)]
        known = np.flatnonzero(mine >= 0)
        # A frame without a label was not asked for, and has no posterior.
        posteriors = np.zeros((len(mine), len(found.classes)))
        posteriors[known] = softmax(found.scores[before : before + len(known)], axis=1)
        classes = [str(name) for name in found.classes]
        order = sorted(range(len(classes)), key=lambda i: list(names).index(classes[i]))
        return {
            "classes": [classes[i] for i in order],
            "posteriors": _packed(posteriors[:, order]),
            "phones": [names[label] if label >= 0 else None for label in mine],
        }


def flac(samples: Float[np.ndarray, " n"], rate: int) -> bytes:
    """A 16-bit FLAC file; samples beyond 1, which float files may have, are all scaled down."""
    buffer = io.BytesIO()
    peak = max(1.0, float(np.abs(samples).max()))
    soundfile.write(buffer, samples / peak, rate, format="FLAC", subtype="PCM_16")
    return buffer.getvalue()


def _packed(values: Float[np.ndarray, "t c"]) -> dict[str, Any]:
    """Numbers from 0 to 1 as bytes; what lies outside is drawn at the end of the scale."""
    scaled = (255 * values.clip(0, 1)).round().astype(np.uint8)
    return {"shape": list(scaled.shape), "base64": base64.b64encode(scaled.tobytes()).decode()}

"""Windows of a corpus: which there are, whose they are, and how a batch of them is read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from jaxtyping import Float, Int64
from torch import Tensor

from ..images import DataError
from .corpus import Corpus

__all__ = ["Short", "Windows", "cut_windows", "unit_windows"]

Short = Literal["skip", "pad"]


@dataclass(frozen=True)
class Windows:
    """Windows of one length, side by side in each utterance; none is read before it is asked for.

    An utterance of n samples holds n // length of them, from its first sample on. What is left at
    its end is reached by :meth:`read` with a generator, which shifts each window by up to that
    rest. An utterance shorter than a window is left out, or padded with zeros at its end.

    Attributes:
        corpus: Where they are read.
        length: Samples of a window.
        utterance: Of each window, its number in the corpus.
        start: Its first sample.
        slack: How far it may be shifted.
        speaker: Its number in ``corpus.speakers``.
        notes: What was left out or padded.
    """

    corpus: Corpus
    length: int
    utterance: Int64[Tensor, " n"]
    start: Int64[Tensor, " n"]
    slack: Int64[Tensor, " n"]
    speaker: Int64[Tensor, " n"]
    notes: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.start)

    def read(
        self,
        rows: Int64[Tensor, " b"],
        generator: torch.Generator | None = None,
        own: slice = slice(None),
    ) -> Float[Tensor, "o length"]:
        """The samples of some windows; with a generator each is shifted at random.

        The shift is uniform over whole samples from 0 to the rest of its utterance, so that over
        many epochs every sample is seen.

        Args:
            rows: Of a batch.
            generator: Draws a shift for each row.
            own: Which of the rows are read; the shifts are those that all of them would have.
        """
        return self.read_at(rows[own], self.first_samples(rows, generator)[own])

    def first_samples(
        self, rows: Int64[Tensor, " b"], generator: torch.Generator | None = None
    ) -> Int64[Tensor, " b"]:
        """Where :meth:`read` begins each window in its utterance, with the same generator."""
        rows = rows.cpu()
        if generator is None:
            return self.start[rows]
        share = torch.rand(len(rows), generator=generator)
        shift = (share * (self.slack[rows] + 1)).long().minimum(self.slack[rows])
        return self.start[rows] + shift

    def read_at(
        self, rows: Int64[Tensor, " b"], first: Int64[Tensor, " b"]
    ) -> Float[Tensor, "b length"]:
        """The samples of some windows, each from a sample of its utterance on."""
        batch = torch.zeros(len(rows), self.length)
        for i, number in enumerate(self.utterance[rows.cpu()].tolist()):
            held = min(self.length, self.corpus.utterances[number].frames)
            samples = self.corpus.read(number, int(first[i]), held)
            batch[i, : len(samples)] = torch.from_numpy(samples)
        return batch


def unit_windows(samples: Float[Tensor, "n s"]) -> Float[Tensor, "n s"]:
    r"""Each window at mean 0 and variance 1; silence, which has none, at 0.

    .. math:: (x - \bar x) / \sqrt{\overline{(x - \bar x)^2}}

    Speech in [−1, 1] has a deviation of some hundredths, beside which the offsets of a first
    convolution are all that is left after normalisation across channels: nothing is learned.
    """
    centred = samples - samples.mean(1, keepdim=True)
    deviation = centred.square().mean(1, keepdim=True).sqrt()
    return centred / torch.where(deviation > 0, deviation, 1.0)


def cut_windows(corpus: Corpus, length: int, short: Short = "skip") -> Windows:
    """Cuts a corpus into windows.

    Args:
        corpus: The sounds.
        length: Samples of a window, at least 1.
        short: What becomes of utterances that are shorter: "skip" leaves them out, "pad" adds
            zeros. Both are counted in the notes.

    Raises:
        ValueError: If `length` is not positive.
        DataError: If no window is left; the message says how long the sounds are.
    """
    if length < 1:
        raise ValueError(f"a window must hold at least 1 sample, got {length}")
    frames = np.array([utterance.frames for utterance in corpus.utterances])
    counts = frames // length
    few = counts == 0
    if short == "pad":
        counts = np.maximum(counts, 1)
    if not counts.sum():
        raise DataError(
            f"no window is left: all {len(frames)} sounds are shorter than {length} samples (the "
            f"longest has {frames.max()}); use a shorter window, or --short pad"
        )
    utterance = np.repeat(np.arange(len(frames)), counts)
    place = np.concatenate([np.arange(count) for count in counts])
    numbers = {name: i for i, name in enumerate(corpus.speakers)}
    speakers = np.array([numbers[each.speaker] for each in corpus.utterances])
    done = "padded with zeros" if short == "pad" else "left out"
    kept = f"; kept {len(frames) - few.sum()} of {len(frames)}" if short == "skip" else ""
    notes = (
        (f"{few.sum()} sounds shorter than a window of {length} samples were {done}{kept}",)
        if few.any()
        else ()
    )
    return Windows(
        corpus=corpus,
        length=length,
        utterance=torch.from_numpy(utterance),
        start=torch.from_numpy(place * length),
        slack=torch.from_numpy(np.maximum(frames - counts * length, 0)[utterance]),
        speaker=torch.from_numpy(speakers[utterance]),
        notes=notes,
    )

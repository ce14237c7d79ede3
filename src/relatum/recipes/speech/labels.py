"""Phone labels beside the recordings that they are of: as many as there are frames."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
from jaxtyping import Int64

from ...data.audio import Corpus, Utterance, label_count, read_frame_labels
from ...data.audio.phones import numbered_lines

__all__ = ["FrameLabels", "fitted", "labelled", "labels_of"]

_MOST_APART: Final = 2  # frames: aligners differ by so much at the end of a recording


class FrameLabels(NamedTuple):
    """What a file says of the recordings of a corpus.

    Attributes:
        each: The labels of each recording; None where it has none.
        notes: What a reader should know of them.
    """

    each: list[Int64[np.ndarray, " t"] | None]
    notes: tuple[str, ...]


def labels_of(path: Path, corpus: Corpus, hop: int) -> FrameLabels:
    """The labels of a file, one for each 10 ms, checked against the lengths of the recordings.

    Args:
        path: One utterance a line.
        corpus: The recordings.
        hop: Samples of a frame that the labels are to stand beside.

    Raises:
        ValueError: If no recording has labels, a frame is not 10 ms, or a recording has more than
            two labels too few or too many.
    """
    found = read_frame_labels(path)
    each = [found.get(utterance.id) for utterance in corpus.utterances]
    if all(labels is None for labels in each):
        raise ValueError(
            f"{path} has labels of none of {len(corpus)} recordings: its first utterance is "
            f"{next(iter(found))!r}, the first recording {corpus.utterances[0].id!r}"
        )
    if 100 * hop != corpus.rate:
        raise ValueError(
            f"{path} has a label for each 10 ms, but a frame of this network is {hop} samples at "
            f"{corpus.rate} Hz, {1000 * hop / corpus.rate:g} ms: leave out --labels"
        )
    uneven = 0
    for utterance, labels in zip(corpus.utterances, each, strict=True):
        if labels is not None:
            uneven += _is_uneven(path, utterance, len(labels), corpus.rate)
    if not uneven:
        return FrameLabels(each, ())
    note = f"labels and frames of {uneven} recordings differ by one or two: cut to the shorter"
    return FrameLabels(each, (note,))


def labelled(path: Path, corpus: Corpus, hop: int) -> tuple[Corpus, list[Int64[np.ndarray, " t"]]]:
    """The recordings that have labels, with what to know of these among the notes, and the labels.

    Raises:
        ValueError: As :func:`labels_of` does.
    """
    each, notes = labels_of(path, corpus, hop)
    pairs = [(u, y) for u, y in zip(corpus.utterances, each, strict=True) if y is not None]
    if left := len(corpus) - len(pairs):
        notes += (f"{left} recordings have no labels",)
    kept = tuple(utterance for utterance, _ in pairs)
    corpus = dataclasses.replace(corpus, utterances=kept, notes=(*corpus.notes, *notes))
    return corpus, [labels for _, labels in pairs]


def fitted(labels: Int64[np.ndarray, " t"] | None, count: int) -> Int64[np.ndarray, " count"]:
    """So many labels; -1 where there is none."""
    found = np.full(count, -1, dtype=np.int64)
    if labels is not None:
        found[: len(labels)] = labels[:count]
    return found


def _is_uneven(path: Path, utterance: Utterance, count: int, rate: int) -> bool:
    """Whether labels are a few too few or too many; more raise ValueError."""
    frames = label_count(utterance.frames, window=rate // 40, hop=rate // 100)
    if abs(count - frames) > _MOST_APART:
        lines = numbered_lines(path)
        line = next(number for number, text in lines if text.split()[0] == utterance.id)
        raise ValueError(
            f"{path} line {line}: utterance {utterance.id} has {count} labels, its "
            f"{utterance.frames / rate:.2f} s need {frames}, one for each 10 ms"
        )
    return count != frames

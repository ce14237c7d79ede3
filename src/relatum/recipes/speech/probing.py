"""Linear probes of recordings: phones of every frame, speakers of windows and of utterances."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from jaxtyping import Bool, Float, Int64

from ...data.audio import Corpus, segments_from_labels
from ...probes import ABXResult, ProbeResult, abx, linear_probe
from .features import FrameFeatures

__all__ = ["ProbeSet", "phone_abx", "phone_probe", "speaker_probes", "split_of"]

_GRID: Final = tuple(10.0**power for power in range(-1, -6, -1))
_CHOICE_FRAMES: Final = 20_000  # enough to tell penalties apart, a tenth of the time
_EVERY: Final = 5


@dataclass(frozen=True)
class ProbeSet:
    """Features and labels of utterances, with the side each stands on.

    Attributes:
        features: Of each utterance, (t, d).
        speakers: Of each utterance.
        test: Whether it is held out.
    """

    features: Sequence[Float[np.ndarray, "t d"]]
    speakers: Sequence[str]
    test: Bool[np.ndarray, " n"]

    @classmethod
    def of(cls, corpus: Corpus, extract: FrameFeatures, test: Bool[np.ndarray, " n"]) -> ProbeSet:
        """The features of a corpus."""
        found = [extract(corpus, number) for number in range(len(corpus))]
        return cls(found, [utterance.speaker for utterance in corpus.utterances], test)


def split_of(
    corpus: Corpus, by: str, held_out: Sequence[str] | None
) -> tuple[Bool[np.ndarray, " n"], str]:
    """Which utterances are held out, and a sentence that says so.

    Args:
        corpus: The utterances.
        by: "utterance": those named by `held_out`, else every fifth of each speaker, so that all
            speakers are on both sides. "speaker": the speakers named, else every fifth of them.
        held_out: Utterance ids or speakers.

    Raises:
        ValueError: If a name is not there, or one side is empty.
    """
    keys = [u.speaker if by == "speaker" else u.id for u in corpus.utterances]
    known = list(dict.fromkeys(keys))
    if held_out is not None:
        missing = [name for name in held_out if name not in set(known)]
        if missing:
            raise ValueError(
                f"held-out {by} {missing[0]!r} is not among the {len(known)} there are"
            )
        chosen, how = set(held_out), f"{by}s named by the caller"
    elif by == "speaker":
        chosen, how = set(known[_EVERY - 1 :: _EVERY]), "every fifth speaker"
    else:
        order: dict[str, list[str]] = {}
        for utterance in corpus.utterances:
            order.setdefault(utterance.speaker, []).append(utterance.id)
        chosen = {name for names in order.values() for name in names[_EVERY - 1 :: _EVERY]}
        how = "every fifth utterance of each speaker"
    test = np.array([key in chosen for key in keys])
    if not test.any() or test.all():
        raise ValueError(f"split by {by}: {test.sum()} of {len(test)} utterances are held out")
    text = f"held out: {how}, {test.sum()} of {len(test)} utterances"
    return test, text


def phone_probe(
    data: ProbeSet,
    labels: Sequence[Int64[np.ndarray, " t"]],
    names: Sequence[str],
    seed: int,
    *,
    keep_scores: bool = False,
) -> ProbeResult:
    """Linear, on every labelled frame; accuracy over frames.

    The penalty is chosen on every fifth *utterance* of the training side: frames of one utterance
    are neighbours, and a frame left out alone would be known from those beside it.
    """
    rows = [(x[: len(y)], y[: len(x)]) for x, y in zip(data.features, labels, strict=True)]
    utterance = np.repeat(np.arange(len(rows)), [len(x) for x, _ in rows])
    x = np.concatenate([x for x, _ in rows])
    y = np.concatenate([y for _, y in rows])
    keep = y >= 0
    x, y, utterance = x[keep], y[keep], utterance[keep]
    held_out = data.test[utterance]
    train, test = np.flatnonzero(~held_out), np.flatnonzero(held_out)
    penalty = _penalty(x[train], y[train], utterance[train], seed)
    named = np.array(names)[y]
    found = linear_probe(
        x[train], named[train], x[test], named[test], seed=seed, regularisation=penalty,
        tolerance=1e-3, max_iter=300, keep_scores=keep_scores,
    )  # fmt: skip
    return replace(found, probe="phones, every frame")


def phone_abx(
    data: ProbeSet,
    labels: Sequence[Int64[np.ndarray, " t"]],
    names: Sequence[str],
    most: int,
    seed: int,
) -> ABXResult:
    """ABX between phones of one speaker, in any surroundings, on held-out utterances.

    Items are runs of one label from 30 to 300 ms; silence and noise are no phones.
    """
    items, phones, speakers = [], [], []
    for x, y, speaker, test in zip(data.features, labels, data.speakers, data.test, strict=True):
        if not test:
            continue
        for phone, start, end in segments_from_labels(y, tuple(names)):
            first, last = round(100 * start), min(round(100 * end), len(x))
            if phone not in ("SIL", "SPN") and 3 <= last - first <= 30:
                items.append(x[first:last])
                phones.append(phone)
                speakers.append(speaker)
    return abx(items, phones, speakers, most=most, seed=seed)


def speaker_probes(
    data: ProbeSet, frames: int, seed: int, *, in_time: bool = False
) -> list[ProbeResult]:
    """Linear, on the mean of each window of so many frames, and of each utterance.

    The penalty is chosen on training rows left out: whole utterances for the means of utterances;
    for windows these stand beside others of the same utterance, which favours weak penalties.

    Args:
        data: Speakers must be on both sides, or `in_time` set.
        frames: Of a window.
        seed: Of the folds.
        in_time: Train on the first three quarters of the windows of each utterance, test on the
            rest; an utterance of one window is trained on alone. This is *easier* than another
            recording: room and microphone are the same.

    Raises:
        ValueError: If a speaker that is tested was never trained.
    """
    windows, speakers, held_out, single = [], [], [], 0
    for x, speaker, test in zip(data.features, data.speakers, data.test, strict=True):
        parts = [x[i : i + frames].mean(0) for i in range(0, len(x) - frames + 1, frames)]
        single += len(parts) < 2
        windows += parts
        speakers += [speaker] * len(parts)
        # A recording of one window has no second to judge by: it is only trained on.
        last = [i >= max(1, 3 * len(parts) // 4) for i in range(len(parts))]
        held_out += last if in_time else [bool(test)] * len(parts)
    kinds = [("speakers, window", windows, speakers, held_out)]
    if not in_time:
        whole = [(x.mean(0), s, t) for x, s, t in zip(
            data.features, data.speakers, data.test, strict=True
        ) if len(x)]  # fmt: skip
        kinds.append(("speakers, utterance", *map(list, zip(*whole, strict=True))))  # type: ignore[arg-type]
    found = []
    for name, means, who, outside in kinds:
        x, y, test = np.stack(means), np.array(who), np.array(outside, dtype=bool)
        if unknown := set(y[test]) - set(y[~test]):
            raise ValueError(
                f"speaker {str(min(unknown))!r} is tested but never trained: identify speakers "
                "with a split by utterance, or in time"
            )
        result = linear_probe(x[~test], y[~test], x[test], y[test], seed=seed)
        notes = result.warnings
        if in_time and single:
            notes += (f"{single} of {len(data.speakers)} utterances have one window or none",)
        found.append(replace(result, probe=name, warnings=notes))
    return found


def _penalty(
    x: Float[np.ndarray, "n d"],
    y: Int64[np.ndarray, " n"],
    utterance: Int64[np.ndarray, " n"],
    seed: int,
) -> float:
    """The penalty of the most correct frames of utterances left out; ties to the strongest."""
    known = np.unique(utterance)
    generator = np.random.default_rng(seed)
    left_out = generator.permutation(known)[: max(1, len(known) // _EVERY)]
    outside = np.isin(utterance, left_out)
    if outside.all():
        return _GRID[len(_GRID) // 2]
    train, test = (
        generator.permutation(np.flatnonzero(side))[:_CHOICE_FRAMES] for side in (~outside, outside)
    )
    accuracies = [
        linear_probe(
            x[train], y[train], x[test], y[test], regularisation=penalty, tolerance=1e-2,
            max_iter=100,
        ).accuracy
        for penalty in _GRID
    ]  # fmt: skip
    return _GRID[int(np.argmax(accuracies))]

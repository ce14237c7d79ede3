"""What the speech experiments share: folder, presets, and the measurements of one network."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
from jaxtyping import Bool, Int64

from ...data.audio import Corpus, read_ids, read_phone_names
from ...models import SpeechNetwork
from ...runs import RunError
from ...settings import SettingsError
from ..images.resolve import found_device
from .build import load_corpus, resolve
from .features import FrameFeatures, context_features
from .labels import labels_of
from .probing import ProbeSet, phone_abx, phone_probe, speaker_probes, split_of
from .settings import TrainSpeech

__all__ = [
    "FIXED",
    "PRESETS",
    "SpeechFolder",
    "length_text",
    "measure",
    "network_text",
    "settings_of",
    "training_of",
]

FIXED: Final = ("mfcc13", "mfcc39")  # features without weights: one repetition is all there is

# Layout of a folder with recordings, labels and splits; the last four names are those under which
# labels and splits of LibriSpeech's 100 hours were published.
_RECORDINGS: Final = ("LibriSpeech", "train-clean-100_3spk.tar")
_MANY_SPEAKERS: Final = "train-clean-100_251spk_6s.tar"
_LABELS: Final = "converted_aligned_phones.txt"
_NAMES: Final = "phones.txt"
_TRAIN: Final = "train_split.txt"
_TEST: Final = "test_split.txt"

PRESETS: Final[dict[str, dict[str, Any]]] = {
    # configs/speech-cpu.yaml; a cell takes about 8 minutes of one core.
    "cpu": {
        "window": 20480, "frame_dim": 64, "context_dim": 64, "predictor": "linear",
        "temperature": 8.0, "batches": "any", "batch_size": 8, "epochs": 10.0,
        "learning_rate": 0.002, "device": "cpu",
    },
    # The published network with linear predictors, a seventh of the epochs, larger batches.
    "gpu": {"predictor": "linear", "batch_size": 32, "epochs": 30.0, "learning_rate": 4e-4},
    # Tsai et al. (2021) with the sizes of the code they build on.
    "paper": {},
}  # fmt: skip


@dataclass(frozen=True)
class SpeechFolder:
    """A folder with recordings in LibriSpeech's layout, phone labels, and a published split.

    Attributes:
        path: It holds ``LibriSpeech/`` (and tars of it), ``converted_aligned_phones.txt``,
            ``train_split.txt`` and ``test_split.txt``; ``phones.txt`` and a tar of many speakers
            are optional.
    """

    path: Path

    def __post_init__(self) -> None:
        for name in (_RECORDINGS[0], _LABELS, _TRAIN, _TEST):
            if not (self.path / name).exists():
                raise SettingsError(
                    f"--data {self.path} has no {name}; a speech folder holds {_RECORDINGS[0]}/, "
                    f"{_LABELS}, {_TRAIN} and {_TEST}"
                )

    @property
    def recordings(self) -> str:
        """The recordings, as the setting ``data`` names them."""
        places = [self.path / name for name in _RECORDINGS]
        return ",".join(str(place) for place in places if place.exists())

    @property
    def many_speakers(self) -> Path | None:
        """Short recordings of many speakers, if they are there."""
        place = self.path / _MANY_SPEAKERS
        return place if place.exists() else None

    @property
    def train_ids(self) -> Path:
        """The utterances of the training side."""
        return self.path / _TRAIN

    def phone_names(self) -> list[str] | None:
        """Names of the phones, if they are there."""
        place = self.path / _NAMES
        return list(read_phone_names(place)) if place.exists() else None

    def labels(self, corpus: Corpus) -> list[Int64[np.ndarray, " t"]]:
        """The phone labels of every utterance.

        Raises:
            RunError: If an utterance has none.
            ValueError: If it has too few or too many.
        """
        found = labels_of(self.path / _LABELS, corpus, corpus.rate // 100).each
        missing = [u.id for u, each in zip(corpus.utterances, found, strict=True) if each is None]
        if missing:
            raise RunError(f"{self.path / _LABELS} has no labels of {missing[0]}")
        return [each for each in found if each is not None]

    def both_sides(self, settings: TrainSpeech) -> tuple[Corpus, Bool[np.ndarray, " n"]]:
        """All utterances of the published split, and which are held out."""
        test = list(read_ids(self.path / _TEST))
        both = [*read_ids(self.train_ids), *test]
        corpus = load_corpus(settings, data=self.recordings, only=both)
        return corpus, split_of(corpus, "utterance", test)[0]


def settings_of(
    preset: Mapping[str, Any], objective: str, seed: int, folder: SpeechFolder, **given: Any
) -> TrainSpeech:
    """The resolved settings of one training: a preset, with what is given in its place."""
    values = {**preset, **given, "objective": objective, "seed": seed}
    return resolve(TrainSpeech(**values, data=folder.recordings, only=folder.train_ids))


def training_of(plan: Mapping[str, Any], **more: Any) -> TrainSpeech:
    """The settings that a cell's plan stands for, with `more` that no result depends on."""
    values = {key: value for key, value in plan.items() if key != "kind"}
    return TrainSpeech(**values, threads=1 if values.get("device") == "cpu" else None, **more)


def network_text(settings: TrainSpeech) -> str:
    """The network in words.

    Example:
        >>> network_text(TrainSpeech())
        '256 channels, LSTM, transformer predictors'
    """
    recurrent, predictor = settings.recurrent.upper(), settings.predictor
    return f"{settings.frame_dim} channels, {recurrent}, {predictor} predictors"


def length_text(settings: TrainSpeech) -> str:
    """How long the training is, in words.

    Example:
        >>> length_text(TrainSpeech()), length_text(TrainSpeech(steps=1500))
        ('200 epochs', '1,500 updates')
    """
    return f"{settings.steps:,} updates" if settings.steps else f"{settings.epochs:g} epochs"


def measure(
    network: SpeechNetwork | None,
    extract: FrameFeatures | None,
    settings: TrainSpeech,
    folder: SpeechFolder,
    *,
    abx_items: int = 5,
    only: Sequence[str] = (),
) -> dict[str, float]:
    """Accuracies of linear classifiers on frozen frames, and the ABX error.

    Args:
        network: Its contexts are measured, unless `extract` is given, on the device of `settings`.
        extract: Other features.
        settings: Of the training; the seed is that of the probes, too.
        folder: Where the recordings are.
        abx_items: Items of a phone and speaker at most.
        only: ("phones",) leaves out all else.
    """
    corpus, test = folder.both_sides(settings)
    if extract is None:
        assert network is not None
        device = found_device(settings.device)
        extract = context_features(
            network.to(device), settings.window, device, normalize=settings.normalize
        )
    frames, seed = settings.window // 160, settings.seed
    names: Sequence[str] = folder.phone_names() or [str(number) for number in range(41)]
    labels = folder.labels(corpus)
    data = ProbeSet.of(corpus, extract, test)
    found = {"phones": phone_probe(data, labels, names, seed).accuracy}
    if tuple(only) == ("phones",):
        return found
    for result in speaker_probes(data, frames, seed):
        found[result.probe] = result.accuracy
    found["abx"] = phone_abx(data, labels, names, abx_items, 0).error
    if folder.many_speakers is not None:
        many = load_corpus(replace(settings, only=None), data=str(folder.many_speakers))
        outside = np.zeros(len(many), bool)
        parts = ProbeSet.of(many, extract, outside)
        for result in speaker_probes(parts, frames, seed, in_time=True):
            found["many speakers"] = result.accuracy
    return found

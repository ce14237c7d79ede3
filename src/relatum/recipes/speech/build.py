"""From settings to recordings, networks and losses, wherever a speech run is made or rebuilt."""

from __future__ import annotations

import dataclasses
import hashlib
import inspect
import math
from pathlib import Path
from typing import Any, Literal, NamedTuple, cast

import torch

from ...critics import DotProduct
from ...data.audio import Corpus, Windows, cut_windows, list_sounds, open_corpus
from ...data.audio import read_ids as read_id_file
from ...data.audio import read_speakers as read_speaker_file
from ...distributed import ALONE, Group
from ...losses import ContrastiveLoss
from ...models import SpeechNetwork, SpeechSizes
from ...objectives import OBJECTIVES
from ...runs import Run, RunError
from ...settings import SettingsError, check_used, from_yaml
from ...training import load_checkpoint
from ..kinds import check_kind, kind_of
from .settings import TrainSpeech

__all__ = [
    "SpeechNetworks",
    "build_networks",
    "check_same_sounds",
    "data_card",
    "load_corpus",
    "load_windows",
    "read_settings",
    "resolve",
    "sizes_of",
    "trained_network",
]

# The published relative parameters on speech (Tsai et al. 2021): β = 0.25, scores divided by 16.
_BETA = 0.25
_RAW_DOT = ("rpc", "chi2")


class SpeechNetworks(NamedTuple):
    """What is trained: the network, and the loss with its critic."""

    network: SpeechNetwork
    loss: ContrastiveLoss


def resolve(settings: TrainSpeech) -> TrainSpeech:
    """The same settings with every open value decided, but for what the windows decide.

    Raises:
        SettingsError: If settings contradict each other.
    """
    if not settings.data:
        raise SettingsError("data is missing: name a folder or .tar of recordings by --data")
    known = inspect.signature(OBJECTIVES[settings.objective]).parameters
    given = {name: getattr(settings, name) for name in ("alpha", "beta", "gamma")}
    for name, value in given.items():
        if value is not None and name not in known:
            raise SettingsError(f"objective {settings.objective!r} has no parameter {name}")
    if settings.predictor != "transformer":
        names = "heads feedforward dropout" if settings.dropout else "heads feedforward"
        check_used(settings, names, "predictor transformer")
    if settings.penalty is not None and settings.objective != "wpc":
        raise SettingsError(f"penalty belongs to wpc; objective {settings.objective!r} has none")
    penalty = 10.0 if settings.objective == "wpc" and settings.penalty is None else settings.penalty
    defaults = {name: known[name].default for name in given if name in known}
    if settings.objective == "rpc":
        defaults["beta"] = _BETA
    decided = {name: given[name] if given[name] is not None else v for name, v in defaults.items()}
    width = settings.frame_dim
    natural = math.sqrt(width) if settings.objective in _RAW_DOT else float(width)
    try:
        sizes_of(settings)
    except ValueError as error:
        raise SettingsError(str(error)) from None
    temperature = settings.temperature or natural
    return dataclasses.replace(settings, temperature=temperature, penalty=penalty, **decided)


def sizes_of(settings: TrainSpeech) -> SpeechSizes:
    """The sizes of the network.

    Raises:
        ValueError: If they do not go together.
    """
    lists = {}
    for name in ("kernels", "strides", "paddings"):
        try:
            lists[name] = tuple(int(word) for word in getattr(settings, name).split(","))
        except ValueError:
            raise ValueError(
                f"{name} must be whole numbers with commas, got {getattr(settings, name)!r}"
            ) from None
    return SpeechSizes(
        **lists,
        channels=settings.frame_dim,
        context=settings.context_dim,
        recurrent=settings.recurrent,
        steps=settings.look_ahead,
        predictor=settings.predictor,
        heads=settings.heads,
        feedforward=settings.feedforward,
        dropout=settings.dropout,
    )


def build_networks(settings: TrainSpeech, group: Group = ALONE) -> SpeechNetworks:
    """New networks of a run, with the weights that its seed gives; settings must be resolved.

    Args:
        settings: Of the run.
        group: The processes that share its batches.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(settings.seed)
        network = SpeechNetwork(sizes_of(settings), settings.window)
    names = [name for name in ("alpha", "beta", "gamma") if getattr(settings, name) is not None]
    objective = OBJECTIVES[settings.objective](**{name: getattr(settings, name) for name in names})
    critic = DotProduct(settings.temperature or 1.0)
    return SpeechNetworks(network, ContrastiveLoss(objective, critic, group=group))


def load_corpus(
    settings: TrainSpeech, *, data: str | None = None, only: list[str] | None = None
) -> Corpus:
    """The recordings that the settings name, opened and checked.

    Args:
        settings: Of a run.
        data: Others instead, read in the same way.
        only: Their ids, all if None; without `data` those of the settings are used.
    """
    if data is None and settings.only is not None:
        only = read_id_file(settings.only)
    text = data or settings.data
    roots = [Path(text)] if Path(text).exists() else [Path(part) for part in text.split(",")]
    speakers = None if settings.speakers is None else read_speaker_file(settings.speakers)
    sounds, notes = list_sounds(roots, speakers=speakers, only=only)
    corpus = open_corpus(
        sounds,
        rate=settings.rate,
        channels=cast(Literal["mean", "first", "error"], settings.channels),
        on_bad_file=cast(Literal["error", "skip"], settings.on_bad_file),
        check=settings.check,
    )
    return dataclasses.replace(corpus, notes=(*notes, *corpus.notes))


def load_windows(settings: TrainSpeech) -> Windows:
    """The training windows."""
    windows = cut_windows(
        load_corpus(settings), settings.window, cast(Literal["skip", "pad"], settings.short)
    )
    notes = list(windows.notes)
    if settings.batches == "same_speaker":
        counts = windows.speaker.bincount()
        if "" in windows.corpus.speakers:
            raise SettingsError(
                "nobody says who speaks, so batches cannot be of one speaker: put the files of "
                "each speaker into a folder, name a table by --speakers, or use --batches any"
            )
        few = int((counts < settings.batch_size).sum())
        if few == len(counts):
            raise SettingsError(
                f"no speaker has batch_size {settings.batch_size} windows (the most are "
                f"{int(counts.max())}): use a smaller --batch-size or --batches any"
            )
        if few:
            notes.append(
                f"{few} of {len(counts)} speakers have fewer windows than batch_size "
                f"{settings.batch_size} and are not used; --batches any uses them"
            )
    return dataclasses.replace(windows, notes=tuple(notes))


def data_card(windows: Windows) -> dict[str, Any]:
    """What a run saw, enough to notice that the data have changed."""
    corpus = windows.corpus
    digest = hashlib.sha256()
    for utterance in corpus.utterances:
        digest.update(f"{utterance.id}|{utterance.speaker}|{utterance.frames}\n".encode())
    return {
        "source": "recordings",
        "utterances": len(corpus),
        "speakers": len(corpus.speakers),
        "minutes": corpus.seconds / 60,
        "windows": len(windows),
        "notes": [*corpus.notes, *windows.notes],
        "skipped": [{"id": each.id, "reason": each.reason} for each in corpus.skipped],
        "checksum": digest.hexdigest(),
    }


def check_same_sounds(run: Run, windows: Windows) -> None:
    """Refuses recordings that are not those the run was started on.

    Raises:
        RunError: If ids, speakers or lengths differ.
    """
    seen, now = run.read_json("data.json"), data_card(windows)
    if seen.get("checksum") != now["checksum"]:
        raise RunError(
            f"{run.path} was started on other recordings: {seen.get('utterances')} of "
            f"{seen.get('speakers')} speakers then, {now['utterances']} of {now['speakers']} now"
        )


def read_settings(run: Run) -> TrainSpeech:
    """The resolved settings of a run.

    Raises:
        RunError: If it is not one of `relatum train speech`.
    """
    check_kind(run, "train speech")
    if kind_of(run) is None:
        raise RunError(f"{run.path} is not a run of `relatum train speech`")
    return from_yaml(TrainSpeech, run.config_text, where=str(run.path / "config.yaml"))


def trained_network(run: Run) -> SpeechNetwork:
    """The network of a run's last checkpoint, on the CPU, in evaluation mode.

    Raises:
        RunError: If there is no readable checkpoint.
    """
    settings, state = read_settings(run), load_checkpoint(run.checkpoint)
    network = build_networks(settings).network
    network.load_state_dict(state["modules"]["network"])
    return network.eval()

"""``relatum probe speech``: phones and speakers from frozen frames, beside MFCC and no training."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Int64
from rich.console import Console

from ..data.audio import PHONES, Corpus, read_ids, read_phone_names
from ..models import SpeechNetwork
from ..probes import ABXResult, ProbeResult, ProtocolCard, parameter_hash
from ..runs import Run, RunError, atomic_write
from ..settings import POSITIONAL, check_choices, choice
from .images.resolve import found_device
from .speech import (
    TrainSpeech,
    build_networks,
    load_corpus,
    read_settings,
    sizes_of,
    trained_network,
)
from .speech.excerpt import Excerpt
from .speech.features import FrameFeatures, context_features, mfcc_features
from .speech.labels import labelled
from .speech.probing import ProbeSet, phone_abx, phone_probe, speaker_probes, split_of
from .tables import probe_table

__all__ = ["ProbeSpeech", "main"]

SPLITS = ("utterance", "speaker", "time")


@dataclass(frozen=True)
class ProbeSpeech:
    """Measure what frozen frames say of phones and speakers, beside MFCC and an untrained network.

    Phones: a linear classifier on every frame. Speakers: a linear classifier on the mean of each
    window and of each utterance. ABX: how often a phone is nearer to another phone than to its own
    kind. Nothing is chosen on held-out recordings. One held-out utterance is kept to be heard and
    seen: RUN/results/utterance.flac, and `relatum report RUN`.

    Example: relatum probe speech runs/rpc runs/cpc --data LibriSpeech --labels phones41.txt
    --held-out test_split.txt
    """

    runs: list[Path] = field(metadata=POSITIONAL)
    """Run directories of `relatum train speech`; runs of one call share the baselines."""

    data: str | None = None
    """Recordings to probe on, as in `relatum train speech --data`. Default: those of the run, with
    those that --only kept out of training."""

    labels: Path | None = None
    """Phone labels, one utterance a line: id, then a number from 0 to 40 for each 10 ms. Without
    them only speakers are probed."""

    phones: Path | None = None
    """Names of the phones, lines of number and name. Default: the numbers."""

    split: str = choice("utterance", SPLITS)
    """utterance = whole utterances are held out, of all speakers; speaker = whole speakers (no
    speaker probe then); time = the last quarter of each recording (speakers alone; easier than
    another recording, since room and microphone are the same)."""

    held_out: Path | None = None
    """File with the held-out utterance ids, or speakers, one a line. Default: every fifth."""

    abx_items: int = 5
    """ABX: items of a phone and speaker at most; 0 leaves it out. It needs --labels."""

    device: str = "cpu"
    """Where features are computed: auto (cuda where there is one, else cpu), cpu, cuda or cuda:1.
    """

    def __post_init__(self) -> None:
        check_choices(self)
        if self.abx_items < 0 or self.abx_items == 1:
            raise ValueError(f"abx_items must be 0 or at least 2, got {self.abx_items}")
        if not self.runs:
            raise ValueError("name at least one run directory")
        if self.split == "time" and (self.labels or self.held_out):
            raise ValueError("split time is for speakers alone: leave out --labels and --held-out")
        if self.split == "speaker" and not self.labels:
            raise ValueError("split speaker needs --labels: speakers held out cannot be identified")


class Measured(NamedTuple):
    """What was found of one kind of features, and how many recordings are too short for a frame.

    Of an encoder also what the report draws.
    """

    results: list[ProbeResult]
    abx: ABXResult | None
    short: int
    excerpt: dict[str, Any] | None


class Material(NamedTuple):
    """What is probed: recordings, which are held out, and their labels."""

    corpus: Corpus
    test: Bool[np.ndarray, " n"]
    how: str
    labels: list[Int64[np.ndarray, " t"]] | None
    names: Sequence[str]


def main(settings: ProbeSpeech, console: Console | None = None) -> list[dict[str, Any]]:
    """Probes every run, stores ``results/probe.json`` in it, prints one table.

    Returns:
        The payload of each run's result.

    Raises:
        RunError: If a run is missing, has no checkpoint, or is not of speech.
        ValueError: If recordings and labels do not fit, or held-out ones were trained on.
    """
    console = console or Console()
    settings = replace(settings, device=found_device(settings.device))
    runs = [Run.open(path) for path in settings.runs]
    trained = [read_settings(run) for run in runs]
    for run in runs:
        if not run.checkpoint.is_file():
            raise RunError(f"{run.path} has no checkpoint {run.checkpoint}; start training")
    shared: dict[tuple[object, ...], Measured] = {}
    materials: dict[tuple[object, ...], Material] = {}
    payloads = []
    for run, own in zip(runs, trained, strict=True):
        key = (settings.data or own.data, own.rate, own.channels, own.window, own.strides)
        if key not in materials:
            materials[key] = _material(settings, own)
            for remark in materials[key].corpus.notes:
                console.out(f"note: {remark}", highlight=False)
        for remark in _seen_in_training(own, materials[key]):
            console.out(f"note: {run.path}: {remark}", highlight=False)
        payloads.append(_probe_run(run, own, settings, materials[key], key, shared))
        errors = payloads[-1]["abx"]
        shown = ", ".join(f"{name} {100 * each['error']:.1f} %" for name, each in errors.items())
        told = f"; ABX error (50 % is chance): {shown}" if shown else ""
        console.out(f"probed {run.path}{told}", highlight=False)
    console.print(probe_table(settings.runs))
    return payloads


def _material(settings: ProbeSpeech, own: TrainSpeech) -> Material:
    everything = replace(own, only=None)
    corpus = load_corpus(everything, data=settings.data)
    labels = None
    if settings.labels is not None:
        corpus, labels = labelled(settings.labels, corpus, sizes_of(own).hop)
    names = (
        [str(i) for i in range(PHONES)]
        if settings.phones is None
        else read_phone_names(settings.phones)
    )
    if settings.split == "time":
        test, how = np.zeros(len(corpus), bool), "the last quarter of the windows of each recording"
    else:
        held_out = None if settings.held_out is None else read_ids(settings.held_out)
        test, how = split_of(corpus, settings.split, held_out)
    return Material(corpus, test, how, labels, names)


def _seen_in_training(own: TrainSpeech, material: Material) -> list[str]:
    """What a reader should know: whether the encoder heard the held-out recordings."""
    only = None if own.only is None else set(read_ids(own.only))
    ids = [u.id for u, test in zip(material.corpus.utterances, material.test, strict=True) if test]
    seen = len(ids) if only is None else len(only & set(ids))
    if not seen:
        return []
    return [f"up to {seen} of {len(ids)} held-out recordings were in pre-training (without labels)"]


def _probe_run(
    run: Run,
    own: TrainSpeech,
    settings: ProbeSpeech,
    material: Material,
    key: tuple[object, ...],
    shared: dict[tuple[object, ...], Measured],
) -> dict[str, Any]:
    network = trained_network(run).to(settings.device)
    fresh = build_networks(own).network.to(settings.device)
    size = (own.frame_dim, own.context_dim, own.recurrent, own.kernels, own.strides, own.paddings)
    kinds: dict[str, tuple[tuple[object, ...], FrameFeatures, SpeechNetwork | None]] = {
        "encoder": ((str(run.path),), _contexts(network, own, settings), network),
        "untrained": (("untrained", own.seed, *size), _contexts(fresh, own, settings), fresh),
        "mfcc": (("mfcc",), mfcc_features(), None),
        "mfcc13": (("mfcc13",), mfcc_features(slopes=False), None),
    }
    rows, cards, errors = [], {}, {}
    notes = [*material.corpus.notes, *_seen_in_training(own, material)]
    for name, (mine, extract, module) in kinds.items():
        before = None if module is None else parameter_hash(module)
        if (*key, *mine) not in shared:
            shared[(*key, *mine)] = _measure(
                extract, material, own, settings, drawn=name == "encoder"
            )
        found = shared[(*key, *mine)]
        after = None if module is None else parameter_hash(module)
        rows += [{"features": name, **result.to_dict()} for result in found.results]
        if found.excerpt is not None:
            _write_excerpt(run, found.excerpt)
            if found.short:
                notes.insert(0, f"{found.short} recordings are too short for a frame")
        if found.abx is not None:
            errors[name] = asdict(found.abx)
        dim = {"mfcc": 39, "mfcc13": 13}.get(name, own.context_dim)
        cards[name] = _card(name, (before, after), dim, material, found.results).to_dict()
    payload = {
        "abx": errors,
        "card": cards["encoder"], "cards": cards, "rows": rows, "notes": notes,
    }  # fmt: skip
    run.write_result("probe", "probe", payload)
    return payload


def _write_excerpt(run: Run, excerpt: dict[str, Any]) -> None:
    """For the report, and beside it as a file to listen to."""
    run.write_result("utterance", "utterance", excerpt)
    sound = base64.b64decode(excerpt["sound"])
    atomic_write(run.path / "results" / "utterance.flac", sound)


def _contexts(network: SpeechNetwork, own: TrainSpeech, settings: ProbeSpeech) -> FrameFeatures:
    return context_features(network, own.window, settings.device, normalize=own.normalize)


def _measure(
    extract: FrameFeatures,
    material: Material,
    own: TrainSpeech,
    settings: ProbeSpeech,
    *,
    drawn: bool,
) -> Measured:
    data = ProbeSet.of(material.corpus, extract, material.test)
    found, errors, in_time = [], None, settings.split == "time"
    excerpt = Excerpt.of(material.corpus, material.test)
    record = excerpt.record(data.features[excerpt.number]) if drawn else None
    if material.labels is not None:
        phones = phone_probe(data, material.labels, material.names, own.seed, keep_scores=drawn)
        found.append(replace(phones, scores=None))
        if record is not None:
            lengths = [len(each) for each in data.features]
            record |= excerpt.phones(phones, data.test, material.labels, lengths, material.names)
        if settings.abx_items:
            # One draw for all runs: they are compared.
            errors = phone_abx(data, material.labels, material.names, settings.abx_items, 0)
    trained = {s for s, test in zip(data.speakers, data.test, strict=True) if not test}
    if in_time or trained == set(data.speakers):
        found += speaker_probes(data, own.window // 160, own.seed, in_time=in_time)
    short = sum(not len(each) for each in data.features)
    return Measured(found, errors, short, record)


def _card(
    name: str,
    fingerprints: tuple[str | None, str | None],
    dim: int,
    material: Material,
    results: Sequence[ProbeResult],
) -> ProtocolCard:
    layers = {
        "encoder": "contexts of the recurrent network",
        "untrained": "the same layer of the same network before training",
        "mfcc": "13 MFCC with slopes and their slopes",
        "mfcc13": "13 MFCC",
    }
    grids = [result.settings.get("regularisation_grid") or () for result in results]
    return ProtocolCard(
        encoder_hash_before=fingerprints[0],
        encoder_hash_after=fingerprints[1],
        layer=layers[name],
        feature_dim=dim,
        preprocessing=f"{material.corpus.rate} Hz, windows of the length of training",
        batch_norm="none",
        split=material.how,
        standardisation="mean and deviation of the training rows",
        regularisation_grid=tuple(next((grid for grid in grids if grid), ())),
        regularisation_choice="phones: most correct frames of training utterances left out; "
        "speakers: most correct training rows left out (of windows: beside others of the same "
        "utterance)",
        seeds=tuple(sorted({result.seed for result in results})),
        n_train=int((~material.test).sum()),
        n_test=int(material.test.sum()),
    )

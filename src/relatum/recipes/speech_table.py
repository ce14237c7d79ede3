"""``relatum reproduce speech-table``: what the paper says of speech, measured again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Final

from rich.console import Console

from ..data.audio import cut_windows
from ..runs import RunError
from ..settings import choice
from .experiments.cells import Cell, Record
from .experiments.data import found_data
from .experiments.running import reproduce
from .experiments.settings import Experiment
from .images.resolve import found_device
from .speech import TrainSpeech, build_networks, load_corpus, trained_network
from .speech.experiment import FIXED, PRESETS, SpeechFolder, measure, settings_of, training_of
from .speech.features import mfcc_features
from .speech.supervised import train_supervised
from .speech.table_page import write_table_page
from .train_speech import main as train_speech
from .train_speech import plan_of

__all__ = ["DEFAULTS", "FREE", "SpeechTable", "main", "run_cell"]

OBJECTIVES: Final = ("rpc", "cpc", "js")
SUPERVISED: Final = ("supervised-phones", "supervised-speakers")

# With labels at the rate of the objectives, kept to the end, one seed of two got no further than
# 37 % of its own batches of speakers; so they have half of it, falling, and gradients that are cut.
# A batch of one speaker would say nothing of who speaks.
_WITH_LABELS: Final = {"schedule": "cosine", "gradient_clip": 1.0, "batches": "any"}

DEFAULTS: Final = asdict(TrainSpeech())

# Settings that a result does not depend on.
FREE: Final = set(
    "data only out resume dry_run log_every checkpoint_every tensorboard check threads".split()
)


@dataclass(frozen=True)
class SpeechTable(Experiment):
    """Phones and speakers from frozen frames of RPC, CPC and JS, beside four baselines.

    The baselines: the same network trained with labels, the same network untrained, and 13 and 39
    MFCC. Every number is a linear classifier on frozen frames of held-out utterances.

    Example: relatum reproduce speech-table --preset cpu --page speech_table.md
    """

    preset: str = choice("cpu", PRESETS)
    """cpu: 64 channels, linear predictors, 10 epochs of half an hour of sound, about 70
    core-minutes on a quiet machine, 112 beside other work. gpu: the published network with linear
    predictors, 30 epochs, hours on one device. paper: the published sizes and 200 epochs of
    LibriSpeech's 100 hours, days."""

    data: Path | None = None
    """Folder with LibriSpeech/, converted_aligned_phones.txt, train_split.txt and test_split.txt.
    Default: speech in the folder $RELATUM_DATA, else in data or ../shared/data."""


def main(settings: SpeechTable, console: Console | None = None) -> dict[str, Record]:
    """Runs what is missing, prints the table, writes the page.

    Returns:
        The records of the finished cells, by name.

    Raises:
        SettingsError: If the data are not there.
        RunError: If the folder holds cells with other settings.
        ValueError: If no cell has such a name.
    """
    folder = SpeechFolder(found_data(settings.data, "speech"))
    every = cells_of(settings, folder)
    work = partial(run_cell, data=folder.path)
    return reproduce(settings, "speech-table", every, work, write_table_page, console)


def cells_of(settings: SpeechTable, folder: SpeechFolder) -> list[Cell]:
    """All cells, seeds outermost."""
    preset = {"device": found_device("auto"), **PRESETS[settings.preset]}
    found = []
    for seed in range(settings.seeds):
        kinds = [*OBJECTIVES, *SUPERVISED, "untrained", *(FIXED if seed == 0 else ())]
        for kind in kinds:
            objective = kind if kind in OBJECTIVES else "cpc"
            own = preset
            if kind in SUPERVISED:
                rate = preset.get("learning_rate", DEFAULTS["learning_rate"]) / 2
                own = {**preset, **_WITH_LABELS, "learning_rate": rate}
            resolved = settings_of(own, objective, seed, folder, **settings.given())
            plan = {key: v for key, v in asdict(resolved).items() if key not in FREE}
            trained = kind in OBJECTIVES or kind in SUPERVISED
            steps = resolved.steps or round(157 * resolved.epochs)  # a share of the bar, no more
            found.append(
                Cell(f"{kind}-{seed}", {"kind": kind, **plan}, steps if trained else 0, DEFAULTS)
            )
    return found


def run_cell(
    cell: Cell, folder: Path, console: Console, *, data: Path, only: Sequence[str] = ()
) -> Record:
    """Trains where there is something to train, and measures (`only` some, if they are named)."""
    speech = SpeechFolder(data)
    settings = training_of(cell.plan, data=speech.recordings, only=speech.train_ids, log_every=50)
    kind = str(cell.plan["kind"])
    if kind in FIXED:
        found = measure(None, mfcc_features(slopes=kind == "mfcc39"), settings, speech, only=only)
        return {"measures": found}
    if kind == "untrained":
        return {
            "measures": measure(
                build_networks(settings).network.eval(), None, settings, speech, only=only
            )
        }
    if kind in SUPERVISED:
        network = _supervised(kind, settings, cell.run(folder), console, speech)
        return {"measures": measure(network, None, settings, speech, only=only)}
    out = cell.run(folder)
    begun = (out / "config.yaml").exists()
    run = train_speech(replace(settings, out=out, resume=begun), console)
    if run is None:
        raise RunError(f"{out} was not trained")
    training = run.read_json("results/training.json")["payload"]
    last = run.metrics()[-1]
    kept: Mapping[str, Any] = {
        "seconds": training["seconds"], "steps": training["steps"],
        "audio_seconds_per_second": training["audio_seconds_per_second"],
        **{name: last.get(name) for name in ("contrastive_accuracy", "accuracy_first", "mi")},
    }  # fmt: skip
    return {
        "measures": measure(trained_network(run), None, settings, speech, only=only),
        "training": kept,
    }


def _supervised(
    kind: str, settings: TrainSpeech, out: Path, console: Console, folder: SpeechFolder
) -> Any:
    corpus = load_corpus(settings)
    windows = cut_windows(corpus, settings.window, "skip")
    labels = folder.labels(corpus) if kind == "supervised-phones" else None
    return train_supervised(settings, plan_of(settings, windows), windows, labels, out, console)

"""The page of ``relatum reproduce speech-table``."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from ...probes import paired_difference
from ..experiments.cells import Record
from ..experiments.page import origin, table, write_page
from ..experiments.seeds import accuracy, by_seed, shared, values
from ..experiments.statistics import gain
from .experiment import FIXED, length_text, network_text, training_of

__all__ = ["write_table_page"]

_ROWS: Final = {
    "rpc": "RPC", "cpc": "CPC", "js": "JS",
    "supervised-phones": "supervised, by phones",
    "supervised-speakers": "supervised, by speakers",
    "untrained": "untrained network", "mfcc39": "39 MFCC", "mfcc13": "13 MFCC",
}  # fmt: skip
_COLUMNS: Final = {
    "phones": "phones, %",
    "speakers, window": "speaker of a window, %",
    "speakers, utterance": "speaker of an utterance, %",
    "many speakers": "one of 251 speakers, in time, %",
    "abx": "ABX error, %",
}
# Table 3 of the paper: phones and speakers, in percent.
_PUBLISHED: Final = {
    "cpc": ("64.6", "97.4"), "rpc": ("69.39", "97.68"), "supervised": ("74.6", "98.5"),
}  # fmt: skip
_PAPER_GAIN: Final = {"phones": 0.048, "speakers, window": 0.003}  # RPC minus CPC

# What is compared: a minus b, by a measure.
_PAIRS: Final = (
    ("rpc", "untrained", "phones"), ("cpc", "untrained", "phones"), ("rpc", "cpc", "phones"),
    ("rpc", "cpc", "speakers, window"), ("js", "cpc", "phones"), ("rpc", "mfcc13", "phones"),
    ("rpc", "mfcc39", "phones"), ("cpc", "mfcc13", "phones"), ("cpc", "mfcc39", "phones"),
)  # fmt: skip

_PROTOCOL: Final = """\
Networks ({network}; batches of {batch} windows of {seconds:g} s, {whose}; {length}) are trained \
on the training side of the published-style split alone, without labels but for the two supervised \
rows, and then frozen. Every number is a linear classifier on the contexts, fitted on the training \
side and judged once on held-out utterances: *phones* on every frame of 10 ms (41 classes), \
*speakers* on the mean of a window and of a whole utterance. Its penalty is chosen on training \
rows left out: whole utterances for phones and for speakers of utterances; for speakers of windows \
single windows, beside others of the same utterance, which favours weak penalties. Every speaker \
is on both sides, in other utterances. *One of 251 speakers, in time*: six seconds of each, the \
first three windows train and the last is judged. That is easier than another recording would be: \
room and microphone are the same. ABX: how often a phone is nearer to another phone than to its \
own kind, of one speaker; 50 % is chance. The supervised networks have the same encoder and \
context network, {share}; one is trained on phones and one on the speakers of the training side, \
at half the rate of the objectives, along a cosine, with gradients clipped at norm 1 (with preset \
cpu at the whole rate, kept to the end, one seed of two did not fit its own training speakers; no \
other was tried). Mean ± half width of the 95 % t-interval over seeds of the training; MFCC have \
none. Differences are over the seeds that both have."""

Values = Mapping[str, Mapping[str, dict[int, float]]]


def write_table_page(
    records: Mapping[str, Record], *, page: Path | None, command: str, jobs: int
) -> str:
    """Writes the page if one is asked for; returns its table and findings as text."""
    found = by_seed(records)
    shown = table(
        ["features", *_COLUMNS.values()],
        [[title, *(accuracy(found.get(kind, {}), name) for name in _COLUMNS)]
         for kind, title in _ROWS.items()],
    )  # fmt: skip
    measured = {
        kind: {name: values(found.get(kind, {}), name) for name in _COLUMNS} for kind in _ROWS
    }
    findings = "\n".join(f"* {line}" for line in _findings(measured))
    if page is not None:
        sections = [
            "# Speech: the paper's table, measured again",
            origin(command, records, jobs),
            _protocol(records),
            "## What was found",
            findings,
            "## The table",
            shown,
            "## Training",
            _training(records),
            "## What was published",
            _published(),
        ]
        write_page(page, sections, command, records, values=measured)
    return f"{shown}\n\n{findings}"


def _protocol(records: Mapping[str, Record]) -> str:
    """What was trained and measured, by the plan of an objective where one is finished."""
    plans = [record["plan"] for record in records.values()]
    plans.sort(key=lambda plan: plan["kind"] != plan["objective"])
    settings = training_of(plans[0])
    one = settings.batches == "same_speaker"
    share = "the same updates and batches"
    if one:  # which say nothing of who speaks; and any windows fill more batches
        number = "updates" if settings.steps else "epochs"
        share = f"as many {number}, but batches of any speakers"
    return _PROTOCOL.format(
        network=network_text(settings),
        batch=settings.batch_size,
        seconds=settings.window / settings.rate,
        whose="all of one speaker" if one else "of any speakers",
        length=length_text(settings),
        share=share,
    )


def _findings(measured: Values) -> list[str]:
    """One sentence each: the claim, the paired difference, and whether its sign is clear."""
    lines = []
    for a, b, name in _PAIRS:
        mine, other = _paired(measured, a, b, name)
        if not mine:
            continue
        difference = paired_difference(mine, other)
        clear = "clear" if difference.excludes_zero else "not clear at these seeds"
        what = "phones" if name == "phones" else "speakers (window)"
        line = (
            f"{_ROWS[a]} minus {_ROWS[b]}, {what}: {gain(mine, other)} points; the sign is {clear}."
        )
        if (a, b) == ("rpc", "cpc"):
            published = _PAPER_GAIN[name]
            line += f" The paper has {100 * published:+.1f}"
            if not math.isnan(difference.low):
                inside = difference.low <= published <= difference.high
                line += f", {'inside' if inside else 'outside'} this interval"
            line += "."
        lines.append(line)
    return lines


def _paired(measured: Values, a: str, b: str, name: str) -> tuple[list[float], list[float]]:
    """The values of the seeds that both have; features without weights are those of any seed."""
    mine, other = measured[a][name], measured[b][name]
    if b in FIXED:
        other = {seed: value for value in other.values() for seed in mine}
    return shared(mine, other)


def _training(records: Mapping[str, Record]) -> str:
    header = [
        "cell", "updates", "seconds", "sound a second, s", "positive first, %", "one ahead, %",
    ]  # fmt: skip
    rows = []
    for name, record in records.items():
        if (found := record.get("training")) is not None:
            shares = [found.get(key) for key in ("contrastive_accuracy", "accuracy_first")]
            rows.append([
                name, f"{found['steps']:,}", f"{found['seconds']:.0f}",
                f"{found['audio_seconds_per_second']:.0f}",
                *("" if share is None else f"{100 * share:.1f}" for share in shares),
            ])  # fmt: skip
    if not rows:
        return "No training is finished."
    candidates = 1 + training_of(next(iter(records.values()))["plan"]).negatives
    text = f"Of {candidates} candidates, in the last batch, over all look-aheads and one frame"
    return f"{text} ahead.\n\n{table(header, rows)}"


def _published() -> str:
    rows = [[name, *numbers] for name, numbers in _PUBLISHED.items()]
    text = (
        "Table 3 of the paper, LibriSpeech's 100 hours. Its CPC and supervised rows equal those of "
        "an earlier paper with another network (512 channels, GRU), so that it compares networks "
        "along with objectives; its code was not published, and the evaluation that it builds on "
        "chose the best epoch on the test list and divided by one batch too few. The numbers above "
        "compare objectives within one network, on the sound that --data holds (the paper's if it "
        "is all 100 hours), and share nothing with these but the question."
    )
    return f"{text}\n\n{table(['', 'phones, %', 'speakers, %'], rows)}"

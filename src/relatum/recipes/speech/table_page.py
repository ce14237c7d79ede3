"""The page of ``relatum reproduce speech-table``."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from ...probes import paired_difference
from ..experiments.cells import Record
from ..experiments.page import origin, table, write_page
from ..experiments.statistics import gain, level

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
_PAPER_GAIN: Final = 0.048

_PROTOCOL: Final = """\
Networks are trained on the training side of the published-style split alone, without labels but \
for the two supervised rows, and then frozen. Every number is a linear classifier on the \
contexts, fitted on the training side, its penalty chosen on training utterances left out, judged \
once on held-out utterances: *phones* on every frame of 10 ms (41 classes), *speakers* on the \
mean of a window of 1.28 s and of a whole utterance. Every speaker is on both sides, in other \
utterances. *One of 251 speakers, in time*: six seconds of each, the first three windows train \
and the last is judged. That is easier than another recording would be: room and microphone are \
the same. ABX: how often a phone is nearer to another phone than to its own kind, of one speaker; \
50 % is chance. The supervised networks have the same encoder and context network, the same \
updates and batches; one is trained on phones and one on the speakers of the training side, at \
half the rate of the objectives, along a cosine, with gradients clipped at norm 1 (at the whole \
rate, kept to the end, one seed of two did not fit its own training speakers; no other was \
tried). Mean ± half width of the 95 % t-interval over seeds of the training; MFCC have none."""


def write_table_page(
    records: Mapping[str, Record], *, page: Path | None, command: str, jobs: int
) -> str:
    """Writes the page if one is asked for; returns its table and findings as text."""
    values = {kind: {name: _values(records, kind, name) for name in _COLUMNS} for kind in _ROWS}
    shown = table(
        ["features", *_COLUMNS.values()],
        [[title, *(level(values[kind][name]) for name in _COLUMNS)]
         for kind, title in _ROWS.items()],
    )  # fmt: skip
    findings = "\n".join(f"* {line}" for line in _findings(values))
    if page is not None:
        sections = [
            "# Speech: the paper's table, measured again",
            origin(command, records, jobs),
            _PROTOCOL,
            "## What was found",
            findings,
            "## The table",
            shown,
            "## Training",
            _training(records),
            "## What was published",
            _published(),
        ]
        write_page(page, sections, command, records, values=values)
    return f"{shown}\n\n{findings}"


def _values(records: Mapping[str, Record], kind: str, name: str) -> list[float]:
    """Over seeds, in their order."""
    cells = sorted(cell for cell in records if cell.rpartition("-")[0] == kind)
    found = [records[cell]["measures"].get(name) for cell in cells]
    return [float(value) for value in found if value is not None]


def _findings(values: Mapping[str, Mapping[str, list[float]]]) -> list[str]:
    """One sentence each: the claim, the paired difference, and whether its sign is clear."""
    pairs = [
        ("rpc", "untrained", "phones"), ("cpc", "untrained", "phones"),
        ("rpc", "cpc", "phones"), ("rpc", "cpc", "speakers, window"), ("js", "cpc", "phones"),
    ]  # fmt: skip
    lines = []
    for a, b, name in pairs:
        mine, other = values[a][name], values[b][name]
        if not mine or len(mine) != len(other):
            continue
        difference = paired_difference(mine, other)
        clear = "clear" if difference.excludes_zero else "not clear at these seeds"
        what = "phones" if name == "phones" else "speakers (window)"
        line = (
            f"{_ROWS[a]} minus {_ROWS[b]}, {what}: {gain(mine, other)} points; the sign is {clear}."
        )
        if (a, b) == ("rpc", "cpc"):
            line += f" The paper has {'+4.8' if name == 'phones' else '+0.3'}."
        if (a, b, name) == ("rpc", "cpc", "phones"):
            inside = difference.low <= _PAPER_GAIN <= difference.high
            line += f" Its gain is {'inside' if inside else 'outside'} this interval."
        lines.append(line)
    for kind in ("rpc", "cpc"):
        mine = values[kind]["phones"]
        for base in ("mfcc13", "mfcc39"):
            other = values[base]["phones"]
            if mine and other:
                points = 100 * (sum(mine) / len(mine) - other[0])
                side = "above" if points > 0 else "below"
                lines.append(
                    f"{_ROWS[kind]} is {abs(points):.1f} points {side} {_ROWS[base]} on phones "
                    f"({100 * other[0]:.1f} %)."
                )
    return lines


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
    text = "Of 129 candidates, in the last batch, over all look-aheads and one frame ahead."
    return f"{text}\n\n{table(header, rows)}" if rows else "No training is finished."


def _published() -> str:
    rows = [[name, *numbers] for name, numbers in _PUBLISHED.items()]
    text = (
        "Table 3 of the paper, LibriSpeech's 100 hours. Its CPC and supervised rows equal those of "
        "an earlier paper with another network (512 channels, GRU), so that it compares networks "
        "along with objectives; its code was not published, and the evaluation that it builds on "
        "chose the best epoch on the test list and divided by one batch too few. The numbers above "
        "compare objectives within one network, on another amount of sound, and share nothing with "
        "these but the question."
    )
    return f"{text}\n\n{table(['', 'phones, %', 'speakers, %'], rows)}"

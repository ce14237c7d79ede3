"""From run directories to one HTML file that can be mailed: no script, no link, no network."""

from __future__ import annotations

import base64
import binascii
import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from ..runs import RunError, atomic_write
from . import figures, tables, words
from .certificate_page import certificate_view
from .drawing import SLOTS
from .finetuning import tuned_blocks
from .mi_words import amount
from .reading import Group, RunRecord, group, last, number, open_records
from .speech import utterance_view

__all__ = ["render"]

_MAIN_CURVES = list(figures.CURVES)[:5]
_PNG = b"\x89PNG\r\n\x1a\n"
_SHOWN_KINDS = set(
    "certificate classes probe training embedding-map neighbours utterance finetune".split()
)
_WORDS = {
    "signs": {"above": "▲", "below": "▼", "unclear": "≈", "single": "·"},
    "meanings": {
        "above": "above by more than the interval",
        "below": "below by more than the interval",
        "unclear": "the interval holds zero",
        "single": "one pair, no interval",
    },
    "levels": {"bad": "alarm", "warn": "warning", "good": "fine"},
    "dashes": ["", "7 3", "3 1.5", "8 3 1.5 3"],
    "slots": SLOTS,
}


class TrainingRow(NamedTuple):
    """How training ended, over the runs of one group."""

    group: Group
    loss: tables.Interval | None
    mi: tables.Interval | None
    ceiling: tables.Interval | None
    accuracy: tables.Interval | None
    rank: tables.Interval | None
    steps: tables.Interval | None
    seconds: tables.Interval | None
    nonfinite: int


def render(runs: Sequence[Path | str], out: Path | str) -> Path:
    """Writes the report of `runs` as one self-contained HTML file.

    Runs that differ only in their seed are averaged as repeats. A result that has not been made
    yet is named on the page together with the command that makes it.

    Args:
        runs: Run directories, at least one.
        out: The file to write; an existing one is replaced atomically.

    Returns:
        `out`, as a path.

    Raises:
        RunError: If a directory is not a run, or holds a file that is not what its name says.
    """
    records = open_records(runs)
    environment = Environment(
        loader=PackageLoader("relatum.report", "."),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals.update(_WORDS)
    environment.filters.update(
        show=_show,
        listing=words.listing,
        percent=lambda cell, signed: _parts(words.percent(cell, signed=signed)),
        measure=lambda cell, digits: _parts(_measure(cell, digits)),
        standing=tables.standing,
        amount=amount,
        similarity=lambda item: f"{number(item.get('similarity')):.2f}".replace("-", words.MINUS),
    )
    css = (Path(__file__).parent / "page.css").read_text(encoding="utf-8")
    page = environment.get_template("page.html.j2").render(css=Markup(css), **_context(records))
    out = Path(out)
    atomic_write(out, page.encode())
    return out


def _context(records: Sequence[RunRecord]) -> dict[str, Any]:
    groups = group(records)
    data = list(dict.fromkeys(g.data for g in groups))
    objectives = list(dict.fromkeys(g.objective for g in groups))
    losses = [(g, figures.loss_figure(g, f"loss{g.slot}")) for g in groups]
    maps = [(g, _map(g)) for g in groups]
    neighbours = [(g, _neighbours(g)) for g in groups]
    return {
        "title": f"{words.listing(objectives)} on {words.listing(data)}",
        "groups": groups,
        "runs": [(g, run) for g in groups for run in g.runs],
        "verdict": words.verdict(groups),
        "notes": [*words.protocol_notes(groups), *words.notes(groups)],
        "unprobed": [run.name for run in records if not run.probe_rows and _has_images(run)],
        "unheard": [
            run.name for run in records if _has_sounds(run) and not run.result("utterance")
        ],
        "blocks": [_block([g for g in groups if g.data == name], i) for i, name in enumerate(data)],
        "tuned": tuned_blocks(groups),
        "training": [_training_row(g) for g in groups],
        "losses": [(g, _has_start(g), Markup(drawing)) for g, drawing in losses if drawing],
        "curves": _curves(groups, _MAIN_CURVES),
        "more_curves": _curves(groups, [k for k in figures.CURVES if k not in _MAIN_CURVES]),
        "maps": [(g, found) for g, found in maps if found],
        "unmapped": [r.name for g, found in maps if not found for r in g.runs if _has_images(r)],
        "neighbours": [(g, found) for g, found in neighbours if found],
        "unseen": [
            r.name for g, found in neighbours if not found for r in g.runs if _has_images(r)
        ],
        "images": any(map(_has_images, records)),
        "sounds": any(map(_has_sounds, records)),
        "utterances": [
            (g, run, utterance_view(found, run.name, f"utterance{g.slot}"))
            for g in groups
            for run in _first_with(g, "utterance")
            if (found := run.result("utterance")) is not None
        ],
        "classes": [
            (g, run, found) for g in groups for run in g.runs if (found := run.result("classes"))
        ],
        "certificates": [
            (g, run, certificate_view(found, f"certificate{g.slot}-{i}"))
            for g in groups
            for i, run in enumerate(g.runs)
            if (found := run.result("certificate")) is not None
        ],
        "card": _card(records),
        "other": {run.name: _other(run) for run in records},
    }


def _has_images(run: RunRecord) -> bool:
    """Whether the run is one whose images can be probed and mapped."""
    return run.result("classes") is None and not _has_sounds(run)


def _has_sounds(run: RunRecord) -> bool:
    return run.setting("look_ahead") is not None


def _first_with(g: Group, kind: str) -> Sequence[RunRecord]:
    """The first run of a group that has a result of this kind, alone."""
    return [run for run in g.runs if run.result(kind) is not None][:1]


def _has_start(g: Group) -> bool:
    return any(words.start_line(run) is not None for run in g.runs)


def _block(groups: Sequence[Group], index: int) -> dict[str, Any]:
    columns = tables.columns(groups)
    rows = tables.accuracy_rows(groups, columns)
    drawn = [
        figures.accuracy_figure(rows, i, column.title, f"accuracy{index}-{i}")
        for i, column in enumerate(columns[:4])
    ]
    return {
        "data": groups[0].data,
        "columns": columns,
        "rows": rows,
        "spread": any(cell and cell.n > 1 for row in rows for cell in row.cells),
        "differences": tables.difference_rows(groups, columns),
        "figures": list(zip(columns, map(Markup, drawn), strict=False)),
        "each": [
            (g, run, [tables.interval(_of_run(g, run, c).values()) for c in columns])
            for g in groups
            for run in g.runs
        ],
    }


def _of_run(g: Group, run: RunRecord, column: Any) -> dict[int, float]:
    return tables.units(Group(g.label, g.slot, (run,)), "encoder", column)


def _training_row(g: Group) -> TrainingRow:
    def over_runs(values: Sequence[float]) -> tables.Interval | None:
        return tables.interval([value for value in values if math.isfinite(value)])

    def logged(key: str) -> tables.Interval | None:
        return over_runs([last(run, key) for run in g.runs])

    def told(key: str) -> tables.Interval | None:
        return over_runs([number(run.training.get(key)) for run in g.runs])

    return TrainingRow(
        group=g,
        loss=told("final_loss") or logged("loss"),
        mi=logged("mi"),
        ceiling=logged("mi_ceiling"),
        accuracy=logged("contrastive_accuracy"),
        rank=logged("effective_rank"),
        steps=told("steps"),
        seconds=told("seconds"),
        nonfinite=sum(int(run.training.get("nonfinite_steps") or 0) for run in g.runs),
    )


def _curves(groups: Sequence[Group], keys: Sequence[str]) -> list[tuple[str, str, Markup]]:
    drawn = [(key, figures.curve_figure(groups, key, f"curve-{key}")) for key in keys]
    return [(*figures.CURVES[key], Markup(drawing)) for key, drawing in drawn if drawing]


def _map(g: Group) -> dict[str, Any] | None:
    for run in g.runs:
        payload = run.result("embedding-map")
        if payload is None:
            continue
        xy = np.array([[number(value) for value in point] for point in payload["xy"]], dtype=float)
        labels = [int(label) for label in payload["labels"]]
        if xy.ndim != 2 or xy.shape[1] != 2 or len(xy) != len(labels) or not np.isfinite(xy).all():
            raise RunError(
                f"the embedding map of {run.name} needs finite (n, 2) coordinates and n labels,"
                f" got shape {xy.shape} and {len(labels)} labels"
            )
        names = [str(name) for name in payload["classes"]]
        drawing = figures.map_figure(xy, labels, names, f"map{g.slot}")
        return {"run": run, "method": payload.get("method", ""), "svg": Markup(drawing)}
    return None


def _neighbours(g: Group) -> dict[str, Any] | None:
    for run in g.runs:
        payload = run.result("neighbours")
        if payload is None:
            continue
        rows = [
            {
                "png": _picture(row["query"], run),
                "label": row.get("query_label"),
                "found": [
                    {**found, "png": _picture(found["png"], run)} for found in row["neighbours"]
                ],
            }
            for row in payload["rows"]
        ]
        return {"run": run, "rows": rows}
    return None


def _picture(text: str, run: RunRecord) -> str:
    try:
        data = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        data = b""
    if not data.startswith(_PNG):
        raise RunError(f"a picture among the neighbours of {run.name} is not a base64 PNG")
    return text


def _card(records: Sequence[RunRecord]) -> list[tuple[str, list[tuple[str, str]]]]:
    probed = [run for run in records if run.card]
    rows = []
    for key in dict.fromkeys(key for run in probed for key in run.card):
        told = [(run.name, _show(run.card.get(key, "not recorded"))) for run in probed]
        same = len({text for _, text in told}) == 1
        rows.append((key.replace("_", " "), [("", told[0][1])] if same else told))
    return rows


def _other(run: RunRecord) -> list[tuple[str, str, str]]:
    found = [(n, kind, payload) for n, (kind, payload) in run.results.items()]
    return [
        (name, kind, json.dumps(payload, indent=2, ensure_ascii=False)[:20_000])
        for name, kind, payload in found
        if kind not in _SHOWN_KINDS
    ]


def _show(value: Any) -> str:
    """Any JSON value as words: no quotes, no brackets."""
    if isinstance(value, Mapping):
        if set(value) == {"value", "reason"}:
            return str(value["reason"])
        return "; ".join(f"{key} {_show(item)}" for key, item in value.items())
    if isinstance(value, list | tuple):
        return ", ".join(_show(item) for item in value) or "none"
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _measure(value: tables.Interval | None, digits: int) -> str:
    if value is None:
        return words.DASH
    # Equal in every repeat (a schedule's steps, a ceiling): an interval of zero says nothing.
    spread = tables.half(value)
    half = f" ± {spread:,.{digits}f}" if spread > 1e-12 else ""
    return f"{value.mean:,.{digits}f}".replace("-", words.MINUS) + half


def _parts(text: str) -> tuple[str, str]:
    mean, sign, half = text.partition(" ± ")
    return mean, f"± {half}" if sign else ""

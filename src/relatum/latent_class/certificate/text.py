"""A certificate as a person reads it: a table with its readings, 60 to 100 columns wide."""

from __future__ import annotations

import math
import shutil
import textwrap
from collections.abc import Sequence
from itertools import groupby
from typing import TYPE_CHECKING

from .meanings import DIAGNOSTICS, GROUPS
from .records import CertificateLine

if TYPE_CHECKING:
    from .result import TransferCertificate

__all__ = ["text"]

_NARROW, _WIDE = 60, 100


def text(certificate: TransferCertificate) -> str:
    """Verdict, lines, curve, class pairs, diagnostics, advice, and what it does not say."""
    parts = [
        _heading(certificate),
        _short(certificate),
        _lines(certificate.lines),
        _few_shot(certificate),
        _costly(certificate),
        _diagnostics(certificate),
        _list("What to change", certificate.advice),
        _list("Warnings", certificate.warnings),
        _assumptions(certificate),
        _list("Notes", certificate.notes),
        _list("What it does not say", certificate.does_not_say),
    ]
    return "\n\n".join(part for part in parts if part)


def _heading(certificate: TransferCertificate) -> str:
    settings = certificate.settings
    sizes = [
        f"{settings[name]:,} {name}" for name in ("rows", "classes", "groups", "dimensions")
        if settings.get(name)
    ]  # fmt: skip
    title = ", ".join([f"Transfer certificate: {settings.get('loss', '')} loss", *sizes])
    verdict = f"NOTHING CERTIFIED: {certificate.reason}"
    if certificate.certified is not None:
        confidence = f"{100 * (1 - settings.get('delta', math.nan)):g} %"
        bound = f"L_sup^μ <= {certificate.certified:.3f} with probability {confidence}"
        meaning = "the average error between two classes is at most that, too"
        if certificate.vacuous:
            meaning = "VACUOUS: the classifier that knows nothing has risk 1"
        verdict = f"CERTIFIED: {bound}; {meaning}. {certificate.reason}"
    return "\n".join([*_wrapped(title, ""), *_wrapped(verdict, "")])


def _short(certificate: TransferCertificate) -> str:
    """What most people want to know, in two sentences."""
    found = {line.key: line.value for line in certificate.lines}
    point, certain = found.get("certificate_point"), certificate.certified
    words = []
    if "pairwise_error" in found:
        words.append(
            f"the class means confuse two classes in {_percent(found['pairwise_error'])} of cases "
            f"and err among all {certificate.settings.get('classes')} in "
            f"{_percent(found['top1_error'])}."
        )
    if point is not None:
        first = "Contrasting pairs alone bounds the error between two classes by"
        sure = "" if certain is None else f"; certified: {_percent(certain)}"
        if certain is not None and certain > 1:
            sure = f"; nothing is certified, as {_percent(certain)} is above 100 %"
        if point > 1:
            words.append(f"{first} {_percent(point)}: nothing, as no error is above 100 %.")
        else:
            words.append(f"{first} {_percent(point)} (an estimate{sure}).")
    return "\n".join(_wrapped(" ".join(["In short:", *words]), "")) if words else ""


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def _lines(lines: Sequence[CertificateLine]) -> str:
    blocks = []
    for number, (group, members) in enumerate(groupby(lines, key=lambda line: line.group), 1):
        rows = _wrapped(GROUPS[group], f"{number}  ")
        for line in members:
            error = f"± {_number(line.standard_error)}" if _known(line.standard_error) else ""
            start = f"   {line.symbol:<17}{_number(line.value):>8} {error:<8}  "
            rows += _wrapped(line.reading, start)
        blocks.append("\n".join(rows))
    return "\n\n".join(blocks)


def _few_shot(certificate: TransferCertificate) -> str:
    if not certificate.few_shot:
        return ""
    first, cell = ("labels per class", 18) if _width() >= 90 else ("rows", 14)
    titles = ("risk L^≠_b", "error of two", "top-1 error")
    rows = _wrapped(
        "Few-shot curve: the mean classifier of so many labelled rows per class, predicted; ± of a "
        "draw at the end",
        "",
    )
    rows.append(f"   {first}   " + "".join(f"{title:<{cell}}" for title in titles) + "draw")
    for shot in certificate.few_shot:
        cells = [
            f"{_number(value)} ± {_number(error)}" if _known(error) else _number(value)
            for value, error in (
                (shot.risk, shot.risk_standard_error),
                (shot.pairwise_error, shot.pairwise_standard_error),
                (shot.top1_error, shot.top1_standard_error),
            )
        ]
        spread = f"± {_number(shot.top1_spread)}"
        told = "".join(f"{x:<{cell}}" for x in cells)
        rows.append(f"   {shot.shots:>{len(first)}}   {told}{spread}")
    return "\n".join(rows)


def _costly(certificate: TransferCertificate) -> str:
    if not certificate.costly:
        return ""
    rows = ["Class pairs that cost most (one-shot risk, share of all)"]
    for pair in certificate.costly[:5]:
        room = min(40, _width() - 33)
        names = textwrap.shorten(f"{pair.class_a} / {pair.class_b}", room, placeholder="...")
        error = f"± {_number(pair.standard_error)}" if _known(pair.standard_error) else ""
        share = f"{100 * pair.share:5.1f} %" if _known(pair.share) else ""
        rows.append(f"   {names:<{room + 2}}{_number(pair.risk):>8} {error:<10}{share}")
    return "\n".join(rows)


def _diagnostics(certificate: TransferCertificate) -> str:
    if not certificate.diagnostics:
        return ""
    number = len({line.group for line in certificate.lines}) + 1
    rows = [f"{number}  What the embeddings look like (no bound attached)"]
    for name, value in certificate.diagnostics.items():
        shown = f"{value:d}" if isinstance(value, int) else _number(value)
        rows += _wrapped(DIAGNOSTICS[name], f"   {name:<17}{shown:>8}           ")
    return "\n".join(rows)


def _assumptions(certificate: TransferCertificate) -> str:
    words = {True: "yes", False: "NO", None: "cannot be seen from the data"}
    return _list("It rests on", [f"{x}: {words[y]}" for x, y in certificate.assumptions.items()])


def _list(title: str, entries: Sequence[str]) -> str:
    if not entries:
        return ""
    return "\n".join([title, *(row for entry in entries for row in _wrapped(entry, " - "))])


def _wrapped(words: str, start: str) -> list[str]:
    return textwrap.wrap(words, _width(), initial_indent=start, subsequent_indent=" " * len(start))


def _width() -> int:
    """That of the terminal, within what can be read; the widest where there is no terminal."""
    return max(_NARROW, min(_WIDE, shutil.get_terminal_size((_WIDE, 24)).columns))


def _number(value: float) -> str:
    if not math.isfinite(value):
        return str(value)
    return f"{value + 0.0:.3f}" if abs(value) < 1000 else f"{value:.3g}"


def _known(value: float) -> bool:
    return math.isfinite(value)

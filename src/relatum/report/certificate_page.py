"""The transfer certificate as a page of its own, and as a section of the report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from .certificate_figures import few_shot_figure, waterfall_figure
from .mi_words import amount

__all__ = ["certificate_page", "certificate_view"]

_STATES = {True: ("good", "✓", "holds"), False: ("bad", "✗", "fails")}
_UNKNOWN = ("warn", "?", "the data cannot tell")


def certificate_page(record: Mapping[str, Any]) -> str:
    """The page as text: no script, no link, no network.

    Args:
        record: What ``relatum certify`` writes as JSON.
    """
    environment = Environment(
        loader=PackageLoader("relatum.report", "."),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(amount=amount)
    css = (Path(__file__).parent / "page.css").read_text(encoding="utf-8")
    return environment.get_template("certificate_page.html.j2").render(
        css=Markup(css), record=record, view=certificate_view(record, "certificate")
    )


def certificate_view(record: Mapping[str, Any], identity: str) -> dict[str, Any]:
    """What the template shows of a certificate; `identity` begins the ids of its figures."""
    certificate = record["certificate"]
    drawn = {
        "waterfall": waterfall_figure(record, f"{identity}-waterfall"),
        "few_shot": few_shot_figure(record, f"{identity}-shots"),
    }
    return {
        "verdict": _verdict(record),
        "figures": {name: Markup(svg) for name, svg in drawn.items() if svg},
        "groups": _grouped(record, certificate["lines"]),
        "costly": certificate["costly"][:10],
        "shots": certificate["few_shot"],
        "diagnostics": [
            (
                record["diagnostics"].get(name, name),
                value if isinstance(value, int) else amount(value),
            )
            for name, value in certificate["diagnostics"].items()
        ],
        "assumptions": [
            (text, *_STATES.get(holds, _UNKNOWN))
            for text, holds in certificate["assumptions"].items()
        ],
        **{name: certificate[name] for name in ("advice", "warnings", "notes", "does_not_say")},
    }


def _verdict(record: Mapping[str, Any]) -> list[str]:
    """What is certain, then what was measured, in sentences."""
    certificate = record["certificate"]
    found = {line["key"]: line["value"] for line in certificate["lines"]}
    bound, reason = certificate["certified"], certificate["reason"]
    delta = certificate["settings"].get("delta")
    if bound is None:
        texts = [f"Nothing is certified: {reason}"]
    elif certificate["vacuous"]:
        texts = [f"The certified bound is {amount(bound)}, which says nothing: knowing nothing has "
                 f"risk 1. {reason}"]  # fmt: skip
    else:
        sure = "" if delta is None else f"With probability {100 * (1 - delta):g} %, "
        text = f"{sure}the mean classifier's risk between two classes is at most {amount(bound)}, "
        texts = [f"{text}and so is its error. {reason}"]
        texts[0] = texts[0][0].upper() + texts[0][1:]
    if found.get("pairwise_error") is not None:
        top = found.get("top1_error")
        among = "" if top is None else f", and {100 * top:.1f} % among all classes"
        texts.append(
            f"Measured, each row judged without itself: the class means err on "
            f"{100 * found['pairwise_error']:.1f} % between two classes{among}."
        )
    if found.get("certificate_point") is not None:
        point = found["certificate_point"]
        texts.append(
            f"Contrasting pairs alone bounds the error between two classes by {100 * point:.1f} %, "
            "as estimated and without confidence."
            if point < 1
            else "Contrasting pairs alone certifies nothing here: the bound, as estimated, is "
            f"{100 * point:.1f} %."
        )
    return texts


def _grouped(
    record: Mapping[str, Any], lines: Sequence[Mapping[str, Any]]
) -> list[tuple[str, list[Mapping[str, Any]]]]:
    return [
        (record["groups"].get(str(number), ""), list(members))
        for number, members in groupby(lines, key=lambda line: line["group"])
    ]

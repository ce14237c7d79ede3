"""One self-contained HTML page about the mutual information of two sides of a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from . import mi_figures, mi_words
from .drawing import SLOTS

__all__ = ["mi_page"]

Points = tuple[Sequence[float], Sequence[float]]


def mi_page(record: Mapping[str, Any], points: Points | None = None) -> str:
    """The page as text: no script, no link, no network.

    Args:
        record: What ``relatum mi`` writes as JSON.
        points: x and y of each row, where each side is one column of numbers.
    """
    environment = Environment(
        loader=PackageLoader("relatum.report", "."),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(amount=mi_words.amount, interval=mi_words.interval_text)
    css = (Path(__file__).parent / "page.css").read_text(encoding="utf-8")
    estimates = record["estimates"]
    x, y = mi_words.sides(record)
    return environment.get_template("mi_page.html.j2").render(
        css=Markup(css),
        record=record,
        estimates=list(enumerate(estimates)),
        slots=SLOTS,
        x=x,
        y=y,
        verdict=mi_words.verdict(record),
        meanings=mi_words.meanings(record),
        intervals=Markup(mi_figures.interval_figure(estimates, record["unit"], "intervals")),
        pointwise=_drawn(estimates, mi_figures.pointwise_figure),
        scatter=_scatter(record, points),
    )


def _drawn(estimates: Sequence[Mapping[str, Any]], draw: Any) -> list[tuple[str, Markup]]:
    drawn = [(e["method"], draw(e, i, f"pointwise-{i}")) for i, e in enumerate(estimates)]
    return [(method, Markup(svg)) for method, svg in drawn if svg]


def _scatter(record: Mapping[str, Any], points: Points | None) -> list[tuple[str, Markup]]:
    if points is None:
        return []
    names = (record["x"][0], record["y"][0])
    return _drawn(
        record["estimates"],
        lambda e, i, _: mi_figures.scatter_figure(*points, names, e, f"scatter-{i}"),
    )

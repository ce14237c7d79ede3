"""The table of objectives, generated from their cards and from what was measured."""

from __future__ import annotations

import json
from importlib.resources import files

from ..base import ObjectiveCard
from . import OBJECTIVES
from .rpc import CHI_SQUARE_CARD, chi_square

__all__ = ["markdown_table", "measured", "table_rows"]


def measured() -> dict[str, dict[str, dict[str, str]]]:
    """Our own verdicts by objective and claim: what is said, and on which page of results.

    Written by ``docs/fill_measured.py``; empty where nothing was measured.
    """
    path = files("relatum.objectives").joinpath("measured.json")
    if not path.is_file():
        return {}
    found: dict[str, dict[str, dict[str, str]]] = json.loads(path.read_text(encoding="utf-8"))
    return found


def table_rows() -> list[dict[str, str]]:
    """One row per objective: what it is, what it costs, the paper's verdicts and ours.

    Example:
        >>> table_rows()[5]["optimum"]
        '(r − α) / (β r + γ)'
    """
    ours = measured()
    rows = []
    for name, make in OBJECTIVES.items():
        card: ObjectiveCard = CHI_SQUARE_CARD if make is chi_square else make().CARD  # type: ignore[attr-defined]
        here = ours.get(name, {})
        row = {"name": name, **card._asdict()}
        for verdict in ("stable", "batch", "downstream"):
            row[f"{verdict}_here"] = here.get(verdict, {}).get("said", "not measured yet")
        rows.append(row)
    return rows


def markdown_table() -> str:
    """The table as Markdown, for README and results pages; a test keeps the README equal to it."""
    columns = {
        "name": "name",
        "formula": "objective J(f), maximised",
        "reduction": "reduction of the negatives",
        "optimum": "optimal critic",
        "mi_reading": "reading of mutual information",
        "cost": "cost of a batch",
        "stable": "stable (paper)",
        "batch": "any batch size (paper)",
        "downstream": "downstream (paper)",
        "stable_here": "stable (here)",
        "downstream_here": "downstream (here)",
    }
    lines = ["| " + " | ".join(columns.values()) + " |", "|" + " --- |" * len(columns)]
    for row in table_rows():
        cells = [f"`{row['name']}`", *(row[key].replace("|", "\\|") for key in list(columns)[1:])]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)

"""The table of objectives, generated from their cards and from what was measured."""

from __future__ import annotations

import json
from importlib.resources import files
from typing import Any

from ..base import ObjectiveCard
from . import OBJECTIVES

__all__ = ["measured", "table_rows"]


def measured() -> dict[str, Any]:
    """Our own verdicts by objective, written by the benchmark ``objectives_cifar.py``.

    Empty where the benchmark has not been run.
    """
    path = files("relatum.objectives").joinpath("measured.json")
    if not path.is_file():
        return {}
    return dict(json.loads(path.read_text(encoding="utf-8")))


def table_rows() -> list[dict[str, str]]:
    """One row per objective: what it is, what it costs, the paper's verdicts and ours.

    Example:
        >>> table_rows()[5]["optimum"]
        '(r − α) / (β r + γ)'
    """
    ours = measured().get("objectives", {})
    rows = []
    for name, make in OBJECTIVES.items():
        card: ObjectiveCard = make().CARD  # type: ignore[attr-defined]
        title = card.title if name != "chi2" else "RPC(0, 0, 1): chi-square, spectral"
        row = {"name": name, **card._asdict(), "title": title}
        row["measured"] = ours.get(name, {}).get("summary", "not measured")
        rows.append(row)
    return rows

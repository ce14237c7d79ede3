"""Fine-tuning in the report: accuracies over shares of the labels, one block for each protocol."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from .reading import Column, Group, RunRecord
from .tables import Row, accuracy_rows, columns, difference_rows

__all__ = ["TunedBlock", "tuned_blocks"]


class TunedBlock(NamedTuple):
    """Fine-tunings that may be compared: on the same data, by the same protocol."""

    data: str
    protocol: str
    columns: list[Column]
    rows: list[Row]
    differences: list[Row]


def tuned_blocks(groups: Sequence[Group]) -> list[TunedBlock]:
    """The tables of all fine-tunings; networks trained from scratch stand beside each.

    The rows of a table are those of any probe: means over runs, or over the draws of a single run.
    """
    found: dict[tuple[str, str, str], None] = {}
    for group in groups:
        rows = [row for run in group.runs for row in _rows(run)]
        shared = {_shared(row) for row in rows if row["features"] == "encoder"}
        for row in rows:
            if row["features"] == "encoder" or _shared(row) not in shared:
                found[group.data, _tuned(row), _shared(row)] = None
    return [_block([g for g in groups if g.data == key[0]], *key) for key in found]


def _block(groups: Sequence[Group], data: str, tuned: str, shared: str) -> TunedBlock:
    chosen = []
    for group in groups:
        runs = [_only(run, tuned, shared) for run in group.runs]
        if kept := tuple(run for run in runs if run.probe_rows):
            chosen.append(replace(group, runs=kept))
    kinds = columns(chosen)
    rows = [_named(row) for row in accuracy_rows(chosen, kinds) if any(row.cells)]
    differences = [_named(row) for row in difference_rows(chosen, kinds)]
    return TunedBlock(data, f"{tuned}. {shared}", kinds, rows, differences)


def _only(run: RunRecord, tuned: str, shared: str) -> RunRecord:
    """The run as if the fine-tunings of one protocol were all that was measured."""
    rows = [
        row
        for row in _rows(run)
        if _shared(row) == shared and (row["features"] == "untrained" or _tuned(row) == tuned)
    ]
    return replace(run, results={"finetune": ("probe", {"rows": rows})})


def _named(row: Row) -> Row:
    return row._replace(
        label=row.label.replace("Untrained encoder", "From scratch").replace(
            "untrained encoder", "from scratch"
        )
    )


def _tuned(row: Mapping[str, Any]) -> str:
    card = row["card"]
    return f"Tuned: {card['tuned']}; classifier on the {card['layer']}"


def _shared(row: Mapping[str, Any]) -> str:
    """What two cells of one table must have in common; what is tuned depends on the start."""
    card = row["card"]
    return f"{card['optimisation']}; {card['preprocessing']}; batch norm {card['batch_norm']}"


def _rows(run: RunRecord) -> list[Mapping[str, Any]]:
    return list((run.result("finetune") or {}).get("rows", []))

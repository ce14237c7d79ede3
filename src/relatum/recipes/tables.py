"""Tables on the terminal: the numbers of the report, and the table of objectives."""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from ..objectives import OBJECTIVES
from ..report.finetuning import tuned_blocks
from ..report.mi_words import amount, interval_text, verdict
from ..report.reading import Column, group, number, open_records
from ..report.tables import Interval, Row, accuracy_rows, columns, difference_rows, half

__all__ = [
    "classes_table",
    "finetune_table",
    "mi_table",
    "objective_card",
    "objective_table",
    "probe_table",
]

_LETTERS: Final = {"alpha": "α", "beta": "β", "gamma": "γ", "sum": "Σ", "le": "<=", "ge": ">="}


def probe_table(runs: Sequence[Path]) -> RenderableType:
    """Accuracies over runs and their paired differences, as the report computes them."""
    groups = group(open_records(runs))
    kinds = columns(groups)
    titles = [_short(kind) for kind in kinds]
    accuracy = _table("Test accuracy, %", titles, accuracy_rows(groups, kinds))
    difference = _table("Paired differences, points", titles, difference_rows(groups, kinds))
    note = "Mean ± 95 % interval (t) over n seeds; draws of few labels are averaged inside a run."
    return Group(accuracy, difference, note)


def finetune_table(runs: Sequence[Path]) -> RenderableType:
    """Accuracies after tuning and their paired differences, a pair of tables for each protocol."""
    parts: list[RenderableType] = []
    for block in tuned_blocks(group(open_records(runs))):
        titles = [_short(kind) for kind in block.columns]
        parts += [
            Text(f"{block.data}. {block.protocol}"),
            _table("Test accuracy after tuning, %", titles, block.rows),
        ]
        if block.differences:
            parts.append(_table("Paired differences, points", titles, block.differences))
    note = "Mean ± 95 % interval (t) over n seeds; draws of few labels are averaged inside a run."
    return Group(*parts, note)


def _short(kind: Column) -> str:
    """A heading for a narrow column."""
    labels = "all" if kind.labels_per_class is None else f"{kind.labels_per_class} a class"
    if kind.label_fraction is not None:
        labels = f"{100 * kind.label_fraction:g} %"
    known = {"knn": "kNN", "class-means": "class means", "fine-tuning": labels}
    return known.get(kind.probe, f"{kind.probe}, {labels}")


def _table(title: str, titles: Sequence[str], rows: Sequence[Row]) -> Table:
    table = Table(title=title, box=box.SIMPLE_HEAD, title_justify="left")
    table.add_column("")
    table.add_column("n", justify="right")
    for name in titles:
        table.add_column(Text(name), justify="right")
    for row in rows:
        table.add_row(Text(row.label), str(row.most), *(_cell(cell) for cell in row.cells))
    return table


def _cell(value: Interval | None) -> str:
    if value is None:
        return "—"
    sign = "+" if value.kind == "difference" else ""
    mean = f"{100 * value.mean:{sign}.1f}"
    return mean if value.n == 1 else f"{mean} ± {100 * half(value):.1f}"


def objective_table(rows: Sequence[Mapping[str, str]]) -> RenderableType:
    """What each objective is, what can be read from it, and the verdicts on it."""
    what = {"formula": "J(f), maximised", "reduction": "of the negatives it needs", "optimum": "f*"}
    reading = {"mi_reading": "mutual information", "cost": "a batch costs"}
    verdicts = {"stable": "stable", "batch": "any batch size", "downstream": "downstream"}
    here = {f"{key}_here": f"{title}, here" for key, title in verdicts.items()}
    note = (
        "P: related pairs, Q: unrelated pairs, r: the density ratio dP/dQ, N pairs of d numbers. "
        "chi2 is RPC(0, 0, 1), the spectral contrastive loss. Verdicts: Tsai et al. 2021, Table 1."
    )
    return Group(
        _columns("Objectives", rows, what),
        _columns("What they give and cost", rows, reading | verdicts),
        _columns("Measured here (docs/results)", rows, here),
        note,
    )


def objective_card(row: Mapping[str, str]) -> RenderableType:
    """All of one objective: its card, the verdicts on it, and what its docstring says."""
    shown = {
        "formula": "J(f), maximised",
        "reduction": "of the negatives it needs",
        "optimum": "optimal critic",
        "mi_reading": "mutual information",
        "cost": "a batch of N pairs costs",
        "stable": "stable training",
        "batch": "any batch size",
        "downstream": "good downstream",
    }
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column("", style="bold", no_wrap=True)
    for key, title in shown.items():
        here = row.get(f"{key}_here")
        said = f"paper: {row[key]}; here: {here}" if here else row[key]
        table.add_row(title, Text(said))
    # A docstring is written for a program that draws formulas: only its prose is for a terminal.
    prose = [part for part in _paragraphs(row["name"]) if not part.startswith(".. math")]
    return Group(
        Text(f"{row['title']} (--objective {row['name']})", "bold"),
        table,
        *(Text(f"\n{part}") for part in prose),
    )


def _paragraphs(name: str) -> list[str]:
    """The docstring of an objective, its roles and TeX taken out; without references and example.

    Of the parameters each is a paragraph.
    """
    text = inspect.getdoc(OBJECTIVES[name]) or ""
    text = re.split(r"\n(?:Raises|References|Example):\n", text)[0]
    text = re.sub(r":\w+(?::\w+)?:`~?([^`]*)`", lambda found: _plain(found[1]), text)
    text = re.sub(r"\n {4}(?=\w+: )", "\n\n", text.replace("Args:", ""))
    text = re.sub(r"``|\*\*|\*(?=\w+\*)|(?<=\w)\*(?= )", "", text)
    parts = (" ".join(part.split()).removeprefix("where ") for part in text.split("\n\n"))
    return [part for part in parts if part]


def _plain(tex: str) -> str:
    r"""Small TeX in letters: fractions with a bar, Greek as Greek.

    Example:
        >>> _plain(r"-\frac12 \alpha^2")
        '-1/2 α²'
    """
    tex = re.sub(r"\\frac(\w)(\w)", r"\1/\2", tex).replace("^2", "²")
    for word, letter in _LETTERS.items():
        tex = tex.replace(f"\\{word}", letter)
    return tex.replace("\\", "").replace("{", "").replace("}", "")


def _columns(title: str, rows: Sequence[Mapping[str, str]], shown: Mapping[str, str]) -> Table:
    table = Table(title=title, box=box.SIMPLE_HEAD, title_justify="left")
    table.add_column("", style="bold")
    for head in shown.values():
        table.add_column(head)
    for row in rows:
        # Text, not markup: brackets in a formula are brackets.
        table.add_row(row["name"], *(Text(row[key]) for key in shown))
    return table


def mi_table(record: Mapping[str, Any]) -> RenderableType:
    """Estimates of mutual information side by side, what they are, and warnings below."""
    estimates = record["estimates"]
    level = f"{100 * record['level']:g} % interval"
    title = f"Mutual information, {record['unit']}"
    table = Table(
        title=title, box=box.SIMPLE_HEAD, title_justify="left", padding=(0, 1, 0, 0), pad_edge=False
    )
    table.add_column("", no_wrap=True)
    for head in ("estimate", level, "kind", "ceiling", "p", "gap", "time"):
        table.add_column(head, justify="left" if head == "kind" else "right", no_wrap=True)
    for e in estimates:
        gap = None if e["train_value"] is None else e["train_value"] - e["value"]
        table.add_row(
            Text(e["method"], "bold"),
            amount(e["value"]),
            interval_text(e),
            e["kind"],
            amount(e["ceiling"], 2),
            amount(e["p_value"]),
            amount(gap),
            f"{e['seconds']:,.{int(e['seconds'] < 100)}f} s",
        )
    kinds = dict.fromkeys(e["kind"] for e in estimates)
    left_out = f", {record['dropped']:,} with missing values left out" if record["dropped"] else ""
    notes = [
        f"{record['rows']:,} rows{left_out}. The interval covers the noise of the sample and, "
        "upwards, the gap (on trained rows, less the estimate), not other bias of a method.",
        *(f"{kind}: {record['kinds'][kind]}" for kind in kinds),
    ]
    warnings = [f"warning: {e['method']}: {text}" for e in estimates for text in e["warnings"]]
    refused = [f"no estimate: {name}: {reason}" for name, reason in record["refused"].items()]
    texts = [Text(text, "dim") for text in notes]
    texts += [Text(text) for text in ("", *verdict(record))]
    texts += [Text(text, "yellow") for text in (*warnings, *refused)]
    return Group(table, *texts)


def classes_table(record: Mapping[str, Any]) -> RenderableType:
    """What theory and experiment say of an encoder trained on tuples, line by line."""
    k, block, terms = record["k"], record["block"], record["risk_bound_terms"]
    kind = f" with {k} negatives" if k > 1 else f" with blocks of {block}" if block > 1 else ""
    table = Table(
        title=f"{record['loss']} loss{kind}; knowing nothing costs {record['risk_of_nothing']:.3g}",
        box=box.SIMPLE_HEAD, title_justify="left",
    )  # fmt: skip
    for head in ("", "theory", "measured"):
        table.add_column(head, justify="right" if head else "left")
    confidence = f"{100 * (1 - record['delta']):g} %"
    table.add_row(f"on the {record['tuples']:,} tuples it was trained on", "",
                  f"{record['empirical_risk']:.4f}")  # fmt: skip
    table.add_row(f"+ complexity of {record['complexity_of']}", f"{terms['complexity']:.4f}", "")
    table.add_row(f"+ width for {confidence} confidence", f"{terms['confidence']:.4f}", "")
    table.add_row("contrastive risk, bound and fresh", f"{record['risk_bound']:.4f}",
                  _with_error(record["risk"]))  # fmt: skip
    table.add_row("its mean classifier by that bound", f"{record['transfer_bound']:.4f}",
                  _with_error(record["mean_classifier_risk"]) if k == 1 else "—")  # fmt: skip
    table.add_row("  by the risk as measured", f"{record['transfer_from_measured']:.4f}", "")
    table.add_row("error between two classes", "", _with_error(record["pairwise_error"]))
    notes = [
        f"Measured on {record['measured_on']}; ± one standard error. {record['classes']} classes, "
        f"collision probability {record['tau']:.4g}.",
        "The bound on the contrastive risk is vacuous: not below the loss of knowing nothing."
        if record["risk_bound_vacuous"]
        else "The bound says something: it is below the loss of knowing nothing.",
    ]
    if not record["fresh"]:
        notes.append(
            "Rows were drawn repeatedly: the bound is about the law of the training rows, not "
            "about fresh ones."
        )
    return Group(table, *(Text(note, "dim") for note in notes))


def _with_error(estimate: Mapping[str, Any]) -> str:
    error = number(estimate["standard_error"])
    spread = f" ± {error:.4f}" if error > 0 else ""
    return f"{number(estimate['value']):.4f}{spread}"

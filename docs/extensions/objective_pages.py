"""``{objective} NAME`` and ``{objective-table}``: what is known of objectives.

The formula is that of the docstring, the card that of the class, the time and memory those of
``docs/results/losses_cpu.json``, our verdicts those of the benchmark. Nothing is written again.
"""

import inspect
import json
import re
import statistics
from pathlib import Path
from typing import Any, ClassVar

from docutils import nodes
from docutils.parsers.rst import directives
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from relatum.objectives import OBJECTIVES
from relatum.objectives.table import measured, table_rows

PAGES = Path(__file__).resolve().parents[1] / "objectives"
RESULTS = PAGES.parent / "results"
FORMULA = re.compile(r"\.\. math:: (.*?)\n\n", re.DOTALL)
ROW = "| {} | {} |"


class ObjectivePage(SphinxDirective):
    """The generated part of an objective's page."""

    required_arguments = 1
    option_spec: ClassVar = {"when": directives.unchanged_required}  # for the table of all

    def run(self) -> list[nodes.Node]:
        """Formula, what it is, what it costs, and the paper's claims beside ours."""
        name = self.arguments[0]
        row = next(row for row in table_rows() if row["name"] == name)
        parts = [*formula(name), *card(row), *claims(row)]
        return self.parse_text_to_nodes("\n".join(parts))


class ObjectiveTable(SphinxDirective):
    """All objectives in a line each, with the ``:when:`` of their pages."""

    def run(self) -> list[nodes.Node]:
        """The table."""
        lines = ["| objective | J(f), maximised | take it for |", "| --- | --- | --- |"]
        for row in table_rows():
            page = PAGES / f"{row['name']}.md"
            found = re.search(r"^:when: (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
            if not found:
                raise self.error(f"{page} has no :when: for the table of objectives")
            title = f"[{row['title']}]({row['name']}.md)"
            lines.append(f"| {title} | {_cell(row['formula'])} | {found[1]} |")
        return self.parse_text_to_nodes("\n".join(lines))


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def formula(name: str) -> list[str]:
    """The formula of the docstring; of the card, where the docstring has it in a line of text."""
    found = FORMULA.search(f"{inspect.getdoc(OBJECTIVES[name])}\n\n")
    text = " ".join(found[1].split()) if found else ""
    return ["$$", text, "$$", ""] if text else []


def card(row: dict[str, str]) -> list[str]:
    """What the objective is."""
    lines = [ROW.format("in a line of text", _cell(row["formula"])), "| --- | --- |"]
    lines += [
        ROW.format(title, _cell(row[key]))
        for title, key in (
            ("reduction of the negatives", "reduction"),
            ("optimal critic", "optimum"),
            ("reading of mutual information", "mi_reading"),
            ("cost of a batch of N pairs", "cost"),
        )
    ]
    lines.append(ROW.format("on the command line", f"`--objective {row['name']}`"))
    timed = cost_of(row["name"])
    if timed:
        lines.append(ROW.format("[measured](../results/losses_cpu.md), 4,096 pairs", timed))
    return [*lines, ""]


def cost_of(name: str) -> str | None:
    """Time and added memory of forward and backward, where they were measured."""
    data: dict[str, Any] = json.loads((RESULTS / "losses_cpu.json").read_text(encoding="utf-8"))
    wanted = f"relatum {OBJECTIVES[name].__name__}, two_view, cosine / 0.5"
    for cell in data["cells"]:
        if cell["name"] == wanted and cell["pairs"] == 4096:
            milliseconds = 1000 * statistics.median(cell["seconds"])
            return f"{milliseconds:,.3g} ms, {cell['added_bytes'] / 2**20:.3g} MiB (two views)"
    return None


def claims(row: dict[str, str]) -> list[str]:
    """The three verdicts of the paper's Table 1 beside what was measured here."""
    ours = measured().get(row["name"], {})
    lines = ["| | the paper's claim, Table 1 | measured here |", "| --- | --- | --- |"]
    for title, key in (
        ("stable training", "stable"),
        ("insensitive to the batch size", "batch"),
        ("good downstream accuracy", "downstream"),
    ):
        here = row[f"{key}_here"]
        if key in ours:
            here = f"[{here}](../results/{ours[key]['page']}.md)"
        lines.append(f"| {title} | {row[key]} | {here} |")
    return [*lines, ""]


def setup(app: Sphinx) -> dict[str, bool]:
    """Registers the directive."""
    app.add_directive("objective", ObjectivePage)
    app.add_directive("objective-table", ObjectiveTable)
    return {"parallel_read_safe": True}

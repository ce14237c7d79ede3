"""Formulas as MathML, which browsers draw themselves: no script, no font, no network."""

import re

from docutils import nodes
from latex2mathml.converter import convert
from sphinx.application import Sphinx
from sphinx.writers.html5 import HTML5Translator

LONG = 60  # letters: may be wider than a phone, and then scrolls by itself
# What the converter passes through as it stands.
REWRITTEN = {
    r"\\arg\\(min|max)": r"\\operatorname{arg\\,\1}",
    r"\\[Bb]ig\\([{}])": r"\\\1",
}


def mathml(tex: str, display: str) -> str:
    """The formula as a MathML element."""
    for pattern, replacement in REWRITTEN.items():
        tex = re.sub(pattern, replacement, tex)
    element = convert(" ".join(tex.split()), display=display)
    if "\\" in element:
        raise ValueError(f"a command of this formula is not understood: {tex}")
    return element


def inline(translator: HTML5Translator, node: nodes.math) -> None:
    """A formula in a line of text."""
    element = mathml(node.astext(), "inline")
    if len(node.astext()) > LONG:
        element = f'<span class="long">{element}</span>'
    translator.body.append(element)
    raise nodes.SkipNode


def display(translator: HTML5Translator, node: nodes.math_block) -> None:
    """A formula of its own, which scrolls by itself where the page is narrow."""
    translator.body.append(f'<div class="formula">{mathml(node.astext(), "block")}</div>')
    raise nodes.SkipNode


def bars(app: Sphinx, what: str, name: str, obj: object, options: object, lines: list[str]) -> None:
    """|x| in a docstring is a length, and no substitution of reStructuredText."""
    formula = False
    for number, line in enumerate(lines):
        if line.strip():
            formula = line.lstrip().startswith(".. math::") or (formula and line.startswith("  "))
        if not formula and not line.lstrip().startswith((">>>", "...")):
            lines[number] = re.sub(r"(`[^`]*`)|\|", lambda m: m[1] or r"\|", line)


def setup(app: Sphinx) -> dict[str, bool]:
    """Registers the renderer."""
    app.add_html_math_renderer(
        "mathml", inline_renderers=(inline, None), block_renderers=(display, None)
    )
    app.connect("autodoc-process-docstring", bars, priority=900)  # after napoleon
    return {"parallel_read_safe": True, "parallel_write_safe": True}

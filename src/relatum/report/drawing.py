"""Small inline SVG that follows the page's theme, drawn by matplotlib.

Every colour is drawn as a stand-in and replaced by a CSS variable, so one SVG serves light, dark
and print; text stays text; ids are prefixed because all figures share one document.
"""

from __future__ import annotations

import html
import io
import re
from typing import Any

from matplotlib.axes import Axes
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

__all__ = ["INK", "LINE", "MUTED", "SLOTS", "STYLE", "new_axes", "slot_colour", "to_svg"]

SLOTS = 10
INK, MUTED, LINE = "#f1e1f1", "#f2e2f2", "#f3e3f3"

STYLE: dict[Any, Any] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "relatum",
    "font.size": 10,
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.edgecolor": MUTED,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.7,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.unicode_minus": True,
    "grid.color": LINE,
    "grid.linewidth": 0.6,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "xtick.major.size": 2.5,
    "ytick.major.size": 2.5,
    "axes.formatter.limits": (-3, 5),
    "figure.constrained_layout.use": True,
}


def slot_colour(slot: int) -> str:
    """The stand-in for the page's colour of a slot."""
    return f"#f4e4{slot % SLOTS:02x}"


def to_svg(figure: Figure, identity: str, alt: str) -> str:
    """The figure as one inline element; `identity` begins its ids, `alt` is read aloud."""
    buffer = io.StringIO()
    FigureCanvasSVG(figure)
    figure.savefig(buffer, format="svg", metadata={"Date": None})
    text = buffer.getvalue()
    box = re.search(r'viewBox="[^"]*"', text)
    assert box, "matplotlib always writes a viewBox"
    # What the file needs on its own, and what would leak into the page (a style for "*").
    text = re.sub(
        r"^.*?<svg[^>]*>|<metadata>.*?</metadata>|<style.*?</style>", "", text, flags=re.S
    )
    # Only tags are rewritten: between them stands text that must stay as it is.
    text = re.sub(r"<[^>]*>", lambda tag: _tag(tag[0], identity), text)
    text = re.sub(r"<defs>\s*</defs>", "", text)
    text = re.sub(r"\n\s*", "\n", text)
    return f'<svg role="img" aria-label="{html.escape(alt, quote=True)}" {box[0]}>{text}'


def _tag(tag: str, identity: str) -> str:
    tag = re.sub(r'\bid="', f'id="{identity}-', tag)
    tag = re.sub(r'(url\(|xlink:href=")#', rf"\1#{identity}-", tag).replace("xlink:href", "href")
    tag = re.sub(r'(\d+\.\d)\d+(?=[" ,\n])', r"\1", tag)  # a tenth of a point is enough
    tag = re.sub(r"font: 700 ([\d.]+px)[^;\"]*", r"font-size: \1; font-weight: 700", tag)
    tag = re.sub(r"font: ([\d.]+px)[^;\"]*", r"font-size: \1", tag)
    for colour, name in ((INK, "ink"), (MUTED, "muted"), (LINE, "line")):
        tag = tag.replace(colour, f"var(--{name})")
    return re.sub(r"#f4e4([0-9a-f]{2})", lambda match: f"var(--s{int(match[1], 16)})", tag)


def new_axes(width: float = 4.3, height: float = 2.5) -> tuple[Figure, Axes]:
    """A transparent figure of `width` by `height` inches and its axes."""
    figure = Figure(figsize=(width, height))
    figure.patch.set_alpha(0.0)
    axes = figure.add_subplot()
    axes.patch.set_alpha(0.0)
    return figure, axes

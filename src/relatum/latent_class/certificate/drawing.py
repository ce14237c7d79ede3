"""The drawing of a certificate: a waterfall from the error measured to the bound certified."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .result import TransferCertificate

__all__ = ["draw", "steps"]

# A quantity, and what its excess over the one before is the price of.
_STEPS = (
    ("pairwise_error", "error between two classes", "fact"),
    ("mean_classifier_risk", "surrogate loss", "risk"),
    ("noncollision_risk", "one shot", "gap"),
    ("certificate_point", "collisions", "price"),
)
_COLOURS = {"fact": "C2", "risk": "C0", "gap": "C1", "price": "C3", "bound": "0.6"}


def steps(certificate: TransferCertificate) -> Iterator[tuple[str, float, float, str]]:
    """(what is added, from, to, kind), each step beginning where the last one ended."""
    found = {line.key: line.value for line in certificate.lines}
    reached = 0.0
    for key, name, kind in _STEPS:
        if key in found:
            yield name, reached, found[key], kind
            reached = found[key]
    if certificate.certified is not None:
        yield "confidence", reached, certificate.certified, "bound"


def draw(certificate: TransferCertificate, ax: Any = None) -> Any:
    """Horizontal bars, each from where the last one ended; at 1 a bound says nothing."""
    if ax is None:
        from matplotlib import pyplot

        _, ax = pyplot.subplots(figsize=(7, 3), layout="constrained")
    names = []
    for row, (name, start, end, kind) in enumerate(steps(certificate)):
        names.append(name)
        ax.barh(row, end - start, left=start, color=_COLOURS[kind])
        ax.annotate(
            f"{end:.3f}", (max(start, end), row), (4, 0), textcoords="offset points", va="center"
        )
    ax.axvline(1, color="0.3", linestyle=":", linewidth=1)
    ax.set_yticks(range(len(names)), names)
    ax.invert_yaxis()
    ax.margins(x=0.15)
    ax.set_xlabel(f"{certificate.settings.get('loss', '')} risk between two classes (1: vacuous)")
    return ax

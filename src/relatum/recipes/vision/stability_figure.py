"""Objective against step, and where it ended: the paper's figure 1a."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from ..experiments.figure import COLOURS, marked, panels, save_svg
from ..experiments.seeds import Runs

__all__ = ["stability_svg"]

_NAMES: Final = ("dv", "nwj", "js", "cpc", "rpc")
_TITLES: Final = {("dot", "8"): "raw scores (dot / 8)", ("cosine", "0.5"): "cosines / 0.5"}


def stability_svg(groups: Mapping[tuple[str, str, str], Runs], path: Path) -> None:
    """One panel of raw scores, one of cosines; a cross marks the first loss that is not finite.

    The loss is drawn, −J up to a constant; where one runs away, on a scale that is linear near zero
    and logarithmic beyond.
    """
    figure, axes = panels(2, width=4.6, height=3.2)
    for axis, (critic, title) in zip(axes[0], _TITLES.items(), strict=True):
        top = 10.0
        for name, colour in zip(_NAMES, COLOURS, strict=False):
            for number, record in enumerate(groups.get((name, *critic), {}).values()):
                curve = [p for p in record["training"]["curve"] if isinstance(p[1], int | float)]
                steps, losses = [p[0] for p in curve], [p[1] for p in curve]
                label = name.upper() if number == 0 else None
                axis.plot(steps, losses, color=colour, linewidth=1.4, label=label)
                end = record["training"]["nonfinite_step"]
                top = max([top, *losses])
                if end is not None:
                    marked(axis, [end], [losses[-1] if losses else 10.0], colour)
        if top > 100:
            axis.set_yscale("symlog", linthresh=10)
        axis.set_title(title, loc="left", fontsize=9)
        axis.set_xlabel("step")
    axes[0][0].set_ylabel("loss, nats (× = not finite)")
    for axis in axes[0]:
        if axis.lines:
            axis.legend(frameon=False, fontsize=8, ncols=2)
    save_svg(figure, path)

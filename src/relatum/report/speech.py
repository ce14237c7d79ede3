"""One utterance on the report: its sound, and spectrogram and phone posteriors above each other."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any, Final

import matplotlib as mpl
import numpy as np
from jaxtyping import Float
from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from ..runs import RunError
from .drawing import INK, STYLE, to_svg

__all__ = ["utterance_figure", "utterance_view"]

# Seen on light and on dark paper alike: how much there is of a colour says how much there is.
_BLUE, _ORANGE = to_rgb("#2f8fd0"), to_rgb("#e0701a")
_TICKS: Final = (250, 500, 1000, 2000, 4000)
_SHOWN: Final = 0.3  # a phone that is not there has a row where the probe was so sure of it once
_HOP: Final = 0.01


def utterance_view(payload: Mapping[str, Any], run: str, identity: str) -> dict[str, Any]:
    """What the template shows: sound, figure and a sentence.

    Args:
        payload: The result of kind "utterance".
        run: Its run, for messages.
        identity: Begins the ids of the figure.

    Raises:
        RunError: If the sound or a drawing is not what it says.
    """
    sound = _bytes(payload["sound"], run)
    if not sound.startswith(b"fLaC"):
        raise RunError(f"the utterance of {run} holds no FLAC file")
    held_out = "held out from the probe" if payload["held_out"] else "none was held out"
    words = f"{payload['id']}, speaker {payload['speaker'] or 'not named'} ({held_out}): "
    words += f"{payload['seconds']:.1f} of {payload['whole_seconds']:.1f} s."
    if "phones" in payload:
        sure = unpacked(payload["posteriors"], run).argmax(1)
        pairs = [(t, i) for t, i in zip(payload["phones"], sure, strict=True) if t is not None]
        right = sum(truth == payload["classes"][i] for truth, i in pairs)
        words += f" The probe has {right} of these {len(pairs)} frames right."
    svg = utterance_figure(payload, run, identity)
    return {"sound": payload["sound"], "svg": Markup(svg), "words": words}


def utterance_figure(payload: Mapping[str, Any], run: str, identity: str) -> str:
    """The spectrogram, and below it the posteriors of phones or, without labels, the features."""
    energies = unpacked(payload["spectrogram"], run)
    told = f"Spectrogram of {payload['id']}, {payload['seconds']:.1f} s"
    rows, names = [], []
    if "phones" in payload:
        posteriors = unpacked(payload["posteriors"], run)
        rows = _rows(payload, posteriors)
        names = [payload["classes"][i] for i in rows]
        said = ", ".join(_said(payload["phones"]))
        told += f"; phone posteriors of {', '.join(names)}; true phones in order: {said}"
    height = 0.14 * len(rows) if rows else 1.6
    with mpl.rc_context({**STYLE, "axes.grid": False, "font.size": 9}):
        figure = Figure(figsize=(8.6, 2.2 + height))
        figure.patch.set_alpha(0.0)
        above, below = figure.subplots(2, 1, sharex=True, height_ratios=[1.6, height])
        for axes in (above, below):
            axes.patch.set_alpha(0.0)
        _spectrogram(above, energies, np.asarray(payload["hertz"], float))
        if rows:
            _posteriors(below, posteriors[:, rows], names, payload["phones"])
        else:
            _features(below, unpacked(payload["features"], run))
        below.set_xlabel("seconds")
        return to_svg(figure, identity, told)


def unpacked(packed: Mapping[str, Any], run: str) -> Float[np.ndarray, "t c"]:
    """Numbers from 0 to 1 that were written as bytes.

    Raises:
        RunError: If there are not as many as the shape says.
    """
    data, (t, c) = _bytes(packed["base64"], run), packed["shape"]
    if len(data) != t * c:
        raise RunError(
            f"a drawing of the utterance of {run} should hold {t} x {c} bytes, has {len(data)}"
        )
    return np.frombuffer(data, np.uint8).reshape(t, c) / 255.0


def _bytes(text: str, run: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise RunError(f"the utterance of {run} holds what is not base64") from None


def _rows(payload: Mapping[str, Any], posteriors: Float[np.ndarray, "t c"]) -> list[int]:
    """The phones with a row: those that are said, and those that the probe is sure of somewhere."""
    said = set(payload["phones"])
    seen = posteriors.max(0, initial=0) >= _SHOWN
    return [i for i, name in enumerate(payload["classes"]) if name in said or seen[i]]


def _said(phones: Sequence[str | None]) -> list[str]:
    return [name for name, _ in groupby(phones) if name is not None]


def _paint(
    axes: Axes, colour: Float[np.ndarray, "r t 3"], amount: Float[np.ndarray, "r t"]
) -> None:
    picture = np.concatenate([colour, amount[..., None]], 2)
    t = amount.shape[1] * _HOP
    axes.imshow(
        picture, aspect="auto", origin="lower", interpolation="none",
        extent=(0, t, -0.5, len(amount) - 0.5),
    )  # fmt: skip


def _one(colour: tuple[float, float, float], shape: tuple[int, int]) -> Float[np.ndarray, "r t 3"]:
    return np.broadcast_to(np.array(colour), (*shape, 3))


def _spectrogram(axes: Axes, energies: Float[np.ndarray, "t b"], hertz: np.ndarray) -> None:
    _paint(axes, _one(_BLUE, energies.T.shape), energies.T)
    ticks = [tick for tick in _TICKS if hertz[0] <= tick <= hertz[-1]]
    places = np.interp(ticks, hertz, np.arange(len(hertz)))
    axes.set_yticks(places, [f"{tick:,}" for tick in ticks])
    axes.set_ylabel("Hz, mel scale")


def _posteriors(
    axes: Axes,
    posteriors: Float[np.ndarray, "t r"],
    names: Sequence[str],
    truth: Sequence[str | None],
) -> None:
    _paint(axes, _one(_ORANGE, posteriors.T.shape), posteriors.T)
    start = 0
    for name, frames in groupby(truth):
        length = len(list(frames))
        if name is not None:
            corner = (start * _HOP, names.index(name) - 0.5)
            box = Rectangle(corner, length * _HOP, 1, fill=False, edgecolor=INK, linewidth=0.8)
            axes.add_patch(box)
        start += length
    axes.set_yticks(range(len(names)), names, fontsize=7.5, parse_math=False)
    axes.set_ylim(len(names) - 0.4, -0.6)
    axes.set_ylabel("phone")


def _features(axes: Axes, features: Float[np.ndarray, "t d"]) -> None:
    """Blue above the mean of the utterance, orange below, full colour at three deviations."""
    away = 2 * features.T - 1
    colour = np.where(away[..., None] > 0, np.array(_BLUE), np.array(_ORANGE))
    _paint(axes, colour, np.abs(away))
    axes.set_ylabel("feature")

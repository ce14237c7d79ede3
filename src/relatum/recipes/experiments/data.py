"""Where the data of the published experiments lie."""

from __future__ import annotations

import os
from pathlib import Path

from ...settings import SettingsError

__all__ = ["found_data"]


def found_data(given: Path | None, name: str) -> Path:
    """The folder of a data set.

    As given, else the first that is there of ``$RELATUM_DATA/NAME``, ``data/NAME`` and
    ``../shared/data/NAME``.

    Args:
        given: By the caller.
        name: Of the data set, as "cifar10" or "speech".

    Raises:
        SettingsError: If none of them is there; the message lists them.
    """
    if given is not None:
        if not given.exists():
            raise SettingsError(f"--data {given} is not there")
        return given
    roots = [Path(text) for text in (os.environ.get("RELATUM_DATA"),) if text]
    places = [root / name for root in (*roots, Path("data"), Path("../shared/data"))]
    for place in places:
        if place.exists():
            return place
    raise SettingsError(
        f"the data set {name} is none of {', '.join(map(str, places))}; name its folder by --data, "
        "or the folder of all data sets by the environment variable RELATUM_DATA"
    )

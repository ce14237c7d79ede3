"""The grid of relative parameters, and the heads that it is run for."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

__all__ = ["DECIDING", "GRID", "HEADS", "TITLES", "Point"]

GRID: Final = (0.0, 0.001, 1.0)
"""The paper's values of alpha, beta and gamma."""

DECIDING: Final = (0.001, 1.0)
"""The paper's best beta and gamma: the cells that its two statements are about."""

HEADS: Final[dict[str, dict[str, Any]]] = {
    "released": {"critic": "dot", "temperature": 128.0},
    "offset": {"critic": "dot", "temperature": 128.0, "projection_offset": True},
    "cosine": {"critic": "cosine", "temperature": 128.0},
}
"""The released head, whose embeddings sum to zero; the same with an offset; cosines, as an early
launch command of the authors has them. All divided by 128."""

TITLES: Final = {
    "released": "released head (no offset), dot / 128",
    "offset": "head with offset, dot / 128",
    "cosine": "cosine / 128",
}


class Point(NamedTuple):
    """Where a cell stands in the grid of a head."""

    head: str
    alpha: float
    beta: float
    gamma: float

"""From a log density ratio to the score that an objective knows, and back to its readings."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

from ..base import Objective
from ..objectives import NWJ, RPC
from ..relative import relative_score

__all__ = ["Link", "link_of", "raw_scores"]

Link = Callable[[Tensor], Tensor]
"""The score f of which u is the log density ratio, elementwise."""


def raw_scores(score: Tensor) -> Tensor:
    """The link of a critic that outputs the objective's score itself."""
    return score


def link_of(objective: Objective) -> Link:
    r"""The optimal critic of an objective as a function of u = log r.

    Networks here output u whatever they are trained by, and the objective sees f = link(u):
    :func:`relatum.relative.relative_score` for RPC, u + 1 for NWJ, u for all others (DV, CPC, JS,
    MINE, SMILE; TUBA's baselined score). So a score cannot leave RPC's range, one network begins
    at the same ratio under every objective, and a reading compares like with like.

    Raises:
        ValueError: For RPC with γ = 0, whose optimal critic has no lower end.
    """
    if isinstance(objective, RPC):
        weights = objective.alpha, objective.beta, objective.gamma
        if objective.gamma == 0:
            raise ValueError("RPC needs gamma > 0 here: with gamma = 0 scores have no lower end")
        return lambda u: relative_score(u, *weights)
    if isinstance(objective, NWJ):
        return lambda u: u + 1
    return lambda u: u

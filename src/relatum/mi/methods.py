"""The estimators by name: what each maximises, and how it is read on rows it has not seen."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple, Protocol

import numpy as np
from jaxtyping import Float64, Int64

from ..base import Objective
from ..objectives import CPC, DV, JS, NWJ, RPC, chi_square
from .discrete import discrete, histogram, mixed
from .doe import Family
from .gaussian import gaussian
from .influence import (
    influence_cpc,
    influence_dv,
    influence_js,
    influence_nwj,
    influence_plug_in,
    influence_smile,
    influence_tuba,
)
from .ksg import ksg
from .objectives import MINE, SMILE, TUBA
from .reading import Reading

__all__ = ["DOE", "METHODS", "READERS", "RPC_DEFAULT", "TRAINED", "Trained"]

Logs = Float64[np.ndarray, "n k"]


class _Read(Protocol):
    """A reading from log ratios u of positives and of sampled negatives with their rows."""

    def __call__(
        self,
        positives: Float64[np.ndarray, " n"],
        negatives: Logs,
        candidates: Int64[np.ndarray, "n k"],
    ) -> Reading: ...


class Trained(NamedTuple):
    """A critic's method: the objective it is fitted by, and its reading."""

    objective: Callable[[], Objective]
    read: _Read
    plug_in: bool


def _mean_log_ratio(positives: Any, negatives: Any, candidates: Any) -> Reading:
    return influence_plug_in(positives)


def _nwj(positives: Any, negatives: Any, candidates: Any) -> Reading:
    return influence_nwj(positives + 1, negatives + 1, candidates)


RPC_DEFAULT: Final = {"alpha": 1.0, "beta": 0.05, "gamma": 1.0}

TRAINED: Final[dict[str, Trained]] = {
    "rpc": Trained(lambda: RPC(**RPC_DEFAULT), _mean_log_ratio, True),
    "cpc": Trained(CPC, influence_cpc, False),
    "nwj": Trained(NWJ, _nwj, False),
    "dv": Trained(DV, influence_dv, False),
    "mine": Trained(MINE, influence_dv, False),
    "js": Trained(JS, influence_js, False),
    "smile": Trained(SMILE, influence_smile, False),
    "tuba": Trained(TUBA, influence_tuba, False),
    "chi2": Trained(chi_square, _mean_log_ratio, True),
}
"""Methods that fit a critic; it outputs u = log r under each of them (``links.py``)."""

DOE: Final[dict[str, Family]] = {"doe": "gaussian", "doe-logistic": "logistic"}
"""Methods that fit two densities."""

READERS: Final[dict[str, Callable[..., Reading]]] = {
    "ksg": ksg,
    "gaussian": gaussian,
    "discrete": discrete,
    "mixed": mixed,
    "histogram": histogram,
}
"""Methods that need no training: functions of two arrays."""

METHODS: Final[dict[str, str]] = {
    "rpc": "relative predictive coding, E_P log r̂ of a critic held in range",
    "cpc": "InfoNCE, at most log N",
    "nwj": "Nguyen-Wainwright-Jordan",
    "dv": "Donsker-Varadhan",
    "mine": "Donsker-Varadhan, gradient against a moving average",
    "js": "Jensen-Shannon critic, read by NWJ at f + 1",
    "smile": "Jensen-Shannon critic, read by DV with a clipped partition",
    "tuba": "NWJ with a learned baseline of y",
    "chi2": "RPC(0, 0, 1), E_P log r̂",
    "doe": "difference of entropies, Gaussian densities",
    "doe-logistic": "difference of entropies, logistic densities",
    "ksg": "Kraskov-Stögbauer-Grassberger, nearest neighbours",
    "gaussian": "closed form for Gaussian variables, free of bias",
    "discrete": "table of counts, Miller-Madow",
    "mixed": "classes against numbers, nearest neighbours (Ross)",
    "histogram": "equal-mass bins, Miller-Madow",
}
"""Every method, with a line on what it is."""

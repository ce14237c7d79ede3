"""The estimators by name: what each maximises, and how it is read on rows it has not seen."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final, NamedTuple, Protocol, get_args

import numpy as np
import torch
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
from .links import link_of, raw_scores
from .objectives import MINE, SMILE, TUBA
from .reading import Reading
from .readouts import Outside, ReadOut, log_ratio_of_mean_score, mean_log_ratio

__all__ = [
    "DOE",
    "METHODS",
    "READERS",
    "TRAINED",
    "Trained",
    "check_reader",
    "relative_method",
    "trained_method",
]

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


TRAINED: Final[dict[str, Trained]] = {
    "rpc": Trained(lambda: RPC(1.0, 0.05, 1.0), _mean_log_ratio, True),
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


def trained_method(name: str, options: Mapping[str, Any]) -> tuple[Trained, dict[str, Any]]:
    """The method with its own options taken in, and the options that are left for the fit.

    Raises:
        ValueError: If an option belongs to another method, or is out of range.
    """
    left = dict(options)
    own = {key: left.pop(key) for key in _OWN.get(name, ()) if key in left}
    for other, keys in _OWN.items():
        for key in keys:
            if key in left:
                raise ValueError(f"{key} belongs to method {other!r}; {name!r} has none")
    if name == "rpc":
        return relative_method(**own, form=left.get("form", "logit")), left
    if name == "smile" and own:
        return TRAINED[name]._replace(read=partial(influence_smile, tau=SMILE(**own).tau)), left
    return TRAINED[name], left


_OWN: Final = {"rpc": ("alpha", "beta", "gamma", "readout", "outside"), "smile": ("tau",)}


def relative_method(
    alpha: float = 1.0,
    beta: float = 0.05,
    gamma: float = 1.0,
    *,
    form: str = "logit",
    readout: str = "mean_log_ratio",
    outside: Outside = "end",
) -> Trained:
    """RPC with other weights, raw scores or the published read-out.

    Args:
        alpha: Weight α of the mean negative score.
        beta: Weight β of the squared positive scores.
        gamma: Weight γ of the squared negative scores.
        form: "logit" or "raw", as for :func:`~relatum.mi.fit_critic`.
        readout: "mean_log_ratio", or "log_ratio_of_mean_score" as published, which is no estimate
            of mutual information.
        outside: What becomes of raw scores outside the range (:mod:`relatum.mi.readouts`).

    Raises:
        ValueError: If a weight is out of range, or the read-out or policy unknown.
    """
    if readout not in _READOUTS:
        raise ValueError(f"readout must be one of {', '.join(_READOUTS)}, got {readout!r}")
    if outside not in get_args(Outside):
        raise ValueError(f"outside must be one of {get_args(Outside)}, got {outside!r}")
    objective = RPC(alpha, beta, gamma)
    link = raw_scores if form == "raw" else link_of(objective)

    def read(positives: Any, negatives: Any, candidates: Any) -> Reading:
        if readout == "mean_log_ratio" and form == "logit":
            return influence_plug_in(positives)
        scores = link(torch.from_numpy(positives)).numpy()
        return _relative_reading(scores, (alpha, beta, gamma), readout, outside)

    return Trained(lambda: objective, read, form == "logit" and readout == "mean_log_ratio")


def _relative_reading(
    scores: Float64[np.ndarray, " n"],
    weights: tuple[float, float, float],
    readout: str,
    outside: Outside,
) -> Reading:
    """A read-out of scores, with the counts of those that have no ratio."""
    found = _READOUTS[readout](scores, *weights, outside=outside)
    terms = found.pointwise
    if terms is None:
        # Influence of one logarithm: its slope at the mean score.
        _, beta, gamma = weights
        mean = scores.mean()
        slope = gamma / (gamma * mean + weights[0]) + beta / (1 - beta * mean)
        terms = found.value + slope * (scores - mean)
    elif outside == "drop":
        terms = np.where(np.isnan(terms), found.value, terms)
    settings = {"readout": readout, "outside": outside}
    counts = {"below": found.below, "above": found.above, "replaced": found.adjusted}
    return Reading(found.value, terms, found.pointwise, "plug-in", settings=settings, counts=counts)


_READOUTS: Final[dict[str, Callable[..., ReadOut]]] = {
    "mean_log_ratio": mean_log_ratio,
    "log_ratio_of_mean_score": log_ratio_of_mean_score,
}

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


def check_reader(method: str, options: Mapping[str, Any]) -> None:
    """Refuses options that a method without training does not have.

    Raises:
        ValueError: Naming those it has.
    """
    known = list(inspect.signature(READERS[method]).parameters)[2:]
    for name in options:
        if name not in known:
            raise ValueError(
                f"unknown option {name!r} of method {method!r}; known are {', '.join(known)}"
                if known
                else f"method {method!r} has no options, got {name!r}"
            )


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

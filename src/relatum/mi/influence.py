r"""Readings of scores with the influence of each row: the first-order law of their sampling error.

Rows are what is resampled, and a row is in the estimate several times: as a positive, as an anchor
of negatives, as a candidate of other anchors. With weights w on rows, a mean over negatives is
:math:`\bar g(w) = \sum_{(i,j)} w_i w_j g_{ij} / \sum_{(i,j)} w_i w_j`, and its slope at w = 1

.. math:: n\, \partial \bar g / \partial w_l
    = \frac{n}{|E|} \sum_{(i,j) \in E:\; l \in \{i, j\}} (g_{ij} - \bar g)

with E the pairs (anchor, candidate) used. Terms are value plus slope: their mean is the value, and
their sample variance / n estimates the variance of the value (infinitesimal jackknife). Every
function takes the scores of the positives, (n,), and of the negatives:

* (n, n): all pairs, S[i, j] = f(x_i, y_j); the diagonal is left out;
* (n, k) with ``candidates`` (n, k): the row whose y each sampled negative carries.
"""

from __future__ import annotations

import math

import numpy as np
from jaxtyping import Float64, Int64
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from .reading import Reading

__all__ = [
    "influence_cpc",
    "influence_dv",
    "influence_js",
    "influence_nwj",
    "influence_plug_in",
    "influence_smile",
    "influence_tuba",
]

SATURATED = 0.1  # nats below the ceiling

Terms = Float64[np.ndarray, " n"]
Negatives = Float64[np.ndarray, "n k"]


def influence_nwj(
    positives: ArrayLike, negatives: ArrayLike, candidates: ArrayLike | None = None
) -> Reading:
    r"""NWJ, :math:`E_P f - E_Q e^{f-1}`, a lower bound.

    Args:
        positives: f(x_i, y_i), (n,).
        negatives: Scores of negatives, (n, n) or (n, k).
        candidates: Rows of sampled negatives, (n, k); never the anchor's own.

    Raises:
        ValueError: If shapes do not fit, n < 2, or a row is its own negative.

    Example:
        >>> influence_nwj([1.0, 1.0], np.ones((2, 2))).value
        0.0
    """
    f, scores, rows = _read(positives, negatives, candidates)
    return _unnormalised(f, scores - 1, rows, pointwise=f - 1)


def influence_js(
    positives: ArrayLike, negatives: ArrayLike, candidates: ArrayLike | None = None
) -> Reading:
    r"""A critic trained by JS, read with NWJ at f + 1: :math:`1 + E_P f - E_Q e^f`.

    A lower bound. Arguments and errors are those of :func:`influence_nwj`.
    """
    f, scores, rows = _read(positives, negatives, candidates)
    return _unnormalised(1 + f, scores, rows, pointwise=f)


def influence_tuba(
    positives: ArrayLike, negatives: ArrayLike, candidates: ArrayLike | None = None
) -> Reading:
    r"""TUBA, :math:`1 + E_P s - E_Q e^s` at scores s = f − log A(y); a lower bound.

    Arguments and errors are those of :func:`influence_nwj`.
    """
    return influence_js(positives, negatives, candidates)


def influence_dv(
    positives: ArrayLike, negatives: ArrayLike, candidates: ArrayLike | None = None
) -> Reading:
    r"""DV, :math:`E_P f - \log E_Q e^f`: a lower bound in the population, biased in a sample.

    Arguments and errors are those of :func:`influence_nwj`.
    """
    f, scores, rows = _read(positives, negatives, candidates)
    top = float(scores.max())
    log_mean, slopes = _log_mean(scores - top, rows)
    terms = f - (log_mean + top) - slopes
    value = float(terms.mean())
    return Reading(value, terms, f - (log_mean + top), "lower bound", notes=_notes(value, len(f)))


def influence_smile(
    positives: ArrayLike,
    negatives: ArrayLike,
    candidates: ArrayLike | None = None,
    *,
    tau: float = 5.0,
) -> Reading:
    r"""SMILE, :math:`E_P f - \log E_Q e^{\mathrm{clip}(f, -\tau, \tau)}`: no bound.

    Arguments and errors are those of :func:`influence_nwj`; ``tau`` is in nats.
    """
    f, scores, rows = _read(positives, negatives, candidates)
    log_mean, slopes = _log_mean(scores.clip(-tau, tau), rows)
    terms = f - log_mean - slopes
    return Reading(float(terms.mean()), terms, f, "plug-in", settings={"tau": tau})


def influence_cpc(
    positives: ArrayLike, negatives: ArrayLike, candidates: ArrayLike | None = None
) -> Reading:
    r"""CPC, :math:`E_i[f_{ii} - \log \frac1K (e^{f_{ii}} + \sum_j e^{f_{ij}})]`, at most log K.

    K counts the candidates of one anchor, its own partner included. Arguments and errors are those
    of :func:`influence_nwj`. Within 0.1 nat of log K the reading is noted as saturated.
    """
    f, scores, rows = _read(positives, negatives, candidates)
    size = scores.shape[1] + 1
    everyone = np.concatenate([f[:, None], scores], axis=1)
    top = everyone.max(1, keepdims=True)
    log_mean = np.log(np.exp(everyone - top).mean(1)) + top[:, 0]
    contrast = f - log_mean
    # One more candidate moves the log of its anchors' means by (e^f / mean − 1)/K.
    moves = np.exp(scores - log_mean[:, None]) - 1
    slopes = -np.bincount(rows.ravel(), moves.ravel(), len(f)) / size
    terms = contrast + slopes - slopes.mean()
    value, ceiling = float(contrast.mean()), math.log(size)
    notes = (
        (
            f"saturated: {value:.3f} nats is within {SATURATED} of the ceiling "
            f"log {size} = {ceiling:.3f}; the mutual information may be anything above",
        )
        if value > ceiling - SATURATED
        else ()
    )
    return Reading(value, terms, None, "lower bound", ceiling=ceiling, notes=notes)


def influence_plug_in(log_ratios: ArrayLike) -> Reading:
    r"""The plain mean :math:`E_P \log \hat r`: no bound; each row's term is its own log ratio.

    Args:
        log_ratios: :math:`\log \hat r(x_i, y_i)`, (n,), in nats.
    """
    terms = _array("log_ratios", log_ratios)
    return Reading(float(terms.mean()), terms, terms, "plug-in")


def _unnormalised(f: Terms, exponents: Negatives, rows: _Rows, pointwise: Terms) -> Reading:
    """E_P f − E_Q e^exponent; overflow is reported as an infinite value, not hidden."""
    with np.errstate(over="ignore", invalid="ignore"):
        powers = np.exp(exponents)
        terms = f - powers.mean() - _slopes(powers, rows)
        value = float(f.mean() - powers.mean())
    return Reading(value, terms, pointwise, "lower bound", notes=_notes(value, len(f)))


def _notes(value: float, n: int) -> tuple[str, ...]:
    if not math.isfinite(value):
        return ("the exponential of a score overflows: the reading is not finite",)
    if value > math.log(n):
        return (
            f"above log {n} = {math.log(n):.3f} nats: no lower bound read from {n} rows can be "
            "trusted that high, whatever its interval says",
        )
    return ()


def _log_mean(exponents: Negatives, rows: _Rows) -> tuple[float, Terms]:
    """Log of the mean of exponentials, and its slopes."""
    powers = np.exp(exponents)
    mean = float(powers.mean())
    return math.log(mean), _slopes(powers, rows) / mean


def _slopes(values: Negatives, rows: _Rows) -> Terms:
    """The slope of the mean of values in each row's weight, as anchor and as candidate, times n."""
    excess = values - values.mean()
    n, k = values.shape
    as_candidate = np.bincount(rows.ravel(), excess.ravel(), n)
    slopes: Terms = (excess.sum(1) + as_candidate) / k
    return slopes


_Rows = Int64[np.ndarray, "n k"]


def _read(
    positives: ArrayLike, negatives: ArrayLike, candidates: ArrayLike | None
) -> tuple[Terms, Negatives, _Rows]:
    """Float64 scores, with the row of each candidate; a square matrix without its diagonal."""
    f, scores = _array("positives", positives), _array("negatives", negatives)
    n = len(f)
    if n < 2:
        raise ValueError(f"at least 2 rows are needed: {n} row has no negatives")
    if candidates is None:
        if scores.shape != (n, n):
            raise ValueError(
                f"negatives must be the ({n}, {n}) matrix of all pairs, or (n, k) with candidates; "
                f"got shape {scores.shape}"
            )
        others = ~np.eye(n, dtype=bool)
        rows = np.broadcast_to(np.arange(n), (n, n))[others].reshape(n, n - 1)
        return f, scores[others].reshape(n, n - 1), rows
    rows = np.asarray(candidates)
    if scores.ndim != 2 or len(scores) != n or rows.shape != scores.shape:
        raise ValueError(
            f"negatives and candidates must both have shape ({n}, k), got {scores.shape} and "
            f"{rows.shape}"
        )
    own = (rows == np.arange(n)[:, None]).any(1)
    if own.any():
        raise ValueError(
            f"row {int(own.argmax())} is among its own candidates: that pair is a positive. Draw "
            "shifts from 1 to n − 1, or take all pairs"
        )
    return f, scores, rows.astype(np.int64)


def _array(name: str, values: ArrayLike) -> NDArray[np.float64]:
    if isinstance(values, Tensor):
        values = values.detach().cpu().double()
    array = np.asarray(values, dtype=np.float64)
    if array.size == 0:
        raise ValueError(f"{name} must not be empty, got shape {array.shape}")
    return array

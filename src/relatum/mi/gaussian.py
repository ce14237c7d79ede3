r"""Gaussian variables: mutual information in closed form.

.. math:: I = \tfrac12 \log \frac{\det\Sigma_x \det\Sigma_y}{\det\Sigma}
            = -\tfrac12 \sum_k \log(1 - \rho_k^2)

with the canonical correlations :math:`\rho_k` between the sides.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Float64
from scipy.special import digamma, polygamma

from .gaussian_ratio import GaussianRatio
from .reading import Reading
from .scaling import varying

__all__ = ["GaussianRatio", "gaussian"]

# A column is a linear function of others when less than this part of its deviation is left: the
# rounding of QR on standardised columns stays far below.
_DEPENDENT = 1e-10


def gaussian(x: Float64[np.ndarray, "n dx"], y: Float64[np.ndarray, "n dy"]) -> Reading:
    r"""Mutual information of jointly Gaussian variables, free of bias at every n that allows it.

    .. math:: \hat I = \tfrac12 \log \frac{\det S_x \det S_y}{\det S} - \tfrac12 \sum_{i=0}^{d_y-1}
              \Bigl[\psi\bigl(\tfrac{\nu-i}2\bigr) - \psi\bigl(\tfrac{\nu-d_x-i}2\bigr)\Bigr],
              \qquad \nu = n - 1

    The sum is the exact bias for Gaussian data, for the determinant of a Wishart matrix has
    :math:`E \log\det` in digamma functions: at n = 200 and 50 + 50 columns it is 6 nats. The value
    does not change when a side is mapped linearly. The influence of a row is
    :math:`\hat I + \frac12 (q_x + q_y - q_{xy})` with the squared Mahalanobis distances q of its
    sides and of the pair, which is also :math:`\log \hat r` of the pair.

    The standard error is the larger of two: that of the influences, which holds for data of any
    law; and the exact one for independent Gaussian sides, in trigamma functions. The first forgets
    the second order, which is all there is near independence or with few rows for a column.

    Other data: the value is that of the Gaussian law with the same covariance. It misses whatever
    is not linear, and heavy tails bias it upwards in high dimension (a note says where).

    Args:
        x: One side. Constant columns carry nothing, and are left out with a note.
        y: The other side.

    Returns:
        A plug-in, in nats; any real number.

    Raises:
        ValueError: If n − 1 < dx + dy, if columns of a side are linearly dependent, or if a column
            of y is a linear function of x and the information thus infinite.

    References:
        Entropy expressions and their estimators for multivariate distributions (Ahmed & Gokhale,
        1989), section II. https://doi.org/10.1109/18.30996

    Example:
        >>> x = np.array([[-1.0], [0.0], [0.0], [1.0]])
        >>> y = np.array([[-1.0], [1.0], [-1.0], [1.0]])  # correlation √½
        >>> round(gaussian(x, y).settings["uncorrected"], 6)  # ½ log 2
        0.346574
    """
    x, notes_x = varying("x", x)
    y, notes_y = varying("y", y)
    notes = (*notes_x, *notes_y)
    (n, dx), dy = x.shape, y.shape[1]
    if dx == 0 or dy == 0:
        return Reading(0.0, np.zeros(n), np.zeros(n), "plug-in", notes=notes, standard_error=0.0)
    if n - 1 < dx + dy:
        raise ValueError(
            f"gaussian needs at least dx + dy + 1 = {dx + dy + 1} rows for {dx} + {dy} columns, "
            f"got {n}: take fewer columns, such as leading principal components of each side"
        )
    pair, side = np.linalg.qr(np.column_stack([x, y])), np.linalg.qr(y)
    logs = _log_diagonal(pair.R, side.R, n, dx)
    uncorrected = float(logs.side - logs.pair)
    last, first = (n - 1 - np.arange(dy)) / 2, (n - 1 - dx - np.arange(dy)) / 2
    bias = float((digamma(last) - digamma(first)).sum() / 2)
    value = uncorrected - bias
    # Row norms of the orthonormal factors are the Mahalanobis distances over n; x's cancels.
    terms = value + n / 2 * ((side.Q**2).sum(axis=1) - (pair.Q[:, dx:] ** 2).sum(axis=1))
    independent = float((polygamma(1, first) - polygamma(1, last)).sum() / 4)
    return Reading(
        value=value,
        terms=terms,
        pointwise=terms,
        kind="plug-in",
        notes=(*notes, *_not_gaussian("x", x), *_not_gaussian("y", y)),
        standard_error=float(np.sqrt(max(terms.var(ddof=1) / n, independent))),
        settings={"uncorrected": uncorrected, "bias": bias},
    )


class _Logs(NamedTuple):
    pair: float
    side: float


def _log_diagonal(
    pair: Float64[np.ndarray, "p p"], side: Float64[np.ndarray, "dy dy"], n: int, dx: int
) -> _Logs:
    """½ log det of y given x, and of y alone, up to the same constant."""
    left, of_y = np.abs(np.diag(pair)), np.abs(np.diag(side))
    floor = _DEPENDENT * np.sqrt(n)  # every column has the norm √n
    for name, rest in (("x", left[:dx]), ("y", of_y)):
        if (rest <= floor).any():
            raise ValueError(
                f"column {int(np.argmax(rest <= floor))} of {name} (from 0, of those that vary) is "
                "a linear function of the columns before it: drop it"
            )
    if (left[dx:] <= floor).any():
        raise ValueError(
            f"column {int(np.argmax(left[dx:] <= floor))} of y (from 0, of those that vary) is a "
            "linear function of x and the columns before it: the mutual information is infinite"
        )
    return _Logs(pair=float(np.log(left[dx:]).sum()), side=float(np.log(of_y).sum()))


def _not_gaussian(side: str, x: Float64[np.ndarray, "n d"]) -> tuple[str, ...]:
    """A note where standardised columns are far from Gaussian, beyond what sampling explains."""
    n = len(x)
    skewed = np.abs((x**3).mean(axis=0)) > 0.5 + 5 * np.sqrt(6 / n)
    tailed = np.abs((x**4).mean(axis=0) - 3) > 1 + 5 * np.sqrt(24 / n)
    far = int((skewed | tailed).sum())
    if not far:
        return ()
    return (
        f"{far} of {x.shape[1]} columns of {side} are far from Gaussian: the value is that of a "
        "Gaussian law with the same covariance",
    )

r"""The one inequality behind every width of this room."""

from __future__ import annotations

import math

from .checks import check_delta

__all__ = ["bounded_difference_tail"]


def bounded_difference_tail(squares: float, delta: float) -> float:
    r"""How far a statistic exceeds its expectation with probability at most δ.

    .. math:: \sqrt{\tfrac12 \ln(1/\delta) \sum_i c_i^2}

    where the i-th of its independent arguments moves it by at most :math:`c_i` (McDiarmid). The
    mean of M numbers in an interval of length B has :math:`\sum c_i^2 = B^2 / M` (Hoeffding).

    Args:
        squares: :math:`\sum_i c_i^2`.
        delta: δ.

    Raises:
        ValueError: If δ is not in (0, 1).

    References:
        On the Method of Bounded Differences (McDiarmid, 1989), Lemma 1.2.

    Example:
        >>> round(bounded_difference_tail(1 / 50, 0.05), 4)
        0.1731
    """
    check_delta(delta)
    return math.sqrt(math.log(1 / delta) / 2 * float(squares))

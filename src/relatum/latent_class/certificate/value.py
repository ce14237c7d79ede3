"""The one number that is certified: a mean loss of independent triplets, widened, less collisions.

Every row serves in one triplet only, so the encoder needs no complexity and the probability is what
it says it is.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
from jaxtyping import Float64

from ..bounds import mean_classifier_bound
from ..bounds.hold_out import hold_out_bound
from ..checks import losses_of

__all__ = ["Certified", "Triplets", "pair_triplets"]

_NO_RADIUS = (
    "no radius was given, a bound on |f(x)| known before the data (1/√T for unit vectors divided "
    "by the root of a temperature T). All numbers are estimates."
)
_TOO_FEW = (
    "too few independent rows for triplets without a common row. No other seed may be tried: the "
    "best of several is no certificate."
)

# Of the two inequalities, Bernstein's is the narrower one for losses of moderate variance from
# about so many on. The choice may depend on their number, not on the losses.
_BERNSTEIN = 200


class Certified(NamedTuple):
    """The bound on L_sup^μ, None where there is none; whether it is vacuous; how it came about."""

    value: float | None
    vacuous: bool | None
    reason: str


@dataclass(frozen=True)
class Triplets:
    r"""Independent triplets, and what turns their mean loss into a bound on L_sup^μ.

    .. math:: L_{sup}^\mu \le \frac{U - \tau}{1 - \tau}, \qquad
              U = \bar\ell + \text{width}(M, \delta)

    Attributes:
        draw: The losses of M triplets that share no row, of embeddings times a factor; None where
            classes ran out.
        loss: "hinge" or "logistic".
        radius: R, None where it is not known.
        delta: δ.
        tau: τ.
        lower: Whether that is only a lower bound: then U >= 1 certifies nothing.
    """

    draw: Callable[[float], Float64[np.ndarray, " m"] | None]
    loss: str
    radius: float | None
    delta: float
    tau: float
    lower: bool = False

    def certified(self, factor: float = 1.0) -> Certified:
        """The bound at confidence 1 − δ of the embeddings times a factor."""
        losses = self.draw(factor)
        if self.radius is None:
            return Certified(None, None, _NO_RADIUS)
        if losses is None or len(losses) < 2:
            return Certified(None, None, _TOO_FEW)
        few = len(losses) < _BERNSTEIN
        method: Literal["hoeffding", "bernstein"] = "hoeffding" if few else "bernstein"
        radius = factor * self.radius
        risk = hold_out_bound(losses, radius, self.loss, delta=self.delta, method=method)
        how = (
            f"{len(losses):,} triplets without a common row: mean loss {risk.terms['sample']:.3f}, "
            f"width {risk.terms['width']:.3f} ({method.capitalize()}), τ "
            f"{'>=' if self.lower else '='} {self.tau:.3f}."
        )
        if self.lower and risk.value >= 1:
            return Certified(None, True, f"the contrastive risk may be 1 or more. {how}")
        bound = mean_classifier_bound(risk.value, self.tau, tau_is_lower_bound=self.lower)
        return Certified(bound.value, bound.vacuous, how)

    def bound(self, factor: float) -> float:
        """The same as a number: without a radius a point estimate, infinite where there is none."""
        if self.radius is not None:
            value = self.certified(factor).value
            return math.inf if value is None else value
        losses = self.draw(factor)
        if losses is None or len(losses) < 2:
            return math.inf
        return mean_classifier_bound(float(losses.mean()), self.tau).value


def pair_triplets(
    anchors: Float64[np.ndarray, "n d"],
    positives: Float64[np.ndarray, "n d"],
    negatives: Float64[np.ndarray, "m d"] | None,
    loss: str,
    seed: int,
) -> Float64[np.ndarray, " k"]:
    """Losses that share no row, from independent pairs, with rows of the marginal or without.

    Without them two pairs lend each other their positives as negatives; the mean of the two losses
    is one number in the range of the loss.
    """
    generator = np.random.default_rng(seed)
    order = generator.permutation(len(anchors))
    if negatives is not None:
        number = min(len(anchors), len(negatives))
        rows, others = order[:number], generator.permutation(len(negatives))[:number]
        return _losses(loss, anchors[rows], positives[rows], negatives[others])
    first, second = order[: len(order) // 2 * 2].reshape(2, -1)
    both = [
        _losses(loss, anchors[a], positives[a], positives[b])
        for a, b in ((first, second), (second, first))
    ]
    return np.asarray((both[0] + both[1]) / 2)


def _losses(
    loss: str,
    x: Float64[np.ndarray, "m d"],
    positive: Float64[np.ndarray, "m d"],
    negative: Float64[np.ndarray, "m d"],
) -> Float64[np.ndarray, " m"]:
    return np.asarray(losses_of(loss, (x * (negative - positive)).sum(1)))

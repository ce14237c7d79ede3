"""Wasserstein predictive coding."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from jaxtyping import Float
from torch import Tensor

from ..base import ObjectiveCard, Scores
from .cpc import CPC

__all__ = ["WPC"]


@dataclass(frozen=True)
class WPC:
    r"""Wasserstein predictive coding: CPC's formula over 1-Lipschitz critics.

    .. math:: J(f) = \mathrm{CPC}(f), \qquad \|f\|_{\mathrm{Lip}} \le 1
        \text{ as a function of } (x, y)

    It bounds the Wasserstein dependency as well as the mutual information from below. The
    constraint is not part of the formula: add :func:`relatum.gradient_penalty` on the scores'
    inputs to the loss (the trainer does, with weight 10). ``ContrastiveLoss(WPC(), ...)`` alone is
    CPC's cross-entropy.

    References:
        Wasserstein Dependency Measure for Representation Learning (Ozair et al., 2019), Eq. 6.
        https://arxiv.org/abs/1903.11780
    """

    CARD: ClassVar[ObjectiveCard] = ObjectiveCard(
        title="WPC",
        formula="CPC, f kept 1-Lipschitz by a gradient penalty",
        reduction="log-sum-exp per anchor",
        optimum="no closed form",
        mi_reading="none",
        cost="O(N² d) and the penalty",
        stable="yes",
        batch="yes",
        downstream="no",
    )

    def __call__(self, scores: Scores) -> Float[Tensor, ""]:
        """J(f), in nats."""
        return CPC()(scores)

    def cross_entropy(self, scores: Scores) -> Float[Tensor, ""]:
        """The mean of log K_i − J_i, in nats."""
        return CPC().cross_entropy(scores)

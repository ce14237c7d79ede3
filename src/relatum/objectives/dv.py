"""The Donsker-Varadhan objective."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from jaxtyping import Float
from torch import Tensor

from ..base import ObjectiveCard, Scores

__all__ = ["DV"]


@dataclass(frozen=True)
class DV:
    r"""Donsker-Varadhan: the tightest of the bounds, and the least stable.

    .. math:: J(f) = E_P[f] - \log E_Q[e^f]

    One logarithm is taken over all negatives together. The optimal critic is :math:`\log r + c`
    for any constant c. The population value is a lower bound of the mutual information; the
    minibatch value is biased, since the logarithm stands outside a mean.

    References:
        Mutual Information Neural Estimation (Belghazi et al., 2018), Eq. 10.
        https://arxiv.org/abs/1801.04062

    Example:
        >>> import torch
        >>> from relatum.scores import from_matrix
        >>> DV()(from_matrix(torch.tensor([[1.0, -1.0], [-1.0, 2.0]])))
        tensor(2.5000)
    """

    CARD: ClassVar[ObjectiveCard] = ObjectiveCard(
        title="DV",
        formula="E_P f − log E_Q exp f",
        reduction="log-mean-exp over all",
        optimum="log r + c",
        mi_reading="lower bound (biased in a batch)",
        cost="O(N² d)",
        stable="no",
        batch="yes",
        downstream="no",
    )

    def __call__(self, scores: Scores) -> Float[Tensor, ""]:
        """J(f), in nats."""
        return scores.average(scores.positives) - scores.negatives.log_mean_exp()

    def mutual_information(self, scores: Scores) -> Float[Tensor, ""]:
        """J itself: a lower bound in the population, biased in a batch."""
        return self(scores)

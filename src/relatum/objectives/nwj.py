"""The Nguyen-Wainwright-Jordan objective."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from jaxtyping import Float
from torch import Tensor

from ..base import ObjectiveCard, Scores

__all__ = ["NWJ"]


@dataclass(frozen=True)
class NWJ:
    r"""Nguyen-Wainwright-Jordan: a lower bound whose minibatch value is unbiased.

    .. math:: J(f) = E_P[f] - E_Q[e^{f - 1}]

    The optimal critic is :math:`1 + \log r`, and the value there the mutual information. The
    exponential of a large score overflows float32 at about 88; that is the instability the paper
    speaks of, and it is reported, not hidden.

    References:
        Estimating Divergence Functionals and the Likelihood Ratio by Convex Risk Minimization
        (Nguyen et al., 2010). https://arxiv.org/abs/0809.0853

    Example:
        >>> import torch
        >>> from relatum.scores import from_matrix
        >>> NWJ()(from_matrix(torch.ones(2, 2)))
        tensor(0.)
    """

    CARD: ClassVar[ObjectiveCard] = ObjectiveCard(
        title="NWJ",
        formula="E_P f − E_Q exp(f − 1)",
        reduction="log-mean-exp over all",
        optimum="1 + log r",
        mi_reading="lower bound",
        cost="O(N² d)",
        stable="no",
        batch="yes",
        downstream="no",
    )

    def __call__(self, scores: Scores) -> Float[Tensor, ""]:
        """J(f), in nats."""
        return scores.average(scores.positives) - (scores.negatives.log_mean_exp() - 1).exp()

    def log_density_ratio(self, score: Float[Tensor, "*any"]) -> Float[Tensor, "*any"]:
        """Log r = f − 1."""
        return score - 1

    def mutual_information(self, scores: Scores) -> Float[Tensor, ""]:
        """J itself: a lower bound."""
        return self(scores)

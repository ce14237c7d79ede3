"""The Jensen-Shannon objective."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from jaxtyping import Float
from torch import Tensor

from ..base import ObjectiveCard, Scores
from ..surrogates import softplus

__all__ = ["JS"]


@dataclass(frozen=True)
class JS:
    r"""Jensen-Shannon (f-GAN form): logistic classification of positives against negatives.

    .. math:: J(f) = -E_P[\mathrm{sp}(-f)] - E_Q[\mathrm{sp}(f)], \qquad
        \mathrm{sp}(z) = \log(1 + e^z)

    This is the raw form: J lies in [−2 log 2, 0], is :math:`-2 \log 2` at a critic that is zero
    everywhere, and :math:`2\,\mathrm{JSD}(P \| Q) - 2 \log 2` at the optimal critic :math:`\log r`.
    It is not mutual information.

    References:
        f-GAN: Training Generative Neural Samplers using Variational Divergence Minimization
        (Nowozin et al., 2016), Table 6. https://arxiv.org/abs/1606.00709

    Example:
        >>> import torch
        >>> from relatum.scores import from_matrix
        >>> JS()(from_matrix(torch.zeros(2, 2)))
        tensor(-1.3863)
    """

    CARD: ClassVar[ObjectiveCard] = ObjectiveCard(
        title="JS",
        formula="−E_P softplus(−f) − E_Q softplus(f)",
        reduction="mean of softplus",
        optimum="log r",
        mi_reading="lower bound: NWJ at f + 1",
        cost="O(N² d)",
        stable="yes",
        batch="yes",
        downstream="no",
    )

    def __call__(self, scores: Scores) -> Float[Tensor, ""]:
        """J(f), in nats."""
        return -scores.average(softplus(-scores.positives)) - scores.negatives.mean(softplus)

    def log_density_ratio(self, score: Float[Tensor, "*any"]) -> Float[Tensor, "*any"]:
        """Log r = f."""
        return score

    def mutual_information(self, scores: Scores) -> Float[Tensor, ""]:
        """NWJ at f + 1, a lower bound: 1 + E_P f − E_Q exp f."""
        return 1 + scores.average(scores.positives) - scores.negatives.log_mean_exp().exp()

"""The k-negative logistic loss of the latent-class theory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from jaxtyping import Float
from torch import Tensor

from ..base import ObjectiveCard, Scores
from ..surrogates import LogisticSurrogate

__all__ = ["Logistic"]


@dataclass(frozen=True)
class Logistic:
    r"""The k-negative logistic loss in base 2: CPC's cross-entropy divided by log 2.

    .. math:: J(f) = -E_i \log_2\Big(1 + \sum_{j \in \mathrm{neg}(i)} e^{f_{ij} - f_{ii}}\Big)

    All negatives of an anchor are its k. It is 1 for one negative and a critic that tells nothing
    apart. The base is 2 so that the loss bounds the zero-one error, as the theory wants it.

    References:
        A Theoretical Analysis of Contrastive Unsupervised Representation Learning (Saunshi et
        al., 2019), sections 2 and 6. https://arxiv.org/abs/1902.09229

    Example:
        >>> import torch
        >>> from relatum.scores import from_matrix
        >>> Logistic()(from_matrix(torch.zeros(2, 2)))
        tensor(-1.)
    """

    CARD: ClassVar[ObjectiveCard] = ObjectiveCard(
        title="Logistic (k negatives)",
        formula="−E_P log₂(1 + Σ_j exp(f_ij − f_ii))",
        reduction="log-sum-exp per anchor",
        optimum="log r + c(x)",
        mi_reading="none (in bits: see CPC)",
        cost="O(N² d)",
        stable="–",
        batch="–",
        downstream="–",
    )

    def __call__(self, scores: Scores) -> Float[Tensor, ""]:
        """J(f), in bits."""
        surrogate = LogisticSurrogate()
        return -scores.average_contrasted(
            surrogate(scores.negatives.logsumexp() - scores.positives)
        )

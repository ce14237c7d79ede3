"""The k-negative hinge loss of the latent-class theory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from jaxtyping import Float
from torch import Tensor

from ..base import ObjectiveCard, Scores
from ..surrogates import HingeSurrogate

__all__ = ["Hinge"]


@dataclass(frozen=True)
class Hinge:
    r"""The k-negative hinge loss: only the worst negative of an anchor counts.

    .. math:: J(f) = -E_i \max\big(0, 1 + \max_{j \in \mathrm{neg}(i)} f_{ij} - f_{ii}\big)

    All negatives of an anchor are its k. With one negative this is the triplet loss with margin 1.

    References:
        A Theoretical Analysis of Contrastive Unsupervised Representation Learning (Saunshi et
        al., 2019), sections 2 and 6. https://arxiv.org/abs/1902.09229

    Example:
        >>> import torch
        >>> from relatum.scores import from_matrix
        >>> Hinge()(from_matrix(torch.zeros(3, 3)))
        tensor(-1.)
    """

    CARD: ClassVar[ObjectiveCard] = ObjectiveCard(
        title="Hinge (k negatives)",
        formula="−E_P max(0, 1 + max_j f_ij − f_ii)",
        reduction="maximum per anchor",
        optimum="depends on the classes",
        mi_reading="none",
        cost="O(N² d)",
        stable="–",
        batch="–",
        downstream="–",
    )

    def __call__(self, scores: Scores) -> Float[Tensor, ""]:
        """J(f), without unit."""
        surrogate = HingeSurrogate()
        return -scores.average_contrasted(surrogate(scores.negatives.max() - scores.positives))

"""Contrastive predictive coding (InfoNCE)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from jaxtyping import Float
from torch import Tensor

from ..base import ObjectiveCard, Scores
from ..surrogates import softplus

__all__ = ["CPC"]


@dataclass(frozen=True)
class CPC:
    r"""Contrastive predictive coding, also known as InfoNCE; with two views, NT-Xent.

    .. math:: J(f) = \frac1n \sum_i \Big[ f_{ii} - \log \frac1{K_i}
        \Big( e^{f_{ii}} + \sum_{j \in \mathrm{neg}(i)} e^{f_{ij}} \Big) \Big]

    where :math:`K_i` counts anchor i's candidates, its own positive among them. The optimal critic
    is :math:`\log r + c(x)` for any function c. J is a lower bound of the mutual information that
    saturates at :math:`\log K`; when J nears log K, the information may be anything above it.

    The loss shown by :class:`~relatum.ContrastiveLoss` is the cross-entropy
    :math:`\log K - J`, as people know NT-Xent: log K is where a critic that tells nothing apart
    stands, and 0 is its floor.

    References:
        Representation Learning with Contrastive Predictive Coding (van den Oord et al., 2018),
        Eq. 4. https://arxiv.org/abs/1807.03748

    Example:
        >>> import torch
        >>> from relatum.scores import from_matrix
        >>> CPC()(from_matrix(torch.zeros(4, 4)))
        tensor(0.)
    """

    CARD: ClassVar[ObjectiveCard] = ObjectiveCard(
        title="CPC / InfoNCE",
        formula="E_P[f_ii − log mean_j exp f_ij]",
        reduction="log-sum-exp per anchor",
        optimum="log r + c(x)",
        mi_reading="lower bound, at most log K",
        cost="O(N² d)",
        stable="yes",
        batch="no",
        downstream="yes",
    )

    def __call__(self, scores: Scores) -> Float[Tensor, ""]:
        """J(f), in nats."""
        logsumexp = scores.negatives.logsumexp()
        # f − log(e^f + e^l) written as −softplus(l − f): the difference of two near-equal numbers
        # loses its gradient when the positive dominates.
        log_candidates = scores.negatives.counts.to(logsumexp.dtype).log1p()
        return scores.average_contrasted(log_candidates - softplus(logsumexp - scores.positives))

    def cross_entropy(self, scores: Scores) -> Float[Tensor, ""]:
        """The mean of log K_i − J_i, in nats."""
        logsumexp = scores.negatives.logsumexp()
        return scores.average_contrasted(softplus(logsumexp - scores.positives))

    def mutual_information(self, scores: Scores) -> Float[Tensor, ""]:
        """J itself: a lower bound in expectation, at most log K."""
        return self(scores)

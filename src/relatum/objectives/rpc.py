"""Relative predictive coding."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import ClassVar

from jaxtyping import Float
from torch import Tensor

from ..base import Moments, ObjectiveCard, Scores
from ..relative import check_relative_parameters, log_density_ratio

__all__ = ["CHI_SQUARE_CARD", "RPC", "chi_square"]


@dataclass(frozen=True)
class RPC:
    r"""Relative predictive coding: bounded, no logarithm or exponential, two moments of negatives.

    .. math:: J(f) = E_P[f] - \alpha E_Q[f] - \tfrac\beta2 E_P[f^2] - \tfrac\gamma2 E_Q[f^2]

    where :math:`P` is the joint law of positives and :math:`Q` the product of marginals. The
    optimal critic is the relative density ratio :math:`f^* = (r - \alpha) / (\beta r + \gamma)`
    with :math:`r = dP/dQ`; it lies in :math:`[-\alpha/\gamma, 1/\beta)`, and J of *any* critic is
    at most :math:`1/2\beta + \alpha^2/2\gamma` (:func:`relatum.rpc_bounds`).

    Negatives enter through their first two moments alone, so with a separable critic a batch costs
    time linear in its size. ``RPC(0, 0, 1)`` is the chi-square case, known in representation
    learning as the **spectral contrastive loss** (up to a factor 2).

    Args:
        alpha: Weight α >= 0 of the mean negative score.
        beta: Penalty β >= 0 on squared positive scores; caps the optimal critic at 1/β. Zero
            warns: unbounded on a finite batch.
        gamma: Penalty γ >= 0 on squared negative scores. Zero warns: unbounded.

    Raises:
        ValueError: If a weight is outside its range.

    References:
        Self-supervised Representation Learning with Relative Predictive Coding (Tsai et al.,
        2021), section 2 and Lemma 1. https://arxiv.org/abs/2103.11275

    Example:
        >>> import torch
        >>> from relatum.scores import from_matrix
        >>> RPC(alpha=1.0, beta=0.5, gamma=1.0)(from_matrix(2.0 * torch.eye(2)))  # 2 − ¼ · 4
        tensor(1.)
    """

    alpha: float = 1.0
    beta: float = 0.005
    gamma: float = 1.0

    CARD: ClassVar[ObjectiveCard] = ObjectiveCard(
        title="RPC(α, β, γ)",
        formula="E_P f − α E_Q f − β/2 E_P f² − γ/2 E_Q f²",
        reduction="first and second moment",
        optimum="(r − α) / (β r + γ)",
        mi_reading="plug-in: E_P log r̂",
        cost="O(N d²)",
        stable="yes",
        batch="yes",
        downstream="yes",
    )

    def __post_init__(self) -> None:
        """Checks the weights."""
        check_relative_parameters(self.alpha, self.beta, self.gamma)
        corners = [name for name in ("beta", "gamma") if getattr(self, name) == 0]
        if corners:
            names = " and ".join(corners)
            warnings.warn(
                f"RPC with {names} = 0 is unbounded on a finite batch: expect large scores, and "
                f"choose {names} > 0 for a bounded objective",
                UserWarning,
                stacklevel=3,
            )

    def __call__(self, scores: Scores) -> Float[Tensor, ""]:
        """J(f)."""
        return self.from_moments(scores.positive_moments(), scores.negatives.moments())

    def from_moments(self, positives: Moments, negatives: Moments) -> Float[Tensor, ""]:
        """J(f) from the moments of positives and negatives alone."""
        return (
            positives.mean
            - self.alpha * negatives.mean
            - self.beta / 2 * positives.mean_square
            - self.gamma / 2 * negatives.mean_square
        )

    def log_density_ratio(self, score: Float[Tensor, "*any"]) -> Float[Tensor, "*any"]:
        """Log r = log(α + γ f) − log(1 − β f); NaN outside the range of the optimal critic."""
        return log_density_ratio(score, self.alpha, self.beta, self.gamma)

    def mutual_information(self, scores: Scores) -> Float[Tensor, ""]:
        """The plug-in E_P log r̂ (no bound); NaN if a positive lies outside the critic's range.

        The logarithm is taken inside the mean: the published code averages the scores first and
        takes the logarithm of one number, which reads 3.8 nats at the perfect critic for 2.
        """
        return scores.average(self.log_density_ratio(scores.positives))


CHI_SQUARE_CARD = RPC.CARD._replace(
    title="chi-square, RPC(0, 0, 1): the spectral contrastive loss",
    formula="E_P f − ½ E_Q f²",
    optimum="r",
    stable="–",
    batch="–",
    downstream="–",
)


def chi_square() -> RPC:
    r"""RPC(0, 0, 1): :math:`J(f) = E_P f - \frac12 E_Q f^2`, optimum r, value (χ² + 1)/2.

    The spectral contrastive loss (HaoChen et al., 2021) is −2 J. It is unbounded on a finite batch
    in principle; whoever asks for it by this name knows, so it does not warn.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return RPC(0.0, 0.0, 1.0)

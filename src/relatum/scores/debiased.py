r"""Negatives without the share of the anchor's own class that hides among them.

In-batch negatives are drawn from the marginal, of which a share τ belongs to the anchor's class.
For every function φ of a score,

.. math:: E_\mathrm{neg} φ = τ E_\mathrm{pos} φ + (1 - τ) E_\mathrm{true} φ
    \quad\Rightarrow\quad
    E_\mathrm{true} φ = \frac{E_\mathrm{neg} φ - τ E_\mathrm{pos} φ}{1 - τ}

and every reduction that is an expectation is exchanged for the right-hand side. The estimate of a
positive quantity may come out negative. For exponentials there is a lower end that it cannot truly
fall below, :math:`e^{f_\min}` with :math:`f_\min` the critic's lowest score (−1/T for cosines), and
they stop there, as published; moments and means of φ have none and are left as they come out.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from numbers import Real

import torch
from jaxtyping import Float, Int
from torch import Tensor

from ..base import Elementwise, Moments, Scores

__all__ = ["Debiased", "checked_prior", "debiased", "debiased_moments"]

Lowest = Float[Tensor, ""] | float | None
"""The lowest score a critic can give; None if there is none."""


def checked_prior(prior: object) -> float:
    """τ as a number.

    Raises:
        ValueError: If it is not in [0, 1).
    """
    if not (isinstance(prior, Real) and 0 <= float(prior) < 1):
        raise ValueError(
            f"positive_prior must be a number with 0 <= τ < 1, got {prior!r}: it is the share of "
            "negatives that belong to the anchor's own class, 1 / C for C equally common classes"
        )
    return float(prior)


def debiased(scores: Scores, prior: float, lowest: Lowest = None) -> Scores:
    """The same scores, their negatives without the share of the anchor's class.

    Args:
        scores: Positives and negatives of a batch.
        prior: τ, the share of negatives that belong to the anchor's class; 0 changes nothing.
        lowest: The lowest score of the critic, if there is one; exponentials need it.

    Raises:
        ValueError: If τ is not in [0, 1).

    References:
        Debiased Contrastive Learning (Chuang et al., 2020), section 4.
        https://arxiv.org/abs/2007.00224

    Example:
        >>> from relatum.scores import from_matrix
        >>> scores = from_matrix(torch.tensor([[2.0, 1.0], [1.0, 2.0]]))
        >>> debiased(scores, 0.25).negatives.moments().mean  # (1 − ¼ · 2) / ¾
        tensor(0.6667)
    """
    prior = checked_prior(prior)
    return replace(scores, negatives=Debiased(scores, prior, lowest)) if prior else scores


def debiased_moments(negatives: Moments, positives: Moments, prior: float) -> Moments:
    """The moments of the true negatives; nothing keeps the second one from being negative."""
    return Moments(*(_without(n, p, prior) for n, p in zip(negatives, positives, strict=True)))


def _without(negatives: Tensor, positives: Tensor, prior: float) -> Tensor:
    return (negatives - prior * positives) / (1 - prior)


class Debiased:
    r"""Negatives whose expectations leave out the share τ of the anchor's own class.

    With :math:`K_i` negatives, an anchor's sum of exponentials becomes

    .. math:: K_i \max\Big( \frac{1}{1 - τ}\Big(\frac1{K_i} \sum_j e^{f_{ij}} - τ e^{f_{ii}}\Big),
        e^{f_\min} \Big)

    and the pooled mean of exponentials the same with :math:`E_P e^f` over all positives. Where the
    floor holds, scores have no gradient, and a temperature that :math:`f_\min` depends on has.

    Args:
        scores: Positives and negatives of a batch.
        prior: 0 < τ < 1.
        lowest: The critic's lowest score.
    """

    def __init__(self, scores: Scores, prior: float, lowest: Lowest) -> None:
        self.scores, self.prior, self.lowest = scores, prior, lowest
        self.counts: Int[Tensor, " n"] = scores.negatives.counts

    def __repr__(self) -> str:
        return f"Debiased(τ={self.prior:.6g}, {self.scores.negatives!r})"

    def moments(self) -> Moments:
        """E f and E f² of the true negatives; the estimate of E f² may be negative."""
        observed = self.scores.negatives.moments()
        return debiased_moments(observed, self.scores.positive_moments(), self.prior)

    def mean(self, phi: Elementwise) -> Float[Tensor, ""]:
        """E φ(f) of the true negatives; the estimate may be negative even if φ is not."""
        positives = self.scores.average(phi(self.scores.positives))
        return _without(self.scores.negatives.mean(phi), positives, self.prior)

    def logsumexp(self) -> Float[Tensor, " n"]:
        """Log of K_i times the estimate of each anchor; −inf where an anchor has no negative."""
        empty = self.counts == 0
        observed = self.scores.negatives.logsumexp().masked_fill(empty, 0)
        log_count = self.counts.masked_fill(empty, 1).to(observed.dtype).log()
        estimate = self._estimate(observed - log_count, lambda each: each)
        return (estimate + log_count).masked_fill(empty, -torch.inf)

    def log_mean_exp(self) -> Float[Tensor, ""]:
        """Log of the estimate over all negatives and positives, of all processes."""
        return self._estimate(self.scores.negatives.log_mean_exp(), self.scores.average)

    def max(self) -> Float[Tensor, " n"]:
        """Refused.

        Raises:
            ValueError: Always: a maximum is no expectation.
        """
        raise ValueError(
            f"positive_prior={self.prior:.6g} corrects expectations over negatives, and this takes "
            "their maximum, from which no share can be subtracted: use positive_prior=0, or an "
            "objective of expectations, such as CPC, Logistic or RPC"
        )

    def _estimate(
        self, log_mean: Tensor, average: Callable[[Tensor], Tensor]
    ) -> Float[Tensor, "*any"]:
        """Log max((e^a − τ E e^p) / (1 − τ), e^lowest), written with τ E e^(p − a) to stay small.

        Args:
            log_mean: a, of each anchor or of all.
            average: E over the positives p that a is compared with.
        """
        if self.lowest is None:
            raise ValueError(
                f"positive_prior={self.prior:.6g} with exponentials of the negatives needs a "
                "critic with a lowest score, such as Cosine, below which the estimate cannot fall: "
                "use one, positive_prior=0, or an objective without exponentials, RPC or JS"
            )
        lowest = torch.as_tensor(self.lowest, dtype=log_mean.dtype, device=log_mean.device)

        def share(excess: Tensor) -> Tensor:
            return self.prior * average(excess.exp())

        def estimate(share: Tensor) -> Tensor:
            return log_mean + torch.log1p(-share) - math.log1p(-self.prior)

        excess = self.scores.positives - log_mean
        with torch.no_grad():
            found = share(excess)
            # Decided before anything with a gradient overflows. Neither holds for NaN, which stays.
            floored = (found >= 1) | (estimate(found) <= lowest)
        kept = estimate(share(excess.masked_fill(floored, -torch.inf)))
        return torch.where(floored, lowest, kept)

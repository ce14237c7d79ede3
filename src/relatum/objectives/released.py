"""The objectives as the code released with the paper computes them, to attribute differences."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float, Int
from torch import Tensor

from ..base import Elementwise, Moments, Objective, Scores
from .cpc import CPC
from .dv import DV
from .js import JS
from .nwj import NWJ
from .rpc import RPC

__all__ = ["Released"]


@dataclass(frozen=True)
class Released:
    r"""An objective in the arithmetic of the paper's released code: **to compare, not to use**.

    With N images of two views on R devices, n = N / R on each, the released loss is −J of

    .. math:: \mathrm{RPC}: \quad & E_Q \to w_0 E_Q, \qquad w_z = \tfrac{2N - 2 + z}{2n - 2 + z} \\
        \mathrm{JS, NWJ}: \quad & E_Q φ \to w_1 \frac{(2N - 2) E_Q φ + φ(0)}{2N - 1} \\
        \mathrm{DV}: \quad & \log E_Q e^f \to \frac{1}{2R} \sum_{p = 1}^{2R} \log
        \frac{\sum_{(i, j) \in p} e^{f_{ij}} + n}{n (2n - 1)} \\
        \mathrm{CPC}: \quad & -J = 2\,(\log K - J_\mathrm{CPC}), \qquad K = 2N - 1

    Four deviations from the formulas, each with its effect:

    * *The count of one device.* Candidates are gathered from all devices, but their sum is divided
      by the count of one. The negatives of RPC, JS and NWJ weigh :math:`w_z \approx R` times too
      much: for RPC α and γ times :math:`w_0 = (N - 1) / (n - 1)`, for JS and NWJ an optimal critic
      lower by about log R. DV is moved by a constant.
    * *Pairs multiplied by zero.* JS and NWJ keep each anchor's own row, DV its positive, as one
      more negative of score 0. In JS and NWJ that is a constant and z = 1; in DV the log-partition
      cannot fall below −log(2n − 1), and has weaker gradients near it.
    * *Several logarithms.* DV takes one for the anchors p of each view on each device and averages
      them: each sees fewer negatives.
    * *A sum of two sides.* CPC adds the cross-entropies of both views where all others average: a
      factor 2, which layerwise rates hide for all but biases, normalisation and weight decay.

    With R = 1, RPC is as it should be. The value is −loss, without CPC's log K; there is no reading
    of mutual information. It needs the scores of ``pairing="two_view"``, without ids, given
    negatives or ``positive_prior``; the order of the rows says which device has which images.

    Args:
        objective: A CPC, DV, JS, NWJ or RPC. The released WPC does not run.
        devices: R >= 1, devices of the published run; processes of this run are another matter, but
            none may hold a part of what DV takes for one device.

    Raises:
        TypeError: If the objective is another.
        ValueError: If R < 1, R does not divide N, N / R < 2, or scores are not of two views.

    References:
        The published code, https://github.com/martinmamql/relative_predictive_coding, file
        vision/objective.py, of Self-supervised Representation Learning with Relative Predictive
        Coding (Tsai et al., 2021). https://arxiv.org/abs/2103.11275

    Example:
        >>> from relatum import ContrastiveLoss, DotProduct
        >>> x = torch.eye(4)  # all scores of negatives are 0: exp(0 − 1) times w_1 = 7 / 3
        >>> ContrastiveLoss(Released(NWJ(), devices=2), DotProduct())(x, x)  # 7 / 3 / e − 1
        tensor(-0.1416)
    """

    objective: Objective
    devices: int = 1

    def __post_init__(self) -> None:
        """Checks objective and devices."""
        if not isinstance(self.objective, CPC | DV | JS | NWJ | RPC):
            raise TypeError(
                "the released code computes CPC, DV, JS, NWJ and RPC alone: objective must be an "
                f"instance of one, such as RPC(), got {self.objective!r}"
            )
        if type(self.devices) is not int or self.devices < 1:
            raise ValueError(f"devices must be a whole number of at least 1, got {self.devices!r}")

    def __call__(self, scores: Scores) -> Float[Tensor, ""]:
        """J(f), minus the released loss."""
        images = _images(scores)
        share = self.share(images)
        if isinstance(self.objective, CPC):
            return -2 * self.objective.cross_entropy(scores)
        if isinstance(self.objective, RPC):
            weight = (images - 1) / (share - 1)
            negatives = Moments(*(weight * each for each in scores.negatives.moments()))
            return self.objective.from_moments(scores.positive_moments(), negatives)
        kept = _ZeroKeptByDevice if isinstance(self.objective, DV) else _ZeroKept
        return self.objective(replace(scores, negatives=kept(scores, images, share)))

    def share(self, images: int) -> int:
        """Images on each device, n = N / R.

        Raises:
            ValueError: If R does not divide N, or n < 2.
        """
        if images % self.devices or images < 2 * self.devices:
            raise ValueError(
                "devices must divide the images of a batch and leave at least 2 to each, got "
                f"devices {self.devices} for {images} images"
            )
        return images // self.devices


def _images(scores: Scores) -> int:
    """N, if these are the scores of two views of N images.

    Raises:
        ValueError: If an anchor has not 2N − 2 negatives.
    """
    counts = scores.negatives.counts
    anchors = int(scores.total(torch.ones_like(counts).sum()))
    if int(scores.total((counts != anchors - 2).sum())):
        raise ValueError(
            "the released arithmetic is that of pairing 'two_view', without ids, given negatives "
            f"or positive_prior: each of {anchors} anchors has to have {anchors - 2} negatives"
        )
    return anchors // 2


class _ZeroKept:
    """Negatives of which each anchor has one of score 0 more, divided by the count of one device.

    Args:
        scores: Positives and negatives of a batch.
        images: N, on all devices.
        share: n, on each.
    """

    def __init__(self, scores: Scores, images: int, share: int) -> None:
        self.scores, self.share = scores, share
        self.count, self.divisor = 2 * images - 2, 2 * share - 1
        self.counts: Int[Tensor, " n"] = scores.negatives.counts + 1

    def moments(self) -> Moments:
        """E f and E f², to which a zero adds nothing."""
        return Moments(*(self.count * e / self.divisor for e in self.scores.negatives.moments()))

    def mean(self, phi: Elementwise) -> Float[Tensor, ""]:
        """E φ(f)."""
        mean = self.scores.negatives.mean(phi)
        return (self.count * mean + phi(torch.zeros_like(mean))) / self.divisor

    def logsumexp(self) -> Float[Tensor, " n"]:
        """Log of Σ_j exp f_ij and 1 of each anchor."""
        return _with_one(self.scores.negatives.logsumexp())

    def log_mean_exp(self) -> Float[Tensor, ""]:
        """Log E exp f."""
        log_sum = self.scores.negatives.log_mean_exp() + math.log(self.count)
        return _with_one(log_sum) - math.log(self.divisor)

    def max(self) -> Float[Tensor, " n"]:
        """The highest score of each anchor, at least 0."""
        return self.scores.negatives.max().clamp_min(0)


class _ZeroKeptByDevice(_ZeroKept):
    """The same with a logarithm for the anchors of each view on each device."""

    def log_mean_exp(self) -> Float[Tensor, ""]:
        """The mean over views and devices of log E exp f."""
        anchors, total = self.logsumexp(), self.scores.total
        if int(total(self.counts.new_tensor(len(anchors) // 2 % self.share))):
            raise ValueError(
                f"each process needs whole devices of {self.share} images, got "
                f"{len(anchors) // 2} images here: use other processes or devices"
            )
        # First all first views stand in the order of the images, then all second ones.
        log_sums = anchors.reshape(-1, self.share).logsumexp(1)
        return self.scores.average(log_sums) - math.log(self.share * self.divisor)


def _with_one(log_sum: Float[Tensor, "*any"]) -> Float[Tensor, "*any"]:
    """Log(e^l + 1)."""
    return torch.logaddexp(log_sum, torch.zeros_like(log_sum))

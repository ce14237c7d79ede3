"""Objectives that mutual information alone asks for: MINE, TUBA and SMILE."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn

from ..base import Critic, Scores
from ..objectives import DV, JS

__all__ = ["MINE", "SMILE", "TUBA", "Baselined"]


class MINE(nn.Module):
    r"""Donsker-Varadhan with the gradient of its logarithm taken against a moving average.

    .. math:: J(f) = E_P[f] - \log E_Q[e^f], \qquad
        \nabla J := \nabla \Big(E_P[f] - \frac{E_Q[e^f]}{\bar z}\Big), \qquad
        \bar z \leftarrow (1 - \rho)\,\bar z + \rho\, E_Q[e^f]

    The gradient of the logarithm of a batch mean is biased; that against the average is less so.
    The value is DV's, in nats: the surrogate is no estimate and is never reported. The average
    starts at the first batch, moves with every call in training and with none in evaluation, and
    travels in ``state_dict`` (as a logarithm, so that it cannot overflow).

    Args:
        rate: The step ρ of the average, in (0, 1].

    Raises:
        ValueError: If the rate is outside its range.

    References:
        Mutual Information Neural Estimation (Belghazi et al., 2018), section 3.2.
        https://arxiv.org/abs/1801.04062

    Example:
        >>> from relatum.scores import from_matrix
        >>> mine = MINE()
        >>> mine(from_matrix(torch.eye(3))), mine.log_average.exp()
        (tensor(1.), tensor(1., dtype=torch.float64))
    """

    log_average: Float[Tensor, ""]

    def __init__(self, rate: float = 0.1) -> None:
        super().__init__()
        if not 0 < rate <= 1:
            raise ValueError(f"rate must be in (0, 1], got {rate}")
        self.rate = rate
        # NaN until the first batch.
        self.register_buffer("log_average", torch.tensor(math.nan, dtype=torch.float64))

    def forward(self, scores: Scores) -> Float[Tensor, ""]:
        """J(f), in nats, with the gradient of the surrogate."""
        log_mean = scores.negatives.log_mean_exp()
        surrogate = -(log_mean - self._average(log_mean.detach()).to(log_mean)).exp()
        value = scores.average(scores.positives) - log_mean.detach()
        return value + surrogate - surrogate.detach()

    def mutual_information(self, scores: Scores) -> Float[Tensor, ""]:
        """DV's value; the average stays where it is."""
        return DV().mutual_information(scores)

    def _average(self, log_mean: Float[Tensor, ""]) -> Float[Tensor, ""]:
        """Log z̄ after this batch; a first batch in evaluation is its own average, not kept."""
        old, new = self.log_average, log_mean.to(self.log_average)
        if old.isnan():
            moved = new
        elif self.training:
            weights = old.new_tensor([1 - self.rate, self.rate]).log()
            moved = torch.stack([old, new]).add(weights).logsumexp(0)
        else:
            return old
        if self.training:
            self.log_average.copy_(moved)
        return moved


class Baselined(nn.Module):
    r"""A critic minus a learned log-baseline, :math:`s(x, y) = f(x, y) - \log A(y)`.

    TUBA's share of the critic: the baseline belongs to y, so it is subtracted where y is scored
    and cannot end up on the wrong axis of a matrix. At TUBA's optimum s is log r.

    Args:
        critic: The critic f.
        log_baseline: A network from y, (\*, d), to log A(y), (\*, 1). Default: one learned number.

    Example:
        >>> from relatum.critics import JointMLP
        >>> critic = Baselined(JointMLP(2, 3), nn.Linear(3, 1))
        >>> critic(torch.zeros(4, 1, 2), torch.zeros(1, 4, 3)).shape
        torch.Size([4, 4])
    """

    symmetric = False
    constant: Tensor

    def __init__(self, critic: Critic, log_baseline: nn.Module | None = None) -> None:
        super().__init__()
        self.critic = critic
        self.log_baseline = log_baseline
        # A = e, where TUBA is NWJ.
        self.register_parameter(
            "constant", nn.Parameter(torch.ones(())) if log_baseline is None else None
        )

    def forward(self, x: Float[Tensor, "*a dx"], y: Float[Tensor, "*b dy"]) -> Float[Tensor, "*c"]:
        """The scores s(x, y), broadcasting over leading axes."""
        log_a: Tensor = self.constant
        if self.log_baseline is not None:
            log_a = self.log_baseline(y).squeeze(-1)
        return self.critic(x, y) - log_a


@dataclass(frozen=True)
class TUBA:
    r"""The tractable unnormalised bound, at the scores of a :class:`Baselined` critic.

    .. math:: J(s) = 1 + E_P[s] - E_Q[e^s], \qquad s(x, y) = f(x, y) - \log A(y)

    A lower bound of the mutual information for every critic and every baseline A > 0; the optimal
    s is log r. With A = e it is NWJ. Nats.

    References:
        On Variational Bounds of Mutual Information (Poole et al., 2019), Eq. 8.
        https://arxiv.org/abs/1905.06922

    Example:
        >>> from relatum.scores import from_matrix
        >>> TUBA()(from_matrix(torch.zeros(2, 2)))
        tensor(0.)
    """

    def __call__(self, scores: Scores) -> Float[Tensor, ""]:
        """J(s), in nats: what a critic trained by JS is read with, too."""
        return JS().mutual_information(scores)

    def log_density_ratio(self, score: Float[Tensor, "*any"]) -> Float[Tensor, "*any"]:
        """Log r = s."""
        return score

    def mutual_information(self, scores: Scores) -> Float[Tensor, ""]:
        """J itself: a lower bound."""
        return self(scores)


@dataclass(frozen=True)
class SMILE:
    r"""Trained as Jensen-Shannon, read as Donsker-Varadhan with a clipped partition.

    .. math:: \hat I = E_P[f] - \log E_Q[e^{\mathrm{clip}(f, -\tau, \tau)}]

    Only the partition is clipped, which bounds its variance and biases the reading: it is neither
    an upper nor a lower bound. τ = ∞ reads DV.

    Args:
        tau: Where scores are clipped, above 0, in nats.

    Raises:
        ValueError: If tau is not above 0.

    References:
        Understanding the Limitations of Variational Mutual Information Estimators (Song & Ermon,
        2020), Eq. 12. https://arxiv.org/abs/1910.06222

    Example:
        >>> from relatum.scores import from_matrix
        >>> SMILE(tau=1.0).mutual_information(from_matrix(torch.tensor([[3.0, 9.0], [9.0, 3.0]])))
        tensor(2.)
    """

    tau: float = 5.0

    def __post_init__(self) -> None:
        """Checks tau."""
        if not self.tau > 0:
            raise ValueError(f"tau must be above 0, got {self.tau}")

    def __call__(self, scores: Scores) -> Float[Tensor, ""]:
        """The objective that the critic is trained by, JS: not mutual information."""
        return JS()(scores)

    def log_density_ratio(self, score: Float[Tensor, "*any"]) -> Float[Tensor, "*any"]:
        """Log r = f."""
        return score

    def mutual_information(self, scores: Scores) -> Float[Tensor, ""]:
        """The reading, in nats; no bound."""
        partition = scores.negatives.mean(lambda f: f.clamp(-self.tau, self.tau).exp())
        return scores.average(scores.positives) - partition.log()

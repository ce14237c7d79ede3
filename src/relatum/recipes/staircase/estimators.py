"""What is trained, and the readings that one batch of each gives.

Two readings of one critic share its training: JS is read by NWJ at f + 1 and as SMILE, RPC by the
mean of log ratios and as published. Their difference is then the read-out's alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final, NamedTuple

from jaxtyping import Float
from torch import Tensor, nn

from ...base import InformationObjective, Scores
from ...critics import JointMLP
from ...mi.doe import DoE, Family
from ...mi.objectives import MINE, SMILE, TUBA, Baselined
from ...mi.readouts import log_ratio_of_mean_score, mean_log_ratio
from ...objectives import CPC, DV, JS, NWJ, RPC
from ...relative import relative_score
from ...scores import from_matrix
from .task import DIM

__all__ = ["LOGIT", "PAPER", "READINGS", "TRAININGS", "Batch"]

PAPER: Final = (1.0, 1e-4, 1.0)
LOGIT: Final = (1.0, 1e-2, 1.0)

# Each training, and what is read from it.
READINGS: Final[dict[str, tuple[str, ...]]] = {
    "cpc": ("cpc",),
    "nwj": ("nwj",),
    "js": ("js", "smile"),
    "dv": ("dv",),
    "mine": ("mine",),
    "tuba": ("tuba",),
    "rpc": ("rpc", "rpc-drop", "rpc-published"),
    "rpc-logit": ("rpc-logit",),
    "doe": ("doe",),
    "doe-logistic": ("doe-logistic",),
}


class Batch(NamedTuple):
    """One batch: the loss to minimise, and what was read before the update.

    Attributes:
        loss: To be minimised.
        readings: Estimates of mutual information by name, in nats.
        below: Positives at or below the lower end of RPC's range.
        above: Positives at or above its upper end.
    """

    loss: Float[Tensor, ""]
    readings: dict[str, float]
    below: int = 0
    above: int = 0


class AllPairs(nn.Module):
    """A joint critic on all pairs of a batch, under an objective that reads itself."""

    max_norm = math.inf

    def __init__(self, name: str, critic: nn.Module, objective: InformationObjective) -> None:
        super().__init__()
        self.name, self.critic, self.objective = name, critic, objective

    def forward(self, x: Float[Tensor, "n 20"], y: Float[Tensor, "n 20"]) -> Batch:
        """The batch's loss and readings."""
        return self.contrast(self.critic(x[:, None], y[None]))

    def contrast(self, matrix: Float[Tensor, "n n"]) -> Batch:
        """The same from the critic's matrix."""
        scores = from_matrix(matrix)
        loss = -self.objective(scores)
        seen = from_matrix(matrix.detach())
        return Batch(loss, self.read(seen))

    def read(self, scores: Scores) -> dict[str, float]:
        """The readings."""
        return {self.name: float(self.objective.mutual_information(scores))}


class JensenShannon(AllPairs):
    """JS, read by NWJ at f + 1 and as SMILE."""

    def read(self, scores: Scores) -> dict[str, float]:
        """Both readings."""
        return super().read(scores) | {"smile": float(SMILE(5.0).mutual_information(scores))}


class Relative(AllPairs):
    """RPC on raw scores with the paper's weights, read in both ways."""

    def contrast(self, matrix: Float[Tensor, "n n"]) -> Batch:
        """The loss, the readings, and the scores that have no ratio."""
        positives = matrix.detach().diagonal()
        right = mean_log_ratio(positives, *PAPER, outside="end")
        drop = mean_log_ratio(positives, *PAPER, outside="drop")
        published = log_ratio_of_mean_score(positives, *PAPER, outside="published floor")
        values = {"rpc": right.value, "rpc-drop": drop.value, "rpc-published": published.value}
        return Batch(-self.objective(from_matrix(matrix)), values, right.below, right.above)


class RelativeLogit(AllPairs):
    """RPC on scores that a logit keeps in range; the logit is the log ratio."""

    def contrast(self, matrix: Float[Tensor, "n n"]) -> Batch:
        """The loss at the bounded scores, and the mean logit of the positives."""
        loss = -self.objective(from_matrix(relative_score(matrix, *LOGIT)))
        return Batch(loss, {self.name: float(matrix.detach().diagonal().mean())})


class EntropyDifference(nn.Module):
    """DoE: its two cross-entropies are minimised together, and their difference is read."""

    max_norm = 10.0

    def __init__(self, name: str, width: int, family: Family) -> None:
        super().__init__()
        self.name, self.densities = name, DoE(DIM, DIM, width, family)

    def forward(self, x: Float[Tensor, "n 20"], y: Float[Tensor, "n 20"]) -> Batch:
        """The batch's loss and reading."""
        alone, given = self.densities(x, y)
        return Batch(alone + given, {self.name: float((alone - given).detach())})


def _critic(width: int) -> JointMLP:
    return JointMLP(DIM, DIM, hidden=(width, width))


def _log_baseline(width: int) -> nn.Module:
    return nn.Sequential(nn.Linear(DIM, width), nn.ReLU(), nn.Linear(width, 1))


TRAININGS: Final[dict[str, Callable[[int], AllPairs | EntropyDifference]]] = {
    "cpc": lambda width: AllPairs("cpc", _critic(width), CPC()),
    "nwj": lambda width: AllPairs("nwj", _critic(width), NWJ()),
    "js": lambda width: JensenShannon("js", _critic(width), JS()),
    "dv": lambda width: AllPairs("dv", _critic(width), DV()),
    "mine": lambda width: AllPairs("mine", _critic(width), MINE()),
    "tuba": lambda width: AllPairs("tuba", Baselined(_critic(width), _log_baseline(width)), TUBA()),
    "rpc": lambda width: Relative("rpc", _critic(width), RPC(*PAPER)),
    "rpc-logit": lambda width: RelativeLogit("rpc-logit", _critic(width), RPC(*LOGIT)),
    "doe": lambda width: EntropyDifference("doe", width, "gaussian"),
    "doe-logistic": lambda width: EntropyDifference("doe-logistic", width, "logistic"),
}
"""What is trained, by name; each takes the width of its two hidden layers."""

r"""The vocabulary of the library: critic, scores, negatives, objective. Imports nothing of ours.

A *critic* :math:`f(x, y)` scores a pair. *Positives* are scores of pairs from the joint law
:math:`P_{XY}`; *negatives* are scores of pairs from the product of marginals :math:`P_X P_Y`. An
*objective* :math:`J(f)` is a short formula over the positives and one reduction of the negatives;
it is **maximised**. A *loss* is **minimised**. How negatives are stored, tiled or summarised is the
business of ``scores/`` alone.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, Protocol, runtime_checkable

import torch
from jaxtyping import Float, Int
from torch import Tensor

__all__ = [
    "Critic",
    "CrossEntropyObjective",
    "DensityRatioObjective",
    "Elementwise",
    "InformationObjective",
    "MomentObjective",
    "Moments",
    "Negatives",
    "Objective",
    "ObjectiveCard",
    "Scores",
    "SeparableCritic",
]

Elementwise = Callable[[Tensor], Tensor]
"""A fixed elementwise function φ, differentiable, without parameters of its own."""


@runtime_checkable
class Critic(Protocol):
    """A score for pairs, broadcasting over leading axes.

    ``critic(x[:, None], y[None])`` is the matrix of all pairs and ``critic(x[:, None], negatives)``
    the scores of explicit negatives of shape ``(n, k, d)``. A critic whose scores have a lower end
    may say so by an attribute ``lowest``, a number or scalar tensor.

    Attributes:
        symmetric: Whether f(x, y) = f(y, x) for all pairs, which two-view pairings need.
    """

    symmetric: bool

    def __call__(self, x: Float[Tensor, "*a dx"], y: Float[Tensor, "*b dy"]) -> Float[Tensor, "*c"]:
        """The scores f(x, y)."""
        ...


@runtime_checkable
class SeparableCritic(Protocol):
    r"""A critic that is an inner product, :math:`f(x, y) = \langle u(x), v(y) \rangle`.

    The temperature is inside, as its square root on both sides, so that ``factors(x, x)`` is
    ``(u, u)`` for a symmetric critic. A critic may say by an attribute ``rowwise`` that no row of a
    factor depends on other rows; large batches then go through it in parts.
    """

    symmetric: bool

    def __call__(self, x: Float[Tensor, "*a dx"], y: Float[Tensor, "*b dy"]) -> Float[Tensor, "*c"]:
        """The scores f(x, y)."""
        ...

    def factors(
        self, x: Float[Tensor, "*a dx"], y: Float[Tensor, "*b dy"]
    ) -> tuple[Float[Tensor, "*a d"], Float[Tensor, "*b d"]]:
        """The factors (u, v), in float32 or better."""
        ...


class Moments(NamedTuple):
    """First two raw moments of a set of scores: E f and E f²."""

    mean: Float[Tensor, ""]
    mean_square: Float[Tensor, ""]


@runtime_checkable
class Negatives(Protocol):
    """Scores of pairs from the product of marginals, stored or not.

    Attributes:
        counts: The number of negatives of each anchor; ids and padding make them differ.
    """

    counts: Int[Tensor, " n"]

    def moments(self) -> Moments:
        """E_Q f and E_Q f², over all negatives that remain."""
        ...

    def mean(self, phi: Elementwise) -> Float[Tensor, ""]:
        """E_Q φ(f) for an elementwise φ, over all negatives that remain."""
        ...

    def logsumexp(self) -> Float[Tensor, " n"]:
        """Log Σ_j exp f_ij of each anchor; −inf where an anchor has none."""
        ...

    def log_mean_exp(self) -> Float[Tensor, ""]:
        """Log E_Q exp f, over all negatives that remain."""
        ...

    def max(self) -> Float[Tensor, " n"]:
        """The highest negative score of each anchor; −inf where an anchor has none."""
        ...


def _alone(value: Tensor) -> Tensor:
    return value


@dataclass(frozen=True)
class Scores:
    """What an objective sees: the positives f(x_i, y_i) and their negatives.

    Attributes:
        positives: The positives of this process.
        negatives: The negatives of its anchors.
        total: The sum over processes, each of which holds a part of the batch; differentiable.
            Objectives take means through the methods below, so they mean the whole batch.
    """

    positives: Float[Tensor, " n"]
    negatives: Negatives
    total: Callable[[Tensor], Tensor] = _alone

    def average(self, values: Float[Tensor, " n"]) -> Float[Tensor, ""]:
        """E_P: the mean over all positives."""
        return self._mean(values, torch.ones_like(values))

    def average_contrasted(self, values: Float[Tensor, " n"]) -> Float[Tensor, ""]:
        """The mean over the anchors that have a negative.

        An anchor whose negatives were all removed by ids would win its contrast without having one;
        it is left out here and counted by :attr:`uncontrasted`.
        """
        contrasted = self.negatives.counts > 0
        return self._mean(values.where(contrasted, 0), contrasted)

    def positive_moments(self) -> Moments:
        """E_P f and E_P f²."""
        return Moments(self.average(self.positives), self.average(self.positives.square()))

    @property
    def uncontrasted(self) -> int:
        """The number of anchors without any negative."""
        return int(self.total((self.negatives.counts == 0).sum()))

    def _mean(self, values: Tensor, counted: Tensor) -> Tensor:
        sums = self.total(torch.stack([values.sum(), counted.sum().to(values)]))
        return sums[0] / sums[1]


class ObjectiveCard(NamedTuple):
    """What the table of objectives says of one of them, in the notation of the library.

    ``stable``, ``batch`` and ``downstream`` are the paper's three verdicts: stable training,
    insensitive to the batch size, good downstream accuracy (Tsai et al. 2021, Table 1).
    """

    title: str
    formula: str
    reduction: str
    optimum: str
    mi_reading: str
    cost: str
    stable: str
    batch: str
    downstream: str


@runtime_checkable
class Objective(Protocol):
    """A functional J(f) of the scores, to be maximised."""

    def __call__(self, scores: Scores) -> Float[Tensor, ""]:
        """J(f), in nats where it has a unit."""
        ...


@runtime_checkable
class CrossEntropyObjective(Objective, Protocol):
    """An objective whose loss is customarily written as a cross-entropy, log K − J."""

    def cross_entropy(self, scores: Scores) -> Float[Tensor, ""]:
        """The mean over anchors of log K_i − J_i, K_i being the candidates of anchor i."""
        ...


@runtime_checkable
class DensityRatioObjective(Objective, Protocol):
    """An objective whose optimal critic reveals r = p(x, y) / (p(x) p(y)) score by score."""

    def log_density_ratio(self, score: Float[Tensor, "*any"]) -> Float[Tensor, "*any"]:
        """Log r as a function of the optimal critic's score; NaN where no ratio belongs to it."""
        ...


@runtime_checkable
class InformationObjective(Objective, Protocol):
    """An objective from whose scores mutual information can be read."""

    def mutual_information(self, scores: Scores) -> Float[Tensor, ""]:
        """The reading, in nats; the docstring says whether it is a bound or a plug-in."""
        ...


@runtime_checkable
class MomentObjective(Objective, Protocol):
    """An objective of two moments alone: it can train without keeping any embedding."""

    def from_moments(self, positives: Moments, negatives: Moments) -> Float[Tensor, ""]:
        """J(f) from the moments of positives and negatives."""
        ...

"""One training step of ``relatum train speech``: windows, frames, predictions, scores, loss."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from jaxtyping import Int64
from torch import Tensor

from ...base import CrossEntropyObjective, InformationObjective, Scores
from ...data.audio import Windows, unit_windows
from ...diagnostics import effective_rank
from ...scores import draw_negatives, look_ahead
from ...training import StepOutput
from .build import SpeechNetworks

__all__ = ["PredictionStep"]


@dataclass(frozen=True)
class PredictionStep:
    r"""The loss of a batch of windows: :math:`\sum_k -J_k`, one objective for each look-ahead k.

    Attributes:
        networks: Network and loss.
        windows: All training windows; those of a batch are read here.
        negatives: Frames drawn for each anchor.
        scope: Where they are drawn from.
        exclude_positive: Whether draws at the place of the positive are left out.
        normalize: Whether windows are brought to mean 0 and variance 1.
    """

    networks: SpeechNetworks
    windows: Windows
    negatives: int = 128
    scope: str = "any"
    exclude_positive: bool = False
    normalize: bool = False

    def __call__(self, rows: Int64[Tensor, " n"], seed: int) -> StepOutput:
        """The loss of these windows, shifts and negatives drawn from `seed`."""
        generator = torch.Generator().manual_seed(seed)
        device = next(self.networks.network.parameters()).device
        samples = self.windows.read(rows, generator).to(device)
        if self.normalize:
            samples = unit_windows(samples)
        frames, contexts = self.networks.network(samples)
        predictions = self.networks.network.predict(contexts)
        drawn = draw_negatives(
            self.windows.speaker[rows],
            frames.shape[1],
            predictions[0].shape[1],
            self.negatives,
            self.scope,
            generator,
        )
        scores = look_ahead(
            self.networks.loss.critic,
            predictions,
            frames,
            drawn,
            exclude_positive=self.exclude_positive,
        )
        loss = torch.stack([self.networks.loss.from_scores(each) for each in scores]).sum()
        return StepOutput(
            loss,
            terms=lambda: self._terms(scores),
            readings=lambda: self._readings(scores, contexts),
            finish=lambda: None,
        )

    @torch.no_grad()
    def _terms(self, scores: list[Scores]) -> dict[str, float | None]:
        """What the objective saw, for the message about a loss that is not finite."""
        moments = [each.negatives.moments() for each in scores]
        return {
            "mean positive score": _mean([each.positives.mean() for each in scores]),
            "mean negative score": _mean([each.mean for each in moments]),
            "mean squared negative score": _mean([each.mean_square for each in moments]),
        }

    @torch.no_grad()
    def _readings(self, scores: list[Scores], contexts: Tensor) -> dict[str, float | None]:
        """Means over the look-aheads; the accuracy is that of the positive being highest."""
        objective = self.networks.loss.objective
        wins = [
            each.average_contrasted((each.positives > each.negatives.max()).double())
            for each in scores
        ]
        mi = ceiling = None
        if isinstance(objective, InformationObjective):
            reading = _mean([objective.mutual_information(each) for each in scores])
            mi = reading if math.isfinite(reading) else None
        if isinstance(objective, CrossEntropyObjective):
            ceiling = _mean(
                [each.average(torch.log1p(each.negatives.counts.double())) for each in scores]
            )
        return {
            "mi": mi,
            "mi_ceiling": ceiling,
            "contrastive_accuracy": _mean(wins),
            "accuracy_first": float(wins[0]),
            "accuracy_last": float(wins[-1]),
            "effective_rank": float(effective_rank(contexts.flatten(0, 1))),
        }


def _mean(values: list[Tensor]) -> float:
    return float(torch.stack([value.double() for value in values]).mean())

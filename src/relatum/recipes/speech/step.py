"""One training step of ``relatum train speech``: windows, frames, predictions, scores, loss."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from ...base import CrossEntropyObjective, InformationObjective, Scores
from ...data.audio import Windows, unit_windows
from ...diagnostics import effective_rank
from ...distributed import Group
from ...penalty import gradient_penalty
from ...scores import draw_negatives, look_ahead
from ...training import StepOutput
from ..continuing import own_share
from .build import SpeechNetworks

__all__ = ["PredictionStep"]


@dataclass(frozen=True)
class PredictionStep:
    r"""The loss of a batch of windows: :math:`\sum_k -J_k`, one objective for each look-ahead k.

    On several processes each takes its share of the windows, shifted as one process would shift
    them. Negatives are drawn from the windows of all, whose frames are gathered: loss and gradient
    are those of one process with all windows, but for dropout, which each process draws for itself.

    Attributes:
        networks: Network and loss; the loss knows the processes.
        windows: All training windows; those of a batch are read here.
        negatives: Frames drawn for each anchor.
        scope: Where they are drawn from.
        exclude_positive: Whether draws at the place of the positive are left out.
        normalize: Whether windows are brought to mean 0 and variance 1.
        penalty: Weight of WPC's gradient penalty, or None.
    """

    networks: SpeechNetworks
    windows: Windows
    negatives: int = 128
    scope: str = "any"
    exclude_positive: bool = False
    normalize: bool = False
    penalty: float | None = None

    @property
    def group(self) -> Group:
        """The processes that share a batch."""
        return self.networks.loss.group

    def __call__(self, rows: Int64[Tensor, " n"], seed: int) -> StepOutput:
        """The loss of these windows, shifts and negatives drawn from `seed`."""
        generator = torch.Generator().manual_seed(seed)
        device = next(self.networks.network.parameters()).device
        own = own_share(len(rows), self.group)
        samples = self.windows.read(rows, generator, own).to(device)
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
            drawn[own],
            exclude_positive=self.exclude_positive,
            group=self.group,
        )
        loss = torch.stack([self.networks.loss.from_scores(each) for each in scores]).sum()
        extra: dict[str, float | None] = {}
        if self.penalty:
            excess = self._excess(samples, len(rows), own, generator)
            extra["gradient_penalty"] = float(excess.detach())
            loss = loss + self.penalty * excess
        return StepOutput(
            loss,
            terms=lambda: {**self._terms(scores), **extra},
            readings=lambda: {**self._readings(scores, contexts), **extra},
            finish=lambda: None,
        )

    def _excess(
        self, samples: Float[Tensor, "o s"], n: int, own: slice, generator: torch.Generator
    ) -> Tensor:
        r"""WPC's penalty, on the windows and on interpolates between two of them.

        .. math:: \max(0, \|\nabla_x f_k(c_t(x), z_{t+k}(x))\|_2 - 1)^2

        with the gradient in *all samples* x of the window, past and to come, as the network sees
        them (after normalisation), through encoder, recurrence and predictor. f is the score in the
        loss, of the positive at one anchor t of each window and one look-ahead k of all, drawn
        anew in each step: an unbiased draw of the mean over all positives, which would cost as many
        backward passes as there are.
        """
        network = self.networks.network
        k = int(torch.randint(len(network.predictors), (), generator=generator))
        other = torch.randperm(n, generator=generator)[own]
        share = torch.rand(n, 1, generator=generator)[own].to(samples)
        places = torch.rand(2, n, generator=generator)[:, own].flatten()
        mixed = torch.lerp(samples, self.group.gather(samples)[other.to(samples.device)], share)

        def score(past: Tensor, rest: Tensor) -> Tensor:
            frames, contexts = network(torch.cat([past, rest], 1))
            predictions = network.predict(contexts, only=k)[0]
            row = torch.arange(len(frames), device=frames.device)
            t = (places * predictions.shape[1]).long().to(frames.device)
            found: Tensor = self.networks.loss.critic(predictions[row, t], frames[row, t + k + 1])
            return found

        # The norm over two parts is that over the whole, wherever it is cut. cuDNN's recurrence
        # has no second derivative.
        parts = torch.cat([samples, mixed]).tensor_split(2, dim=1)
        with torch.backends.cudnn.flags(enabled=False):
            excess = gradient_penalty(score, *parts)
        return self.group.sum(excess * len(samples)) / n

    @torch.no_grad()
    def _terms(self, scores: list[Scores]) -> dict[str, float | None]:
        """What the objective saw, for the message about a loss that is not finite."""
        moments = [each.negatives.moments() for each in scores]
        return {
            "mean positive score": _mean([each.average(each.positives) for each in scores]),
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
            "effective_rank": float(effective_rank(self.group.gather(contexts).flatten(0, 1))),
        }


def _mean(values: list[Tensor]) -> float:
    return float(torch.stack([value.double() for value in values]).mean())

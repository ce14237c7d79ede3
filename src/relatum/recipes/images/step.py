"""One training step of ``relatum train images``: two views, embeddings, scores, loss, readings."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Int64, UInt8
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from ...base import CrossEntropyObjective, InformationObjective, Scores
from ...data import Augmentation, Draws
from ...diagnostics import alignment, effective_rank, uniformity
from ...losses import gradient_penalty
from ...training import EmbeddingBank, StepOutput
from .build import Networks

__all__ = ["ContrastiveStep"]


@dataclass(frozen=True)
class ContrastiveStep:
    """The loss of a batch of images, two random views of each.

    Both views go through the network as one batch, so that batch normalisation sees both. With a
    bank, its rows are the negatives (own images excluded by id) and the second views enter it after
    the update; in the first step, when the bank is empty, the batch's own negatives serve.

    Attributes:
        networks: Encoder, head and loss.
        images: All training images, on the networks' device.
        augmentation: Draws the views.
        bank: Past embeddings that serve as negatives, or None.
        penalty: Weight of WPC's gradient penalty, or None.
        micro_batch_size: Images that go through the networks at a time; None for all.
        autocast: 16-bit type inside the networks, or None.
    """

    networks: Networks
    images: UInt8[Tensor, "n 3 s s"]
    augmentation: Augmentation
    bank: EmbeddingBank | None = None
    penalty: float | None = None
    micro_batch_size: int | None = None
    autocast: torch.dtype | None = None

    def __call__(self, rows: Int64[Tensor, " n"], seed: int) -> StepOutput:
        """The loss of these rows, its views drawn from `seed`."""
        generator = torch.Generator().manual_seed(seed)
        rows = rows.to(self.images.device)
        images = self.images[rows]
        draws = [self.augmentation.draw(len(rows), generator) for _ in range(2)]
        x, y = self._embed(images, draws)
        scores = self.networks.loss.scores(x, y, **self._given(rows))
        loss = self.networks.loss.from_scores(scores)
        extra: dict[str, float | None] = {}
        if self.penalty:
            first, second = (self.augmentation.apply(images, each) for each in draws)
            excess = self._excess(first, second, generator)
            extra["gradient_penalty"] = float(excess.detach())
            loss = loss + self.penalty * excess

        def finish() -> None:
            if self.bank is not None:
                self.bank.push(y, rows)
            temperature = getattr(self.networks.loss.critic, "temperature", None)
            if temperature is not None:
                temperature.cap_()

        return StepOutput(
            loss,
            terms=lambda: {**_terms(scores), **extra},
            readings=lambda: {**self._readings(scores, x, y), **extra},
            finish=finish,
        )

    def _embed(self, images: Tensor, draws: Sequence[Draws]) -> tuple[Tensor, Tensor]:
        """The embeddings of two views of each image, in float32.

        In micro-batches, each is augmented and encoded again in the backward pass, with the same
        draws and the same dropout: one extra forward pass, the memory of a micro-batch, and exactly
        the gradient of the whole batch. Only batch normalisation sees the micro-batch instead.
        """
        size = self.micro_batch_size
        if size is None or size >= len(images):
            x, y = self._encode(images, *draws)
        else:
            parts = [
                checkpoint(
                    self._encode,
                    images[start : start + size],
                    *(each[start : start + size] for each in draws),
                    use_reentrant=False,
                    context_fn=lambda: (nullcontext(), _running_statistics_kept(self.networks)),
                )
                for start in range(0, len(images), size)
            ]
            x, y = (torch.cat(side) for side in zip(*parts, strict=True))
        return x, y

    def _encode(self, images: Tensor, first: Draws, second: Draws) -> tuple[Tensor, Tensor]:
        device = self.images.device.type
        views = torch.cat([self.augmentation.apply(images, draws) for draws in (first, second)])
        with torch.autocast(device, self.autocast) if self.autocast else nullcontext():
            z = self.networks.head(self.networks.encoder(views))
        x, y = z.float().chunk(2)
        return x, y

    def _given(self, rows: Tensor) -> dict[str, Tensor]:
        if self.bank is None:
            return {}
        past = self.bank.contents()
        if len(past.ids) == 0:
            return {}
        return {"ids": rows, "negatives": past.embeddings, "negative_ids": past.ids}

    def _excess(self, first: Tensor, second: Tensor, generator: torch.Generator) -> Tensor:
        """WPC's penalty on the views and on interpolates between images.

        Both views of a pair are mixed with the same other image in the same proportion, so an
        interpolate is a pair again. Batch normalisation uses its running statistics here: with the
        batch's own, the score of one pair would depend on all images.
        """
        n, device = len(first), first.device
        other = torch.randperm(n, generator=generator).to(device)
        share = torch.rand(n, 1, 1, 1, generator=generator).to(device)
        x = torch.cat([first, torch.lerp(first, first[other], share)])
        y = torch.cat([second, torch.lerp(second, second[other], share)])

        def score(x: Tensor, y: Tensor) -> Tensor:
            z = self.networks.head(self.networks.encoder(torch.cat([x, y])))
            scores: Tensor = self.networks.loss.critic(*z.chunk(2))
            return scores

        with _evaluation(self.networks.encoder, self.networks.head):
            return gradient_penalty(score, x, y)

    @torch.no_grad()
    def _readings(self, scores: Scores, x: Tensor, y: Tensor) -> dict[str, float | None]:
        objective, negatives = self.networks.loss.objective, scores.negatives
        mi = ceiling = accuracy = None
        if isinstance(objective, InformationObjective):
            reading = float(objective.mutual_information(scores))
            # RPC has no density ratio for a score outside the range of its optimal critic, so a
            # batch with such a positive has no reading.
            mi = reading if math.isfinite(reading) else None
        if isinstance(objective, CrossEntropyObjective):
            ceiling = float(torch.log1p(negatives.counts.double()).mean())
        contrasted = negatives.counts > 0
        if bool(contrasted.any()):
            wins = (scores.positives > negatives.max())[contrasted]
            accuracy = float(wins.double().mean())
        temperature = getattr(self.networks.loss.critic, "temperature", None)
        return {
            "mi": mi,
            "mi_ceiling": ceiling,
            "contrastive_accuracy": accuracy,
            "effective_rank": float(effective_rank(y)),
            "alignment": float(alignment(x, y)),
            "uniformity": float(uniformity(y)),
            "temperature": None if temperature is None else temperature.value,
        }


@torch.no_grad()
def _terms(scores: Scores) -> dict[str, float | None]:
    """What an objective is made of, for the message about a loss that is not finite."""
    mean, mean_square = scores.negatives.moments()
    return {
        "mean positive score": float(scores.positives.mean()),
        "mean negative score": float(mean),
        "mean squared negative score": float(mean_square),
        "largest log-sum-exp": float(scores.negatives.logsumexp().max()),
    }


@contextmanager
def _running_statistics_kept(networks: Networks) -> Iterator[None]:
    """Batch normalisation normalises as in training, without counting the same batch twice."""
    modules: list[Any] = [*networks.encoder.modules(), *networks.head.modules()]
    kept = [
        (module, module.momentum, module.num_batches_tracked.clone())
        for module in modules
        if getattr(module, "track_running_stats", False)
    ]
    for module, _, _ in kept:
        module.momentum = 0.0
    try:
        yield
    finally:
        for module, momentum, count in kept:
            module.momentum = momentum
            module.num_batches_tracked.copy_(count)


@contextmanager
def _evaluation(*modules: nn.Module) -> Iterator[None]:
    """The modules in evaluation mode for a while."""
    modes = [module.training for module in modules]
    for module in modules:
        module.eval()
    try:
        yield
    finally:
        for module, mode in zip(modules, modes, strict=True):
            module.train(mode)

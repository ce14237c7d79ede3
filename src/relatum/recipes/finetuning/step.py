"""One training step on labels: a random view of each image, class scores, cross-entropy."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from jaxtyping import Int64
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from ...data import Augmentation, PixelSource, Request
from ...training import StepOutput

__all__ = ["SupervisedStep"]


@dataclass
class SupervisedStep:
    """The cross-entropy of a batch of augmented images, and its mean since the last reading."""

    network: nn.Module
    images: PixelSource
    labels: Int64[Tensor, " n"]
    augmentation: Augmentation
    autocast: torch.dtype | None = None
    seen: list[Tensor] = field(default_factory=list)

    def request(self, rows: Int64[Tensor, " n"], seed: int) -> Request:
        """What a call with the same arguments will ask of the images."""
        draws = self.augmentation.draw(len(rows), torch.Generator().manual_seed(seed))
        return Request(rows, [draws])

    def __call__(self, rows: Int64[Tensor, " n"], seed: int) -> StepOutput:
        """The loss of these rows, their views drawn from `seed`."""
        (frames,) = self.images.frames(self.request(rows, seed))
        views = self.augmentation.apply(frames.pixels, frames.draws)
        rows = rows.to(self.images.device)
        on = self.autocast is not None
        with torch.autocast(rows.device.type, dtype=self.autocast, enabled=on):
            logits = self.network(views)
        labels = self.labels[rows]
        loss = cross_entropy(logits.float(), labels)
        right = (logits.argmax(dim=1) == labels).float().mean()
        self.seen.append(torch.stack([loss.detach(), right]))
        return StepOutput(loss, dict, self._readings, lambda: None)

    def _readings(self) -> dict[str, float | None]:
        loss, accuracy = torch.stack(self.seen).mean(dim=0).tolist()
        self.seen.clear()
        return {"loss": loss, "train_accuracy": accuracy}

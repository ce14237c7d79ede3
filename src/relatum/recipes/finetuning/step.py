"""One training step on labels: a random view of each image, class scores, cross-entropy."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from jaxtyping import Int64, UInt8
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from ...data import Augmentation
from ...training import StepOutput

__all__ = ["SupervisedStep"]


@dataclass
class SupervisedStep:
    """The cross-entropy of a batch of augmented images, and its mean since the last reading."""

    network: nn.Module
    images: UInt8[Tensor, "n 3 s s"]
    labels: Int64[Tensor, " n"]
    augmentation: Augmentation
    autocast: torch.dtype | None = None
    seen: list[Tensor] = field(default_factory=list)

    def __call__(self, rows: Int64[Tensor, " n"], seed: int) -> StepOutput:
        """The loss of these rows, their views drawn from `seed`."""
        rows = rows.to(self.images.device)
        views = self.augmentation(self.images[rows], torch.Generator().manual_seed(seed))
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

"""How a network is tuned on labels: every choice that its accuracy depends on, by name."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any, Final

from ...data import POLICIES
from ...settings import check_choices, check_seed, choice

__all__ = ["BATCH_NORMS", "TUNED", "FineTunePlan"]

TUNED: Final = {
    "after-stem": "everything after the stem",
    "all": "everything",
    "classifier": "nothing",
}
"""What is trained besides the classifier, and how a card says it."""

BATCH_NORMS: Final = {
    "batch": "by the batch while tuning, by running statistics in the test",
    "running": "evaluation mode (running statistics) throughout",
}
"""What batch normalisation normalises by, and how a card says it."""


@dataclass(frozen=True)
class FineTunePlan:
    """The protocol of a fine-tuning. The defaults are those of the RPC paper's code on CIFAR-10.

    On ImageNet that code takes a learning rate of 0.16, 90 epochs and batches of 4096, which it
    divides among 32 devices with common batch statistics: here they go through one device in
    micro-batches, each with statistics of its own. Nothing is selected: the last step counts, and
    test images are read once, after it.

    Attributes:
        tune: "after-stem", "all", or "classifier" alone on the frozen encoder.
        label_fraction: Share of the labelled images of each class that is used, in (0, 1].
        epochs: Passes over them: so many images are seen, though a pass drops its last,
            incomplete batch.
        batch_size: Images of a batch; all where there are fewer.
        learning_rate: Highest rate of 256 images; proportional to the batch. A cosine to zero.
        momentum: Of Nesterov's SGD, in (0, 1). There is neither warm-up nor weight decay.
        augmentation: How an image is changed before each step.
        batch_norm: "batch", or "running": statistics of pretraining, kept. None means "running"
            where only the classifier is tuned, else "batch".
        autocast: 16-bit type inside the network: "none", "bf16" or "fp16".
        micro_batch_size: Images that go through the network at a time; a divisor of `batch_size`.
            The mean of their gradients is that of the whole batch, but batch normalisation sees
            the micro-batch. None: the whole batch.
        seed: Of the drawn labels, the order and the augmentation.

    Raises:
        ValueError: If a value is out of range, or a frozen encoder is to normalise by the batch.
    """

    tune: str = choice("after-stem", TUNED)
    label_fraction: float = 1.0
    epochs: float = 100.0
    batch_size: int = 512
    learning_rate: float = 0.1
    momentum: float = 0.9
    augmentation: str = choice("crop-flip", POLICIES)
    batch_norm: str | None = choice(None, BATCH_NORMS)
    autocast: str = choice("none", ("none", "bf16", "fp16"))
    seed: int = 0
    micro_batch_size: int | None = None

    def __post_init__(self) -> None:
        check_choices(self)
        check_seed("seed", self.seed)
        if not 0 < self.label_fraction <= 1:
            raise ValueError(f"label_fraction must be in (0, 1], got {self.label_fraction}")
        if not 0 < self.epochs < math.inf:
            raise ValueError(f"epochs must be positive and finite, got {self.epochs}")
        if self.batch_size < 2:
            raise ValueError(f"batch_size must be at least 2, got {self.batch_size}")
        if (micro := self.micro_batch_size) is not None:
            if micro < 2:
                raise ValueError(f"micro_batch_size must be at least 2, got {micro}")
            if self.batch_size % micro:
                raise ValueError(
                    f"micro_batch_size {micro} does not divide batch_size {self.batch_size}"
                )
        if not 0 <= self.learning_rate < math.inf:
            raise ValueError(f"learning_rate must be 0 or more, got {self.learning_rate}")
        if not 0 < self.momentum < 1:
            raise ValueError(f"momentum must be in (0, 1), got {self.momentum}")
        if self.tune == "classifier" and self.batch_norm == "batch":
            raise ValueError(
                "batch_norm 'batch' changes an encoder; tune 'classifier' keeps it frozen: use "
                "batch_norm 'running'"
            )

    @property
    def normalises_by(self) -> str:
        """The batch normalisation, decided."""
        return self.batch_norm or ("running" if self.tune == "classifier" else "batch")

    @property
    def choices(self) -> dict[str, Any]:
        """All values; a micro-batch only where there is one, as in records of before it was."""
        found = asdict(self)
        if self.micro_batch_size is None:
            del found["micro_batch_size"]
        return found

    def parts(self, rows: int) -> int:
        """Micro-batches of a batch of so many labelled images."""
        return -(-min(self.batch_size, rows) // (self.micro_batch_size or self.batch_size))

    def batch(self, rows: int) -> int:
        """Images of a batch of so many labelled ones: all, but for what makes parts uneven."""
        parts = self.parts(rows)
        return min(self.batch_size, rows) // parts * parts

    def steps(self, rows: int) -> int:
        """Updates on so many labelled images."""
        return max(1, round(self.epochs * rows / self.batch(rows)))

    @property
    def optimisation(self) -> str:
        """The optimiser in one sentence, as a card holds it."""
        return (
            f"SGD with Nesterov momentum {self.momentum:g}, rate {self.learning_rate:g} x batch / "
            f"256, cosine, no warm-up, no decay; {self.epochs:g} epochs of batches of "
            f"{self.batch_size} (all rows where there are fewer)"
            + ("" if self.autocast == "none" else f", {self.autocast}")
            + (
                f"; {self.micro_batch_size} images at a time, by whose statistics batches are "
                "normalised"
                if self.micro_batch_size
                else ""
            )
        )

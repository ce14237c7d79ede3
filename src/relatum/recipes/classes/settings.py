"""The settings of ``relatum train classes``."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

from ...models import NORMS
from ...settings import check_choices, check_seed, choice
from ...surrogates import SURROGATES
from ...training import OPTIMIZERS

__all__ = ["TrainClasses"]


@dataclass(frozen=True)
class TrainClasses:
    """Train an encoder where theory bounds the outcome, and see how near the bound comes.

    Triplets (anchor, class mate, negative from a class drawn anew) are drawn in the law of the
    theory of latent classes; then the labels are hidden. The encoder minimises its loss on them,
    and its norm is bounded. Side by side: the loss on the triplets, its bound from the complexity
    of the class of encoders, and what held-out rows with labels say.

    Example: relatum train classes --layers 1 --radius 3 --triplets 100000 --out runs/classes
    """

    data: str = "toy"
    """toy: a finite model, whose risks are exact. Or an npz file with `features` (any inputs) and
    `labels`, which serve to draw class mates and at the end. Inputs are scaled to length 1, so that
    the bound on the encoder holds for any data."""

    classes: int = 5
    """Toy: classes, equally probable."""

    noise: float = 0.7
    """Toy: distance of a class's points from its centre, which has length 1."""

    test_fraction: float = 0.2
    """File: share of rows that are held out, where it has no `split` of its own."""

    held_out: int = 2000
    """File: held-out rows to measure on, at most."""

    triplets: int | None = None
    """How many are drawn. Default: 10,000 for toy; for a file as many as can be without using a row
    twice. More than that are drawn with replacement: the bound is then about the law of the rows of
    the file, and no longer about fresh ones."""

    k: int = 1
    """Negatives of each anchor."""

    block: int = 1
    """Class mates on each side, whose means are contrasted (block similarity), instead of --k."""

    loss: str = choice("hinge", SURROGATES)
    """hinge: max(0, 1 + t); logistic: log2(1 + exp t), t the negative score less the positive."""

    layers: int = 1
    """1: a linear encoder. More: ReLU between them, no biases."""

    hidden: int = 64
    """Width of the layers between."""

    dim: int = 16
    """Width of the embedding."""

    norm: str = choice("frobenius", NORMS)
    """What keeps the encoder bounded: the Frobenius or the spectral norm of each layer, or the
    output is scaled to the sphere (for which no complexity is known)."""

    radius: float = 3.0
    """R, the bound on the length of an embedding; it is also the scale of the scores, up to R²."""

    delta: float = 0.05
    """Probability that the bound fails."""

    epochs: float = 20.0
    """Passes over the triplets."""

    batch_size: int = 256
    """Triplets of a step."""

    optimizer: str = choice("adamw", OPTIMIZERS)
    """adamw, sgd (momentum 0.9) or lars; after each step the weights return to their balls."""

    learning_rate: float = 0.003
    """Highest rate; it falls to zero by a cosine."""

    seed: int = 0
    """Seed of the split, the triplets, the weights and the order."""

    log_every: int = 20
    """Steps between two lines of metrics."""

    checkpoint_every: int = 200
    """Steps between two checkpoints."""

    out: Path = Path("runs/classes")
    """The run directory."""

    resume: bool = False
    """Continue the run in --out from its last checkpoint; all other settings must be the same."""

    def __post_init__(self) -> None:
        check_choices(self)
        check_seed("seed", self.seed)
        counts = "k block layers hidden dim batch_size log_every checkpoint_every held_out".split()
        for name in (*counts, "radius", "epochs", "learning_rate", "noise"):
            value = getattr(self, name)
            if not 0 < value < math.inf:
                raise ValueError(f"{name} must be a positive number, got {value}")
        if self.triplets is not None and self.triplets < 1:
            raise ValueError(f"triplets must be at least 1, got {self.triplets}")
        if self.classes < 2:
            raise ValueError(f"classes must be at least 2, got {self.classes}")
        if self.k > 1 and self.block > 1:
            raise ValueError(
                f"give k or block, not both: got k {self.k} and block {self.block}; the theory has "
                "blocks of one class against one"
            )
        for name in ("delta", "test_fraction"):
            if not 0 < getattr(self, name) < 1:
                raise ValueError(f"{name} must be between 0 and 1, got {getattr(self, name)}")

    @property
    def rows_of_each(self) -> int:
        """Inputs in one triplet, in an anchor with k negatives, or in an anchor with two blocks."""
        return 1 + self.block + max(self.k, self.block)

"""The losses of triplets, tuples and blocks of row numbers, and one training step on them."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from ...diagnostics import effective_rank
from ...models import BoundedEncoder
from ...surrogates import SURROGATES
from ...training import StepOutput
from .populations import Tuples

__all__ = ["TupleStep"]

_AT_ONCE = 1024  # tuples that go through the encoder together where there is no gradient


@dataclass(frozen=True)
class TupleStep:
    r"""The mean loss of some of the tuples; after the update the weights return to their balls.

    .. math:: \frac1M \sum_j \ell_k\Big( \big\{ f(x_j) \cdot (\bar f_{ji}^- - \bar f_j^+)
              \big\}_{i \le k} \Big)

    with means over blocks of b. It is ``ContrastiveLoss(Hinge(), DotProduct(), "block")`` with
    given negatives, or with ``Logistic()``.

    Attributes:
        encoder: What is trained.
        loss: "hinge" or "logistic".
        inputs: The rows that tuples name.
        tuples: All of them.
    """

    encoder: BoundedEncoder
    loss: str
    inputs: Float[Tensor, "n p"]
    tuples: Tuples

    def __call__(self, rows: Int64[Tensor, " m"], seed: int) -> StepOutput:
        """The loss of the tuples with these numbers; nothing in it is random."""
        x, scores = self._scores(self.tuples, rows)

        def readings() -> dict[str, float | None]:
            return {
                "contrastive_accuracy": float((scores < 0).all(1).double().mean()),
                "effective_rank": float(effective_rank(x.detach())),
            }

        return StepOutput(
            SURROGATES[self.loss].many(scores).mean(),
            terms=lambda: {"largest score": float(scores.detach().max())},
            readings=readings,
            finish=self.encoder.project_,
        )

    @torch.no_grad()
    def losses(self, tuples: Tuples) -> Float[Tensor, " m"]:
        """The loss of each tuple, in float64."""
        parts = torch.split(torch.arange(len(tuples)), _AT_ONCE)
        scores = torch.cat([self._scores(tuples, part)[1].double() for part in parts])
        return SURROGATES[self.loss].many(scores)

    def _scores(
        self, tuples: Tuples, rows: Int64[Tensor, " m"]
    ) -> tuple[Float[Tensor, "m d"], Float[Tensor, "m k"]]:
        """Embeddings of the anchors, and the difference of each negative score and the positive."""
        x = self.encoder(self.inputs[tuples.anchors[rows]])
        positive = self.encoder(self.inputs[tuples.positives[rows]]).mean(1, keepdim=True)
        negatives = self.encoder(self.inputs[tuples.negatives[rows]]).mean(2)
        return x, ((negatives - positive) * x.unsqueeze(1)).sum(-1)

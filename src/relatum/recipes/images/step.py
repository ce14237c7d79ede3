"""One training step of ``relatum train images``: two views, embeddings, scores, loss, readings."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial, reduce
from itertools import pairwise
from typing import Any

import torch
from jaxtyping import Float, Int64
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from ...base import CrossEntropyObjective, InformationObjective, Scores
from ...data import Augmentation, Frames, PixelSource, Request
from ...diagnostics import alignment, effective_rank, uniformity
from ...distributed import Group
from ...models import average_running_statistics
from ...scores import MovingMoments, Statistics
from ...training import EmbeddingBank, StepOutput
from ..continuing import own_share
from .build import Networks
from .modes import running_statistics_kept
from .penalty import excess

__all__ = ["ContrastiveStep"]


@dataclass(frozen=True)
class ContrastiveStep:
    """The loss of a batch of images, two random views of each, or 1 + `positives` in blocks.

    All views go through the network as one batch, so that batch normalisation sees them. With a
    bank, its rows are the negatives (own images excluded by id) and the second views enter it after
    the update; in the first step, when the bank is empty, the batch's own negatives serve.

    On several processes each takes its share of the rows, with the views that one process would
    draw for them.

    Attributes:
        networks: Encoder, head and loss; the loss knows the processes.
        images: Where the training images come from, onto the networks' device.
        augmentation: Draws the views.
        bank: Past embeddings that serve as negatives, or None.
        penalty: Weight of WPC's gradient penalty, or None.
        micro_batch_size: Images that go through the networks of a process at a time; None for all.
        autocast: 16-bit type inside the networks, or None.
        moments_only: Whether only sums over micro-batches are kept, and no embeddings.
        past: Moments of earlier steps that count as well, or None.
        positives: Views whose mean score is the positive, where the pairing is "block".
    """

    networks: Networks
    images: PixelSource
    augmentation: Augmentation
    bank: EmbeddingBank | None = None
    penalty: float | None = None
    micro_batch_size: int | None = None
    autocast: torch.dtype | None = None
    moments_only: bool = False
    past: MovingMoments | None = None
    positives: int = 1

    @property
    def group(self) -> Group:
        """The processes that share a batch."""
        return self.networks.loss.group

    def request(self, rows: Int64[Tensor, " n"], seed: int) -> Request:
        """What a call with the same arguments will ask of the images."""
        return self._drawn(rows, seed).request

    def _drawn(self, rows: Int64[Tensor, " n"], seed: int) -> _Drawn:
        """Everything random about a batch, drawn as one process would."""
        generator = torch.Generator().manual_seed(seed)
        draws = [self.augmentation.draw(len(rows), generator) for _ in range(1 + self.positives)]
        own = torch.arange(len(rows))[own_share(len(rows), self.group)]
        other = torch.randperm(len(rows), generator=generator)[own]
        share = torch.rand(len(rows), 1, 1, 1, generator=generator)[own]
        # WPC mixes with images of other processes: they are asked for beside one's own.
        apart = bool(self.penalty) and self.group.size > 1
        wanted = torch.cat([own, other]) if apart else own
        request = Request(rows[wanted], [each[wanted] for each in draws])
        return _Drawn(request, own, other, share)

    def __call__(self, rows: Int64[Tensor, " n"], seed: int) -> StepOutput:
        """The loss of these rows, its views drawn from `seed`."""
        drawn = self._drawn(rows, seed)
        frames = self.images.frames(drawn.request)
        mine = [each[: len(drawn.own)] for each in frames]
        parts = self._parts(len(rows), len(drawn.own))
        rows = rows.to(self.images.device)
        contrast = self._from_moments if self.moments_only or self.past else self._from_scores
        seen = contrast(mine, parts, rows[drawn.own.to(rows.device)])
        loss = seen.loss
        extra: dict[str, float | None] = {}
        if self.penalty:
            exceeding = self._excess(frames[:2], drawn, len(rows))
            extra["gradient_penalty"] = float(exceeding.detach())
            loss = loss + self.penalty * exceeding

        def finish() -> None:
            if self.bank is not None:
                self.bank.push(self.group.gather(seen.y.detach()), rows)
            if self.past is not None and seen.statistics is not None:
                self.past.update(seen.statistics, self.group)
            temperature = getattr(self.networks.loss.critic, "temperature", None)
            if temperature is not None:
                temperature.cap_()
            for network in (self.networks.encoder, self.networks.head):
                average_running_statistics(network, self.group)

        return StepOutput(
            loss,
            terms=lambda: {**self._terms(seen.scores()), **extra},
            readings=lambda: {**self._readings(seen), **extra},
            finish=finish,
        )

    def _from_scores(self, frames: list[Frames], parts: list[slice], rows: Tensor) -> _Seen:
        """The loss with all embeddings held.

        Micro-batches are augmented and encoded again in the backward pass, with the same draws and
        the same dropout: one extra forward pass, the memory of a micro-batch, and exactly the
        gradient of the whole batch. Only batch normalisation sees the micro-batch instead.
        """
        pairs = [self._again(self._encode, frames, part, len(parts)) for part in parts]
        x, y = (torch.cat(side) for side in zip(*pairs, strict=True))
        scores = self.networks.loss.scores(x, y, **self._given(rows))
        return _Seen(self.networks.loss.from_scores(scores), x, y, lambda: scores)

    def _from_moments(self, frames: list[Frames], parts: list[slice], rows: Tensor) -> _Seen:
        """The loss with sums over micro-batches held and no embeddings but the last ones."""
        last: list[Tensor] = []

        def statistics(*frames: Frames) -> Statistics:
            x, y = self._encode(*frames)
            last[:] = [x.detach(), y.detach()]
            return self.networks.loss.statistics(x, y)

        # One after the other, so that the sums of two parts exist at a time and not of all.
        found = (self._again(statistics, frames, part, len(parts)) for part in parts)
        total = reduce(Statistics.plus, found)
        loss = self.networks.loss.from_statistics(total, self.past)
        x, y = last
        return _Seen(loss, x, y, lambda: self.networks.loss.scores(x, y), total)

    def _again(
        self, function: Callable[..., Any], frames: list[Frames], part: slice, parts: int
    ) -> Any:
        """The function of a part of the images, computed again in the backward pass."""
        arguments = [each[part] for each in frames]
        if parts == 1:
            return function(*arguments)
        return checkpoint(
            function,
            *arguments,
            use_reentrant=False,
            context_fn=lambda: (nullcontext(), running_statistics_kept(*self.networks[:2])),
        )

    def _parts(self, rows: int, own: int) -> list[slice]:
        """The micro-batches of this process, as even as can be.

        Their number is the same on every process, since layers may have sums over processes, and
        none is empty: where shares are uneven, one of a single image may have to become one of two.
        """
        smallest, largest = rows // self.group.size, -(-rows // self.group.size)
        count = 1
        if self.micro_batch_size is not None:
            count = max(1, min(smallest, -(-largest // self.micro_batch_size)))
        bounds = [own * i // count for i in range(count + 1)]
        return [slice(a, b) for a, b in pairwise(bounds)]

    def _view(self, frames: Frames) -> Tensor:
        return self.augmentation.apply(frames.pixels, frames.draws)

    def _encode(self, *frames: Frames) -> tuple[Tensor, Tensor]:
        """Embeddings of first views, and of second ones or, in blocks, of all others (n, b, d)."""
        device = self.images.device.type
        views = torch.cat([self._view(each) for each in frames])
        with torch.autocast(device, self.autocast) if self.autocast else nullcontext():
            z = self.networks.head(self.networks.encoder(views))
        x, *others = (z.float() if z.dtype.itemsize < 4 else z).chunk(len(frames))
        blocks = self.networks.loss.pairing == "block"
        return x, torch.stack(others, 1) if blocks else others[0]

    def _given(self, rows: Tensor) -> dict[str, Tensor]:
        if self.bank is None:
            return {}
        past = self.bank.contents()
        if len(past.ids) == 0:
            return {}
        return {"ids": rows, "negatives": past.embeddings, "negative_ids": past.ids}

    def _excess(self, frames: list[Frames], drawn: _Drawn, n: int) -> Tensor:
        """WPC's penalty, each image mixed with another one of the whole batch."""
        here = len(drawn.own)
        alone = self.group.size == 1
        others = [each[drawn.other] if alone else each[here:] for each in frames]
        share = drawn.share.to(self.images.device)
        given: list[Any] = [share, *(each[:here] for each in frames), *others]
        penalty = partial(excess, self.networks, self._view)
        parts = self._parts(n, here)
        if len(parts) == 1:
            return self.group.sum(penalty(*given)) / n
        # Nothing to keep here as _again does: in evaluation mode no statistics are counted.
        found = [
            checkpoint(penalty, *(each[part] for each in given), use_reentrant=False)
            for part in parts
        ]
        return self.group.sum(torch.stack(found).sum()) / n

    @torch.no_grad()
    def _terms(self, scores: Scores) -> dict[str, float | None]:
        """What an objective is made of, for the message about a loss that is not finite."""
        mean, mean_square = scores.negatives.moments()
        return {
            "mean positive score": float(scores.average(scores.positives)),
            "mean negative score": float(mean),
            "mean squared negative score": float(mean_square),
            "largest log-sum-exp": float(self.group.gather(scores.negatives.logsumexp()).max()),
        }

    @torch.no_grad()
    def _readings(self, seen: _Seen) -> dict[str, float | None]:
        scores = seen.scores()
        second = seen.y[:, 0] if seen.y.ndim == 3 else seen.y
        x, y = self.group.gather(seen.x), self.group.gather(second)
        objective, negatives = self.networks.loss.objective, scores.negatives
        mi = ceiling = accuracy = None
        if isinstance(objective, InformationObjective):
            reading = float(objective.mutual_information(scores))
            # RPC has no density ratio for a score outside the range of its optimal critic, so a
            # batch with such a positive has no reading.
            mi = reading if math.isfinite(reading) else None
        if isinstance(objective, CrossEntropyObjective):
            ceiling = float(scores.average(torch.log1p(negatives.counts.double())))
        wins = (scores.positives > negatives.max()).double()
        accuracy = float(scores.average_contrasted(wins))
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


@dataclass(frozen=True)
class _Drawn:
    """What is random about a batch.

    Attributes:
        request: Images and draws that this process needs, its own first.
        own: Places of its own images in the batch.
        other: For WPC, the place of the image that each of them is mixed with.
        share: And the share of that one.
    """

    request: Request
    own: Int64[Tensor, " m"]
    other: Int64[Tensor, " m"]
    share: Float[Tensor, "m 1 1 1"]


@dataclass(frozen=True)
class _Seen:
    """What a batch of this process came to.

    Attributes:
        loss: Of the whole batch.
        x: Embeddings of first views: all, or those of the last micro-batch.
        y: The same of the other views.
        scores: Makes their scores.
        statistics: Sums over this process's pairs, where the loss was made of them.
    """

    loss: Tensor
    x: Tensor
    y: Tensor
    scores: Callable[[], Scores]
    statistics: Statistics | None = None

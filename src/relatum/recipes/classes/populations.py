"""Where triplets come from, in the law of the theory: a finite model, or the rows of a file."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
import torch
from jaxtyping import Float32, Float64, Int64
from numpy.random import Generator
from torch import Tensor

from ...latent_class import (
    Estimate,
    FiniteModel,
    estimated_block_risks,
    estimated_k_negative_risk,
    labelled_sample,
    leave_one_out_error,
    leave_one_out_risk,
    mean_classifier_risk,
    normal_estimate,
    pair_risks,
    pair_table,
    pairwise_error,
    tuple_risk,
)
from ...latent_class.sampling import Sampling
from ..embeddings import Embeddings, read_embeddings, unit_rows
from .settings import TrainClasses

__all__ = ["Measured", "Population", "Rows", "Toy", "Tuples", "load_population"]

Encode = Callable[[Float32[Tensor, "n p"]], Float64[np.ndarray, "n d"]]

_TOY_POINTS: Final = 20  # of each class
_TOY_WIDTH: Final = 20
_FRESH: Final = 20_000  # pairs of blocks of the toy for their risk, which is no short sum


class Tuples(NamedTuple):
    """Row numbers of inputs: anchors, b class mates of each, and k blocks of b negatives.

    ``fresh`` tells whether no row serves twice, or rows are drawn from a law that is known.
    """

    anchors: Int64[Tensor, " m"]
    positives: Int64[Tensor, "m b"]
    negatives: Int64[Tensor, "m k b"]
    fresh: bool

    def __len__(self) -> int:
        return len(self.anchors)


class Measured(NamedTuple):
    """What rows with labels say of an encoder; errors are 0 where a value is exact."""

    risk: Estimate
    mean_classifier_risk: Estimate
    pairwise_error: Estimate
    rows: str


class Population(ABC):
    """Inputs of length 1 at most, and the law of their classes.

    Attributes:
        inputs: All rows that triplets may name.
        prior: The class probabilities.
    """

    inputs: Float32[Tensor, "n p"]
    prior: Float64[np.ndarray, " K"]

    @property
    def tau(self) -> float:
        """The probability of a collision."""
        return float(self.prior @ self.prior)

    @abstractmethod
    def draw(self, settings: TrainClasses, generator: Generator) -> Tuples:
        """The triplets of a run."""

    @abstractmethod
    def measure(
        self, settings: TrainClasses, encode: Encode, losses: Callable[[Tuples], Tensor]
    ) -> Measured:
        """The risks of an encoder where labels are known; `losses` are those of tuples."""


class Toy(Population):
    """Some points around a centre for each class, on the unit sphere; all risks are finite sums."""

    def __init__(self, settings: TrainClasses) -> None:
        generator = np.random.default_rng([settings.seed, 0])
        shape = (settings.classes, _TOY_POINTS, _TOY_WIDTH)
        centres = unit_rows(generator.normal(size=(settings.classes, 1, _TOY_WIDTH)))
        points = unit_rows(centres + settings.noise * unit_rows(generator.normal(size=shape)))
        self.inputs = torch.from_numpy(points.reshape(-1, _TOY_WIDTH)).float()
        self.prior = np.full(settings.classes, 1 / settings.classes)
        self.laws = np.kron(np.eye(settings.classes), np.full(_TOY_POINTS, 1 / _TOY_POINTS))

    def draw(self, settings: TrainClasses, generator: Generator) -> Tuples:
        """Independent tuples, 10,000 by default."""
        numbers = np.arange(len(self.inputs), dtype=np.float64)[:, None]
        model = FiniteModel(self.prior, self.laws, numbers)
        return _tuples(model, settings.triplets or 10_000, settings, generator, fresh=True)

    def measure(
        self, settings: TrainClasses, encode: Encode, losses: Callable[[Tuples], Tensor]
    ) -> Measured:
        """Exact risks; that of blocks from fresh pairs of blocks."""
        model = FiniteModel(self.prior, self.laws, encode(self.inputs))
        if settings.block == 1:
            risk = _exact(tuple_risk(model, settings.loss, k=settings.k))
        else:
            size = TrainClasses(triplets=_FRESH, block=settings.block)
            found = losses(self.draw(size, np.random.default_rng([settings.seed, 2])))
            error = float(found.std()) / len(found) ** 0.5
            risk = normal_estimate(float(found.mean()), error, len(found))
        return Measured(
            risk,
            _exact(mean_classifier_risk(model, settings.loss)),
            _exact(pairwise_error(model)),
            "the model itself, exactly",
        )


class Rows(Population):
    """The rows of a file, a part of them held out."""

    def __init__(self, settings: TrainClasses, given: Embeddings) -> None:
        if given.labels is None:
            raise ValueError(
                f"{settings.data} has no `labels`; without them no class mates can be drawn"
            )
        train, test = _divided(given.labelled(), settings)
        self.inputs = torch.from_numpy(unit_rows(train.features)).float()
        self.names, codes = np.unique(np.asarray(train.labels), return_inverse=True)
        self.codes = codes.astype(np.int64)
        self.counts = np.bincount(self.codes)
        if len(self.names) < 2:
            raise ValueError(f"{settings.data} holds one class; contrasting needs two at least")
        self.prior = self.counts / self.counts.sum()
        self.held_out = test

    def draw(self, settings: TrainClasses, generator: Generator) -> Tuples:
        """Tuples of which no row serves twice, as many as there can be, or more with repeats."""
        most = self.most(settings)
        wanted = most if settings.triplets is None else settings.triplets
        if wanted < settings.batch_size:
            raise ValueError(
                f"{settings.data} gives {most} tuples of {settings.rows_of_each} rows of their "
                f"own, fewer than one step (batch_size {settings.batch_size}): ask for more with "
                "--triplets, which draws rows repeatedly, or for a smaller --batch-size"
            )
        classes = range(len(self.names))
        members = [generator.permutation(np.flatnonzero(self.codes == c)) for c in classes]
        source = _RowNumbers(self.prior, members, once=wanted <= most)
        return _tuples(source, wanted, settings, generator, fresh=wanted <= most)

    def most(self, settings: TrainClasses) -> int:
        """The most tuples whose demand, four standard deviations up, every class can meet.

        The anchor's class gives 1 + b rows with probability ρ, each of k negatives' gives b.
        """
        own, other = 1 + settings.block, settings.block
        mean = (own + settings.k * other) * self.prior
        spread = self.prior * (1 - self.prior)
        deviation = 4 * np.sqrt((own**2 + settings.k * other**2) * spread)
        # m · mean + √m · deviation <= n_c, solved for √m.
        root = (np.sqrt(deviation**2 + 4 * mean * self.counts) - deviation) / (2 * mean)
        return int(root.min() ** 2)

    def measure(
        self, settings: TrainClasses, encode: Encode, losses: Callable[[Tuples], Tensor]
    ) -> Measured:
        """Estimates from the held-out rows, with the prior of the triplets."""
        inputs = torch.from_numpy(unit_rows(self.held_out.features)).float()
        sample = labelled_sample(
            encode(inputs),
            np.asarray(self.held_out.labels),
            class_prior=dict(zip(self.names.tolist(), self.prior.tolist(), strict=True)),
            least=2 * settings.block + 1,
        )
        if settings.block > 1:
            risk = estimated_block_risks(sample, settings.block, settings.loss).unsupervised
        elif settings.k > 1:
            risk = estimated_k_negative_risk(sample, settings.k, settings.loss)
        else:
            risk = pair_risks(pair_table(sample, settings.loss)).unsupervised
        return Measured(
            risk,
            leave_one_out_risk(sample, settings.loss),
            leave_one_out_error(sample),
            f"{len(sample.codes):,} held-out rows",
        )


@dataclass
class _RowNumbers(Sampling):
    """Draws rows by number: of each class in turn without repeats, or with."""

    prior: Float64[np.ndarray, " K"]
    members: list[Int64[np.ndarray, " n"]]
    once: bool

    def sample_classes(self, n: int, generator: Generator) -> Int64[np.ndarray, " n"]:
        return generator.choice(len(self.prior), n, p=self.prior)

    def sample_members(
        self, classes: Int64[np.ndarray, " n"], generator: Generator
    ) -> Float64[np.ndarray, "n 1"]:
        rows = np.empty((len(classes), 1))
        for c, left in enumerate(self.members):
            wanted = np.flatnonzero(classes == c)
            if not self.once:
                rows[wanted, 0] = generator.choice(left, len(wanted))
                continue
            if len(wanted) > len(left):
                raise ValueError(
                    "a class ran out of rows, which has a chance of 1 in 10,000: ask for fewer "
                    "--triplets"
                )
            rows[wanted, 0], self.members[c] = left[: len(wanted)], left[len(wanted) :]
        return rows


def load_population(settings: TrainClasses) -> Population:
    """The population that the settings name.

    Raises:
        ValueError: If there is no such file, or it cannot serve.
    """
    if settings.data == "toy":
        return Toy(settings)
    return Rows(settings, read_embeddings(Path(settings.data)))


def _tuples(
    source: Sampling, count: int, settings: TrainClasses, generator: Generator, *, fresh: bool
) -> Tuples:
    """Draws tuples from what embeds each row as its number."""
    if settings.block > 1:
        drawn = source.sample_blocks(count, settings.block, generator)
    else:
        drawn = source.sample_tuples(count, settings.k, generator)
    parts = (drawn.anchors, drawn.positives, drawn.negatives)
    anchors, positives, negatives = (torch.from_numpy(part).round().long() for part in parts)
    return Tuples(
        anchors.reshape(count),
        positives.reshape(count, settings.block),
        negatives.reshape(count, settings.k, settings.block),
        fresh,
    )


def _divided(given: Embeddings, settings: TrainClasses) -> tuple[Embeddings, Embeddings]:
    """Rows to train on, and rows that are held out."""
    generator = np.random.default_rng([settings.seed, 1])
    if given.split is not None and {"train", "test"} <= set(given.split.tolist()):
        train, test = given.part("train"), given.part("test")
    else:
        order = generator.permutation(len(given.features))
        held = round(settings.test_fraction * len(order))
        train, test = given.keep(order[held:]), given.keep(order[:held])
    few = generator.permutation(len(test.features))[: settings.held_out]
    return train, test.keep(few)


def _exact(value: float) -> Estimate:
    return Estimate(value, 0.0, value, value, 0, method="exact")

"""Rigorous intervals: what a point can move, coverage, and independent triplets."""

import math

import numpy as np
import pytest

from relatum.latent_class.intervals import (
    bounded_difference_width,
    disjoint_triplets,
    hoeffding_width,
    rigorous_estimate,
)
from relatum.latent_class.pair_tables import pair_table
from relatum.latent_class.resampling import (
    PARTS,
)
from relatum.latent_class.sample import labelled_sample

from .finite_world import LOSSES, World, random_sample, within


@pytest.mark.parametrize("part", PARTS)
def test_one_point_moves_no_more_than_stated(part):
    """Extreme embeddings on a sphere: the largest move found stays under, and comes near."""
    generator = np.random.default_rng(23)
    labels = np.array([0, 0, 0, 1, 1, 1, 1])
    most = np.zeros(2)
    for _ in range(150):
        points = generator.choice([-1.0, 1.0], (7, 1))
        sample = labelled_sample(points, labels, class_prior=[0.3, 0.7])
        p = generator.integers(7)
        moved = points.copy()
        moved[p] *= -1
        values = [
            (PARTS[part](sample.weights) * pair_table(labelled_sample(x, labels)).values).sum()
            for x in (points, moved)
        ]
        move = abs(values[0] - values[1])
        most[labels[p]] = max(most[labels[p]], move)
    weights = PARTS[part](sample.weights)
    span = 3.0  # of the hinge at R = 1: 1 + 2R²
    stated = span * (2 * weights.sum(1) + weights.sum(0)) / sample.counts
    assert (most <= stated + 1e-12).all()
    assert (most > 0.1 * stated).all()
    if part == "unsupervised":
        assert np.allclose(stated, 3 * span * np.array([0.3, 0.7]) / sample.counts)
    width = bounded_difference_width(sample, weights, span, 0.1)
    assert width == pytest.approx(math.sqrt((stated**2 * sample.counts).sum() * math.log(10) / 2))


def test_disjoint_averages_are_narrower():
    """For one pair of classes alone: by √3, and at most n / 3 triplets can be disjoint."""
    sample = random_sample(24, (400, 400))
    widths = [
        f(sample, sample.weights, 3.0, 0.05) for f in (bounded_difference_width, hoeffding_width)
    ]
    assert widths[0] / widths[1] == pytest.approx(math.sqrt(3), rel=0.02)
    assert widths[1] >= 3 * math.sqrt(math.log(20) / 2 / (800 / 3)) - 1e-12
    assert hoeffding_width(random_sample(24, (3, 3)), np.full((2, 2), 0.25), 3.0, 0.05) == math.inf


def test_rigorous_interval_covers():
    world = World(25, scale=0.4)
    generator = np.random.default_rng(25)
    labels = np.repeat([0, 1, 2], [60, 50, 40])
    exact = world.prior @ world.pair_losses("hinge") @ world.prior
    radius = float(np.linalg.norm(world.features, axis=1).max())
    for _ in range(20):
        sample = labelled_sample(world.draw(labels, generator), labels, class_prior=world.prior)
        estimate = rigorous_estimate(pair_table(sample), radius, delta=0.1)
        assert estimate.low <= exact <= estimate.high
        assert estimate.level == pytest.approx(0.9)
    with pytest.raises(ValueError, match=r"radius must be a known bound on \|f\|, got 0.01"):
        rigorous_estimate(pair_table(sample), 0.01)
    with pytest.raises(ValueError, match="part must be one of"):
        rigorous_estimate(pair_table(sample), radius, part="all")
    with pytest.raises(ValueError, match="delta must lie between 0 and 1, got 5"):
        rigorous_estimate(pair_table(sample), radius, delta=5)


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("part", PARTS)
def test_disjoint_triplets_have_the_law(loss, part):
    world, generator = World(26), np.random.default_rng(26)
    labels = np.repeat([0, 1, 2], [60, 50, 40])
    exact = world.pair_losses(loss)
    means, lengths = [], set()
    for seed in range(300):
        sample = labelled_sample(world.draw(labels, generator), labels, class_prior=world.prior)
        losses = disjoint_triplets(sample, loss, part=part, seed=seed)
        assert losses is not None
        lengths.add(len(losses))
        means.append(losses.mean())
    assert len(lengths) == 1 and lengths.pop() <= 50
    assert within(means, (PARTS[part](sample.weights) * exact).sum())

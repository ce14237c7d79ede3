"""Widths of classes against numpy and exact sums over finite classes."""

import math
from itertools import product

import numpy as np
import pytest

from relatum.latent_class.estimated_spreads import (
    class_covariances,
    estimated_directional_spread,
    estimated_score_variances,
    estimated_spread,
    estimated_trace,
    spread_upper_bound,
)
from relatum.latent_class.sample import labelled_sample

from .finite_world import World, random_sample, within


def test_spreads_are_those_of_numpy():
    sample = random_sample(20, class_prior=[0.2, 0.5, 0.3])
    nu = sample.prior**2 / (sample.prior @ sample.prior)
    spread = directional = trace = 0.0
    for c in range(3):
        rows = sample.rows(c)
        sigma = np.cov(rows.T)
        assert np.allclose(class_covariances(sample)[c], sigma)
        assert np.allclose(
            estimated_score_variances(sample)[:, c],
            [f @ sigma @ f for f in sample.features],
        )
        width = math.sqrt(np.linalg.eigvalsh(sigma)[-1])
        spread += nu[c] * width * np.mean([np.linalg.norm(f) for f in rows])
        directional += nu[c] * np.mean([math.sqrt(f @ sigma @ f) for f in rows])
        squares = [
            (rows[i] @ (rows[j] - rows[k])) ** 2
            for i, j, k in product(range(len(rows)), repeat=3)
            if len({i, j, k}) == 3
        ]
        trace += nu[c] * np.mean(squares) / 2
    assert estimated_spread(sample).value == pytest.approx(spread)
    assert estimated_directional_spread(sample).value == pytest.approx(directional)
    assert directional <= spread
    assert estimated_trace(sample).value == pytest.approx(trace)


def test_trace_is_unbiased():
    world, generator = World(21, classes=2), np.random.default_rng(21)
    labels = np.repeat([0, 1], [4, 6])
    expected = []
    for law in world.laws:
        mean = law @ world.features
        second = world.features.T @ (law[:, None] * world.features)
        expected.append(np.trace((second - np.outer(mean, mean)) @ second))
    found = []
    for _ in range(1000):
        sample = labelled_sample(world.draw(labels, generator), labels, class_prior=[0.5, 0.5])
        found.append(estimated_trace(sample, groups=2).value)
    assert within(found, np.mean(expected))


def test_spread_bound_covers_and_is_not_absurd():
    """Three classes on the unit sphere, 200 rows each: about 2.3 times the true value."""
    generator = np.random.default_rng(22)
    labels = np.repeat([0, 1, 2], 200)

    def draw(labels):
        points = np.eye(3)[labels] + 0.6 * generator.standard_normal((len(labels), 3))
        return points / np.linalg.norm(points, axis=1, keepdims=True)

    many = np.repeat([0, 1, 2], 200_000)
    truth = estimated_spread(labelled_sample(draw(many), many), groups=2).value
    bounds = [spread_upper_bound(labelled_sample(draw(labels), labels), 1.0) for _ in range(50)]
    assert min(bounds) > truth
    assert 1.5 < np.mean(bounds) / truth < 4

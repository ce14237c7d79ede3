"""The contrastive risk and its parts against exact sums over finite classes, and real refits."""

import math

import numpy as np
import pytest

from relatum.latent_class.estimates import normal_estimate, pair_risks
from relatum.latent_class.pair_tables import pair_table
from relatum.latent_class.resampling import (
    PARTS,
    leave_one_out_values,
)
from relatum.latent_class.sample import labelled_sample

from .finite_world import LOSSES, World, random_sample, within


@pytest.mark.parametrize("loss", LOSSES)
def test_pair_risks_are_unbiased_given_labels(loss):
    world, generator = World(0), np.random.default_rng(1)
    labels = np.repeat([0, 1, 2], [3, 5, 4])
    found = []
    for _ in range(400):
        sample = labelled_sample(world.draw(labels, generator), labels, class_prior=world.prior)
        table = pair_table(sample, loss)
        risks = table.values
        parts = [(PARTS[part](sample.weights) * risks).sum() for part in PARTS]
        found.append([*risks.ravel(), *parts])
    exact = world.pair_losses(loss)
    rho = world.prior
    tau = rho @ rho
    equal = (rho**2 * np.diag(exact)).sum() / tau
    unequal = (np.outer(rho, rho) * exact * (1 - np.eye(3))).sum() / (1 - tau)
    assert within(found, [*exact.ravel(), rho @ exact @ rho, equal, unequal])


def test_collision_probability_is_unbiased():
    generator = np.random.default_rng(2)
    prior = np.array([0.5, 0.3, 0.2])
    found = []
    for _ in range(4000):
        labels = generator.choice(3, 12, p=prior)
        counts = np.bincount(labels)
        # Every class is kept, so that nothing is conditioned on.
        if (counts > 0).sum() > 1:
            found.append(labelled_sample(np.zeros((12, 1)), labels, least=1).tau)
        else:
            found.append(1.0)
    assert within(found, 0.38)


def test_total_is_the_mean_of_its_parts():
    for prior in (None, [0.2, 0.5, 0.3]):
        risks = pair_risks(pair_table(random_sample(3, class_prior=prior)))
        mixed = risks.tau * risks.collision.value + (1 - risks.tau) * risks.noncollision.value
        assert risks.unsupervised.value == pytest.approx(mixed, rel=1e-14)


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("prior", [None, (0.2, 0.5, 0.3)])
@pytest.mark.parametrize("part", PARTS)
def test_jackknife_is_that_of_real_refits(loss, prior, part):
    sample = random_sample(4, (4, 5, 7), class_prior=prior)
    table = pair_table(sample, loss)
    n = len(sample.codes)
    refits = []
    for p in range(n):
        rest = sample.keep(np.arange(n) != p)
        refits.append((PARTS[part](rest.weights) * pair_table(rest, loss).values).sum())
    refits = np.array(refits)
    assert np.allclose(leave_one_out_values(table, PARTS[part]), refits, atol=1e-13)
    if prior is None:
        variance = (n - 1) / n * ((refits - refits.mean()) ** 2).sum()
    else:
        variance = sum(
            (m - 1)
            / m
            * ((refits[sample.codes == c] - refits[sample.codes == c].mean()) ** 2).sum()
            for c, m in enumerate(sample.counts)
        )
    estimate = getattr(pair_risks(table), part)
    assert estimate.standard_error == pytest.approx(math.sqrt(variance), rel=1e-9)


@pytest.mark.parametrize("given", [True, False])
@pytest.mark.parametrize("method", ["jackknife", "projection"])
def test_standard_errors_are_about_the_spread_over_samples(given, method):
    generator = np.random.default_rng(5)
    prior = np.array([0.5, 0.3, 0.2])
    centres = np.array([[1.0, 0.0], [0.0, 1.0], [-0.7, -0.7]])
    values, errors = [], []
    for _ in range(250):
        labels = np.repeat([0, 1, 2], [30, 18, 12]) if given else generator.choice(3, 60, p=prior)
        points = centres[labels] + 0.5 * generator.standard_normal((60, 2))
        sample = labelled_sample(points, labels, class_prior=prior if given else None)
        risks = pair_risks(pair_table(sample), method=method)
        values.append([getattr(risks, part).value for part in PARTS])
        errors.append([getattr(risks, part).standard_error for part in PARTS])
    ratio = np.mean(errors, axis=0) / np.std(values, axis=0)
    assert (ratio > 0.8).all() and (ratio < 1.3).all(), ratio


def test_too_small_a_class_has_no_jackknife():
    risks = pair_risks(pair_table(random_sample(6, (3, 9))))
    assert math.isnan(risks.collision.standard_error)
    assert "no standard error: a class has too few rows" in risks.collision.notes[-1]
    assert risks.noncollision.standard_error > 0


def test_interval_is_the_normal_one():
    estimate = normal_estimate(1.0, 0.5, 10, level=0.9)
    assert estimate.low == pytest.approx(1 - 0.5 * 1.6448536269514722)
    assert estimate.scaled(2).high == pytest.approx(2 + 1.6448536269514722)
    with pytest.raises(ValueError, match=r"level must be in \(0, 1\), got 95"):
        normal_estimate(1.0, 0.5, 10, level=95)
    with pytest.raises(ValueError, match="method must be one of"):
        pair_risks(pair_table(random_sample(6)), method="bootstrap")

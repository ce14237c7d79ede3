"""The leave-one-out mean classifier against real means, enumeration and simulation."""

import math
from itertools import product

import numpy as np
import pytest

from relatum.latent_class.leave_one_out import (
    leave_one_out_cross_entropy,
    leave_one_out_error,
    leave_one_out_full_risk,
    leave_one_out_margin_risk,
    leave_one_out_margins,
    leave_one_out_risk,
    leave_one_out_top_error,
)
from relatum.latent_class.resampling import (
    grouped_jackknife,
    split_error,
)
from relatum.latent_class.sample import labelled_sample

from .finite_world import LOSSES, MANY, World, random_sample, within


def test_leave_one_out_margins_are_those_of_real_means():
    sample = random_sample(7)
    for i, margins in enumerate(leave_one_out_margins(sample)):
        others = np.arange(len(sample.codes)) != i
        means = [sample.features[others & (sample.codes == c)].mean(0) for c in range(3)]
        own = means[sample.codes[i]]
        assert np.allclose(margins, [sample.features[i] @ (mean - own) for mean in means])


@pytest.mark.parametrize("loss", LOSSES)
def test_leave_one_out_risk_expects_the_block_risk(loss):
    """n_c − 1 positives and n_e negatives, by enumeration; above the risk of the true means."""
    world, generator = World(8, classes=2, support=3), np.random.default_rng(8)
    labels = np.array([0, 0, 0, 1, 1])
    counts, prior = np.bincount(labels), np.array([0.4, 0.6])
    expected, limit = [], []
    means = world.laws @ world.features
    for c in (0, 1):
        total = 0.0
        for (mine, p), (other, q) in product(
            world.blocks(c, counts[c] - 1), world.blocks(1 - c, counts[1 - c])
        ):
            total += p * q * (world.laws[c] @ LOSSES[loss](world.features @ (other - mine)))
        expected.append(total)
        limit.append(world.laws[c] @ LOSSES[loss](world.features @ (means[1 - c] - means[c])))
    found = [
        leave_one_out_risk(
            labelled_sample(world.draw(labels, generator), labels, class_prior=prior, least=2),
            loss, groups=2,
        ).value
        for _ in range(800)
    ]  # fmt: skip
    assert within(found, np.mean(expected))
    assert np.mean(expected) > np.mean(limit)
    covariances = [
        (world.features - m).T @ (law[:, None] * (world.features - m))
        for m, law in zip(means, world.laws, strict=True)
    ]
    bound = 0.0
    for c in (0, 1):
        width = covariances[c] / (counts[c] - 1) + covariances[1 - c] / counts[1 - c]
        bound += world.laws[c] @ np.sqrt(((world.features @ width) * world.features).sum(1)) / 2
    slope = 1.0 if loss == "hinge" else 1 / math.log(2)
    assert np.mean(expected) - np.mean(limit) <= slope * bound / 2


def test_resubstitution_would_be_optimistic():
    """On pure noise the plug-in margins look good; leaving one out does not."""
    generator = np.random.default_rng(9)
    sample = labelled_sample(generator.standard_normal((60, 50)), np.arange(60) % 20)
    means = sample.class_means(sample.features)
    scores = sample.features @ means.T
    plugged = scores.argmax(1) != sample.codes
    assert plugged.mean() < 0.1
    assert leave_one_out_top_error(sample).value > 0.8


def test_functions_of_the_margins():
    sample = random_sample(10, class_prior=[0.2, 0.5, 0.3])
    margins, rho = leave_one_out_margins(sample), sample.prior
    pairs = {"risk": 0.0, "margin": 0.0, "error": 0.0}
    full = {"hinge": 0.0, "top": 0.0, "ce": 0.0}
    for i, c in enumerate(sample.codes):
        for e in set(range(3)) - {c}:
            weight = rho[c] * rho[e] / (1 - rho @ rho) / sample.counts[c]
            pairs["risk"] += weight * LOSSES["logistic"](margins[i, e])
            pairs["margin"] += weight * max(0, 1 + margins[i, e] / 2.5)
            pairs["error"] += weight * (margins[i, e] >= 0)
        others = [margins[i, e] for e in range(3) if e != c]
        weight = rho[c] / sample.counts[c]
        full["hinge"] += weight * MANY["hinge"](others)
        full["top"] += weight * (max(others) >= 0)
        full["ce"] += weight * math.log(1 + sum(map(math.exp, others)))
    assert leave_one_out_risk(sample, "logistic").value == pytest.approx(pairs["risk"])
    assert leave_one_out_margin_risk(sample, 2.5).value == pytest.approx(pairs["margin"])
    assert leave_one_out_error(sample).value == pytest.approx(pairs["error"])
    assert leave_one_out_full_risk(sample).value == pytest.approx(full["hinge"])
    assert leave_one_out_top_error(sample).value == pytest.approx(full["top"])
    assert leave_one_out_cross_entropy(sample).value == pytest.approx(full["ce"])


def test_ties_are_errors():
    zeros = labelled_sample(np.zeros((6, 2)), np.arange(6) % 2)
    assert leave_one_out_error(zeros).value == leave_one_out_top_error(zeros).value == 1
    with pytest.raises(ValueError, match="margin must be a positive finite number, got 0"):
        leave_one_out_margin_risk(zeros, 0)


def test_group_errors_are_about_the_spread_over_samples():
    generator = np.random.default_rng(11)
    values, errors, split = [], [], []
    for _ in range(60):
        labels = np.arange(120) % 3
        points = np.eye(3)[labels] + 0.5 * generator.standard_normal((120, 3))
        estimate = leave_one_out_risk(labelled_sample(points, labels), "logistic")
        values.append(estimate.value)
        errors.append(estimate.standard_error)
        sample = labelled_sample(points, labels)
        split.append(split_error(sample, lambda s: float(s.features.mean())))
    assert 0.75 < np.mean(errors) / np.std(values) < 1.4
    # Within classes the mean of 360 numbers of standard deviation 1/2.
    assert 0.8 < np.mean(split) / (0.5 / math.sqrt(360)) < 1.2


def test_group_errors_where_rows_are_few():
    sample = random_sample(12, (2, 5), least=2)
    assert math.isnan(leave_one_out_risk(sample).standard_error)
    assert math.isnan(split_error(sample, lambda s: 0.0, least=2))
    with pytest.raises(ValueError, match="groups must be at least 2, got 1"):
        grouped_jackknife(sample, lambda s: 0.0, groups=1)

"""k negatives, blocks and squares of scores against loops over all draws."""

import math
from itertools import combinations, product

import numpy as np
import pytest

from relatum.latent_class.estimates import pair_risks
from relatum.latent_class.k_negatives import estimated_infonce, estimated_k_negative_risk
from relatum.latent_class.pair_tables import pair_table
from relatum.latent_class.sample import labelled_sample
from relatum.latent_class.sample_blocks import estimated_block_risks, estimated_spectral_risk

from .finite_world import LOSSES, MANY, World, random_sample, within


def looped_k_negatives(sample, k, loss, subsets):
    scores = sample.features @ sample.features.T
    means = []
    for i, c in enumerate(sample.codes):
        of_anchor = []
        for j in np.flatnonzero(sample.codes == c):
            rest = [x for x in range(len(scores)) if x not in (i, j)]
            if i != j:
                of_anchor += [
                    MANY[loss](scores[i, list(s)] - scores[i, j]) for s in subsets(rest, k)
                ]
        means.append(np.mean(of_anchor))
    return np.mean(means)


@pytest.mark.parametrize("k", [1, 2, 3, 6])
@pytest.mark.parametrize("scale", [0.0, 0.5, 2.0])
def test_hinge_with_k_negatives_is_the_mean_over_subsets(k, scale):
    labels = np.array([0, 1, 0, 1, 1, 0, 1, 2])
    points = scale * np.random.default_rng(13).integers(-2, 3, (8, 2))  # with ties
    sample = labelled_sample(points[:7], labels[:7], least=2)
    if k > 5:
        with pytest.raises(ValueError, match="k must be from 1 to the 5 rows beside a pair, got 6"):
            estimated_k_negative_risk(sample, k)
        return
    expected = looped_k_negatives(sample, k, "hinge", combinations)
    assert estimated_k_negative_risk(sample, k).value == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("k", [1, 2])
@pytest.mark.parametrize("scale", [0.0, 0.5, 3.0, 30.0])
def test_logistic_with_k_negatives_is_the_mean_over_draws(k, scale):
    """With replacement; scores up to about a thousand."""
    sample = random_sample(14, (3, 4), dim=2)
    sample = labelled_sample(scale * sample.features, sample.codes)
    scores = sample.features @ sample.features.T
    expected = []
    for i, c in enumerate(sample.codes):
        for j in np.flatnonzero((sample.codes == c) & (np.arange(7) != i)):
            rest = [x for x in range(7) if x not in (i, j)]
            weight = 1 / 7 / (sample.counts[c] - 1) / 5**k
            for drawn in product(rest, repeat=k):
                scored = np.concatenate([[0.0], scores[i, list(drawn)] - scores[i, j]])
                expected.append(weight * np.logaddexp.reduce(scored))
    assert estimated_infonce(sample, k).value == pytest.approx(sum(expected), rel=1e-12, abs=1e-14)


def test_random_subsets_agree_with_all_of_them():
    sample = random_sample(15, (4, 5), dim=2)
    estimate = estimated_k_negative_risk(sample, 3, "logistic", draws=5000)
    expected = looped_k_negatives(sample, 3, "logistic", combinations)
    assert estimate.value == pytest.approx(expected, abs=0.03)
    assert "5000 random sets of negatives for each anchor" in estimate.notes


@pytest.mark.parametrize("loss", LOSSES)
def test_random_subsets_of_a_given_prior(loss):
    """The class of each negative is drawn first, then as many distinct rows beside the pair."""
    prior, k = [0.3, 0.7], 2
    points = random_sample(15, (4, 5), dim=2).features
    sample = labelled_sample(points, [0] * 4 + [1] * 5, class_prior=prior)
    scores = points @ points.T

    def sets(pair):
        for m in range(k + 1):
            weight = math.comb(k, m) * prior[0] ** m * prior[1] ** (k - m)
            free = [[x for x in np.flatnonzero(sample.codes == c) if x not in pair] for c in (0, 1)]
            both = list(product(combinations(free[0], m), combinations(free[1], k - m)))
            yield from ((weight / len(both), [*first, *second]) for first, second in both)

    expected = 0.0
    for i, j in product(range(9), repeat=2):
        c = sample.codes[i]
        if i != j and sample.codes[j] == c:
            mass = prior[c] / sample.counts[c] / (sample.counts[c] - 1)
            for weight, rows in sets((i, j)):
                expected += mass * weight * MANY[loss](scores[i, rows] - scores[i, j])
    estimate = estimated_k_negative_risk(sample, k, loss, draws=5000)
    assert estimate.value == pytest.approx(expected, rel=0.01)


def test_k_negatives_of_a_given_prior():
    """Collapsed classes: the loss says how many of the negatives collide, a binomial number."""
    labels = np.repeat([0, 1], [40, 20])
    prior = np.array([0.25, 0.75])
    sample = labelled_sample(10 * np.eye(2)[labels], labels, class_prior=prior)
    estimate = estimated_infonce(sample, 4, draws=60)
    law = [[math.comb(4, m) * p**m * (1 - p) ** (4 - m) for m in range(5)] for p in prior]
    expected = prior @ np.array(law) @ np.log(1 + np.arange(5))
    assert estimate.value == pytest.approx(expected, abs=0.02)
    few = labelled_sample(10 * np.eye(2)[labels], labels, class_prior=[0.001, 0.999])
    assert estimated_infonce(few, 40, draws=5).value == pytest.approx(math.log(41), abs=0.02)


def test_one_negative_is_the_contrastive_risk():
    """Without a prior, up to the weights: anchors n_c / n, negatives anything else."""
    sample = random_sample(16, (40, 60), dim=2)
    one = estimated_k_negative_risk(sample, 1)
    risks = pair_risks(pair_table(sample))
    assert one.value == pytest.approx(risks.unsupervised.value, abs=0.02)
    assert 0 < one.standard_error < 10 * risks.unsupervised.standard_error


@pytest.mark.parametrize("loss", LOSSES)
def test_block_risks_are_unbiased(loss):
    world, generator = World(17, classes=2, support=3), np.random.default_rng(17)
    labels = np.repeat([0, 1], [6, 5])
    expected = np.zeros((2, 2))
    for c, e in product((0, 1), repeat=2):
        for (mine, p), (other, q) in product(world.blocks(c, 2), world.blocks(e, 2)):
            losses = LOSSES[loss](world.features @ (other - mine))
            expected[c, e] += p * q * (world.laws[c] @ losses)
    found = []
    for draw in range(200):
        sample = labelled_sample(world.draw(labels, generator), labels, class_prior=[0.5, 0.5])
        risks = estimated_block_risks(sample, 2, loss, draws=2, seed=draw)
        found.append([risks.collision.value, risks.noncollision.value])
    across = (expected[0, 1] + expected[1, 0]) / 2
    assert within(found, [np.trace(expected) / 2, across])


def test_blocks_of_one_are_triplets_and_larger_ones_cost_less():
    sample = random_sample(18, (30, 40), dim=3)
    triplets = pair_risks(pair_table(sample))
    found = [estimated_block_risks(sample, b, draws=100) for b in (1, 3, 9)]
    assert found[0].noncollision.value == pytest.approx(triplets.noncollision.value, rel=0.02)
    assert found[0].collision.value == pytest.approx(triplets.collision.value, rel=0.02)
    costs = [risks.unsupervised.value for risks in found]
    assert costs[0] > costs[1] > costs[2]
    assert found[0].unsupervised.standard_error > 0
    assert math.isnan(found[2].unsupervised.standard_error)
    with pytest.raises(ValueError, match="blocks of 15 needs 31 rows of every class, class 0 has"):
        estimated_block_risks(sample, 15)


def test_spectral_risk_is_the_mean_over_distinct_rows():
    sample = random_sample(19, class_prior=[0.2, 0.5, 0.3])
    rho, codes = sample.prior, sample.codes
    scores = sample.features @ sample.features.T
    expected = 0.0
    for c, e in product(range(3), repeat=2):
        pairs = [
            scores[i, j]
            for i in np.flatnonzero(codes == c)
            for j in np.flatnonzero(codes == e)
            if i != j
        ]
        expected += rho[c] * rho[e] * np.square(pairs).mean()
        expected -= 2 * rho[c] * np.mean(pairs) * (c == e)
    assert estimated_spectral_risk(sample).value == pytest.approx(expected)

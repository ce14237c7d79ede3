"""The certified value: what it is made of, and that it holds with its probability."""

import math
from dataclasses import replace

import numpy as np
import pytest

from relatum.latent_class import (
    FiniteModel,
    certify,
    labelled_sample,
    mean_classifier_risk,
    unsupervised_risk,
)
from relatum.latent_class.certificate.inputs import read
from relatum.latent_class.certificate.labelled import _some, _thinned, _triplets
from relatum.latent_class.certificate.paired import _triplets as _paired
from relatum.latent_class.certificate.pairs import pair_risk
from relatum.latent_class.certificate.value import Triplets, pair_triplets

from .finite_world import LOSS, LOSSES, World, within

PLAIN = {"class_prior": None, "classes": None, "k": 1, "block": 1, "loss": "hinge", "radius": 1.0,
         "tau_lower": 0.0, "delta": 0.05, "level": 0.95, "seed": 0}  # fmt: skip


def inputs(rows, labels=None, pairs=None, negatives=None, groups=None, **options):
    return read(rows, labels, pairs, negatives, groups, **PLAIN | options)


def labelled(rows, labels, groups=None, **options):
    """The triplets that `certify` reads."""
    given = inputs(rows, labels, groups=groups, **options)
    return _triplets(*_thinned(given, given.sample, []))


# Collapsed to its classes, an encoder meets the bound with equality: nothing is to spare.
COLLAPSED = FiniteModel([0.5, 0.3, 0.2], np.eye(3), [[1.0, 0], [0.6, 0.8], [0, -1.0]])


def test_it_is_mean_and_width_less_collisions():
    losses = np.random.default_rng(0).random(150)
    few = Triplets(lambda factor: losses, "hinge", 1.0, 0.1, 0.2).certified()
    width = 3 * math.sqrt(math.log(10) / 300)  # B_R = 1 + 2R²
    assert few.value == pytest.approx((losses.mean() + width - 0.2) / 0.8)
    assert few.vacuous is (few.value >= 1) and "150 triplets" in few.reason
    many = Triplets(lambda factor: np.tile(losses, 10), "hinge", 1.0, 0.1, 0.2).certified()
    log, m = math.log(20), 1500
    variance = np.tile(losses, 10).var(ddof=1)
    width = math.sqrt(2 * variance * log / m) + 7 * 3 * log / (3 * (m - 1))
    assert many.value == pytest.approx((losses.mean() + width - 0.2) / 0.8)
    assert "Bernstein" in many.reason and "Hoeffding" in few.reason


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("size", [150, 900])
def test_it_holds_where_nothing_is_to_spare(loss, size):
    """Labels with a prior: failures stay below δ; the mean without a width fails half the time."""
    truth = mean_classifier_risk(COLLAPSED, loss)
    assert truth == pytest.approx(
        (unsupervised_risk(COLLAPSED, loss) - COLLAPSED.tau) / (1 - COLLAPSED.tau)
    )
    failures = below = 0
    for seed in range(200):
        rows, labels = COLLAPSED.sample_labelled(size, np.random.default_rng(seed))
        options = {"loss": loss, "class_prior": COLLAPSED.prior, "seed": seed, "delta": 0.2}
        triplets = labelled(rows, labels, **options)
        value = triplets.certified().value
        failures += value < truth
        below += replace(triplets, radius=None).bound(1.0) < truth
    assert failures <= 0.2 * 200
    assert 60 < below < 140


@pytest.mark.parametrize("tau", [0.0, 0.38])
def test_pairs_hold_with_any_lower_bound(tau):
    """Classes are never seen, collisions happen as they do; τ = 0 and the exact one are right."""
    truth, size = mean_classifier_risk(COLLAPSED), 600
    risk = unsupervised_risk(COLLAPSED)
    failures, plain = 0, []
    for seed in range(150):
        rows, positives, _ = COLLAPSED.sample_pairs(size, np.random.default_rng(seed))
        given = inputs(rows, pairs=positives, tau_lower=tau, delta=0.2, seed=seed)
        triplets = _paired(given, given.rows, given.pairs)
        certified = triplets.certified()
        failures += certified.value is not None and certified.value < truth
        plain.append(triplets.draw(1.0).mean())
    assert failures <= 0.2 * 150
    assert within(plain, risk)


@pytest.mark.parametrize("given", [True, False])
def test_pair_triplets_share_nothing(given):
    """Moving one row moves one loss."""
    generator = np.random.default_rng(1)
    rows, mates = generator.standard_normal((2, 20, 3))
    negatives = generator.standard_normal((15, 3)) if given else None
    before = pair_triplets(rows, mates, negatives, "logistic", 0)
    assert len(before) == (15 if given else 10)
    for side in (rows, mates):
        for i in range(20):
            kept = side[i].copy()
            side[i] += 5
            moved = (pair_triplets(rows, mates, negatives, "logistic", 0) != before).sum()
            assert moved == 1 or (given and moved == 0)
            side[i] = kept


@pytest.mark.parametrize("loss", LOSSES)
def test_pair_risk_is_the_double_loop(loss):
    generator = np.random.default_rng(2)
    rows, mates, others = generator.standard_normal((3, 9, 2))
    expected = [
        LOSS[loss](rows[i] @ (mates[j] - mates[i])) for i in range(9) for j in range(9) if i != j
    ]
    assert pair_risk(rows, mates, None, loss, 0.95).value == pytest.approx(np.mean(expected))
    expected = [LOSS[loss](rows[i] @ (others[j] - mates[i])) for i in range(9) for j in range(5)]
    found = pair_risk(rows, mates, others[:5], loss, 0.95)
    assert found.value == pytest.approx(np.mean(expected))


@pytest.mark.parametrize("negatives", [0, 90])
def test_pair_risk_knows_its_error(negatives):
    """Anchors that are nearly alike: a mate counts as much where it is the negative of others."""
    world, generator = World(11), np.random.default_rng(11)
    values, errors, exact = [], [], []
    for _ in range(300):
        rows = 1 + 0.1 * generator.standard_normal((60, 1))
        mates, others = 2 * generator.random((2, max(60, negatives), 1))
        others = others[:negatives] if negatives else None
        found = pair_risk(rows, mates[:60], others, "hinge", 0.95)
        values.append(found.value)
        errors.append(found.standard_error)
        pairs = world.sample_pairs(60, generator)
        exact.append(pair_risk(pairs.anchors, pairs.positives, None, "hinge", 0.95).value)
    assert within(exact, unsupervised_risk(world))
    assert np.sqrt(np.mean(np.square(errors))) == pytest.approx(np.std(values), rel=0.15)


def test_a_group_serves_once():
    """However many rows a group has: moving all of them moves one loss at most, and none is left
    out of the count; with one row to a group nothing changes."""
    generator = np.random.default_rng(3)
    labels = np.arange(360) % 3
    rows = generator.standard_normal((360, 4))
    groups = np.arange(360) // 4  # four rows of each group, of several classes
    before = labelled(rows, labels, groups, radius=99.0).draw(1.0)
    assert 10 <= len(before) <= 90 / 3
    for group in range(0, 90, 7):
        moved = rows + 5 * (groups == group)[:, None]
        after = labelled(moved, labels, groups, radius=99.0).draw(1.0)
        assert (after != before).sum() <= 1
    alone = labelled(rows, labels, np.arange(360), radius=99.0, class_prior=[1 / 3] * 3)
    plain = labelled(rows, labels, radius=99.0, class_prior=[1 / 3] * 3)
    assert len(alone.draw(1.0)) == len(plain.draw(1.0))


def test_copies_of_rows_are_no_rows():
    """Every row five times, said to be one group: the numbers of the rows themselves."""
    generator = np.random.default_rng(4)
    labels = np.arange(120) % 3
    rows = np.eye(3)[labels] + 0.5 * generator.standard_normal((120, 3))
    options = {"class_prior": [1 / 3] * 3, "radius": 4.0, "k": 2, "block": 1}
    once = certify(rows, labels, **options)
    copies = certify(
        rows.repeat(5, axis=0), labels.repeat(5), groups=np.arange(120).repeat(5), **options
    )
    for line in once.lines:
        again = copies.line(line.key)
        if "[" not in line.key and "supervised" not in line.key:  # those draw rows
            assert again.value == pytest.approx(line.value, abs=1e-12), line.key
        if not math.isnan(line.standard_error):
            assert again.standard_error == pytest.approx(line.standard_error, rel=0.9, abs=0.01)
    assert any("120 of 600" in note for note in copies.notes)
    assert any("share groups" in warning for warning in copies.warnings)
    blind = certify(rows.repeat(5, axis=0), labels.repeat(5), **options)
    error = "noncollision_risk"
    assert blind.line(error).standard_error < 0.6 * copies.line(error).standard_error


def test_rare_classes_stay_where_rows_are_left_out():
    """In proportion, three rows at least; the rows of a class are any of them."""
    labels = np.repeat([0, 1, 2], [5000, 9000, 4])
    sample = labelled_sample(np.arange(14004.0)[:, None], labels)
    few = _some(sample, 1000, 0)
    assert few.counts.tolist() == [357, 642, 3]
    again = _some(sample, 1000, 1)
    assert len(set(few.features[:, 0]) & set(again.features[:, 0])) < 200
    assert _some(sample, 20000, 0) is sample


def test_nothing_is_certified_of_too_few_rows():
    rows, labels = np.eye(3).repeat(3, axis=0), np.arange(9) // 3
    found = certify(rows, labels, radius=1.0, k=(), block=())
    assert found.certified is None and "too few independent rows" in found.reason
    assert "NOTHING CERTIFIED" in str(found)


def test_pairs_whose_risk_may_be_one_certify_nothing():
    """Above 1 a lower bound on τ would make the bound smaller than it is."""
    generator = np.random.default_rng(5)
    rows, mates = (x / np.linalg.norm(x, axis=1, keepdims=True)
                   for x in generator.standard_normal((2, 400, 3)))  # fmt: skip
    found = certify(rows, pairs=mates, radius=1.0, tau_lower=0.3)
    assert found.certified is None and found.vacuous is True
    assert "may be 1 or more" in found.reason

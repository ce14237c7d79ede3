"""k negatives, all classes at once, InfoNCE: bounds on random finite models, wrong ones refuted."""

import itertools
import math
from functools import cache

import numpy as np
import pytest

from relatum.latent_class import FiniteModel
from relatum.latent_class.bounds import competitive_bound
from relatum.latent_class.bounds.infonce import (
    cross_entropy_lower,
    cross_entropy_upper,
    cross_entropy_upper_any_prior,
    jensen_gap,
    published_cross_entropy_lower,
    published_cross_entropy_upper,
)
from relatum.latent_class.bounds.many import (
    full_way_bound,
    top1_bound,
    tuple_bound,
    tuple_competitive_bound,
)
from relatum.latent_class.bounds.published import (
    published_full_way_bound,
    sub_task_bound,
    task_prior_factor,
)
from relatum.latent_class.risks import mean_scores, noncollision_risk, spread, unsupervised_risk
from relatum.latent_class.tuples import (
    full_way_losses,
    infonce_risk,
    mean_cross_entropy,
    mean_tuple_risk,
    rest_risk,
    top1_errors,
    tuple_risk,
    tuple_spread,
)

from .finite_world import LOSSES, MANY, random_models

both_losses = pytest.mark.parametrize("loss", LOSSES)
MODELS = random_models(50, seed=50, classes=4, points=6, width=3)
NEGATIVES = (1, 2, 7, 40)


@cache
def risk(index: int, loss: str, k: int) -> float:
    return tuple_risk(MODELS[index], loss, k=k)


def cases(loss):
    for index, model in enumerate(MODELS):
        for k in NEGATIVES:
            yield model, k, risk(index, loss, k)


@both_losses
def test_tuples(loss):
    doubled = 0
    for model, k, value in cases(loss):
        mean = mean_tuple_risk(model, loss, k=k)
        bound = tuple_bound(value, model.prior, loss, k=k)
        assert mean <= bound.value * (1 + 1e-9) + 1e-9 and bound.holds
        sub = mean_tuple_risk(model, loss, k=k, collisions=True)
        assert sub <= sub_task_bound(value, model.prior, loss, k=k).value + 1e-9
        twice = (value - 2 * bound.terms["floor"]) / (1 - bound.terms["tau_k"])
        doubled += mean > twice + 1e-9
    assert doubled > 50  # the floor cannot be twice as high


@both_losses
def test_tuples_of_another_encoder(loss):
    without = 0
    for model, k, value in cases(loss):
        rest, s = rest_risk(model, loss, k=k), tuple_spread(model, k=k)
        bound = tuple_competitive_bound(rest, s, model.prior, loss, k=k)
        mean = mean_tuple_risk(model, loss, k=k)
        assert mean <= bound.value * (1 + 1e-9) + 1e-9
        floor = tuple_bound(value, model.prior, loss, k=k).terms["floor"]
        lipschitz = 1 if loss == "hinge" else 1 / math.log(2)
        assert value <= rest + floor + lipschitz * s + 1e-9
        without += value > rest + floor + 1e-9
    assert without > 0  # the spread is needed


@both_losses
def test_one_negative_is_the_main_chain(loss):
    for model in MODELS:
        tau = model.tau
        many = tuple_competitive_bound(
            rest_risk(model, loss), tuple_spread(model), model.prior, loss, excess=0.01
        )
        different, s = noncollision_risk(model, loss), spread(model)
        one = competitive_bound(different, tau, loss, spread=s, excess=0.01)
        assert many.value == pytest.approx(one.value, rel=1e-9)
        un = unsupervised_risk(model, loss)
        assert tuple_bound(un, model.prior, loss).value == pytest.approx((un - tau) / (1 - tau))


@both_losses
def test_all_classes_and_top1(loss):
    uncovered = 0
    for model, k, value in cases(loss):
        rho, errors = model.prior, top1_errors(model)
        weighted = float(rho * (1 - rho) ** k @ full_way_losses(model, loss))
        full = full_way_bound(value, rho, loss, k=k)
        assert weighted <= full.value * (1 + 1e-9) + 1e-9
        assert float(rho * (1 - rho) ** k @ errors) <= full.value * (1 + 1e-9) + 1e-9
        assert float(rho @ errors) <= top1_bound(value, rho, loss, k=k).value * (1 + 1e-9) + 1e-7
        uncovered += weighted > full.value * full.terms["coverage"] + 1e-9
    assert uncovered > 0  # without the coverage it is wrong


def test_coefficient_is_about_half_of_the_published_one():
    for classes in (2, 3, 5, 10, 50, 200, 399):
        prior = np.full(classes, 1 / classes)
        for k in (1, 2, 5, 20, 100, 1000):
            ours = full_way_bound(1000.0, prior, k=k)
            left = 1 - ours.terms["tau_k"]
            if left < 1e-9:
                continue
            theirs = published_full_way_bound(1000.0, classes, k=k)
            assert ours.value / left <= 0.51 * theirs.value * (1 + 1e-9)
    # k = 1, uniform: the factor is K
    one = full_way_bound(1.0, np.full(10, 0.1), k=1)
    assert one.value / 0.9 == pytest.approx(10 * (1 - 0.1), rel=1e-9)
    assert top1_bound(1.0, np.full(10, 0.1), k=1).value == pytest.approx(9, rel=1e-9)


def test_no_bound_below_rounding():
    """Of two classes and 100 negatives 2^-100 is left: no float64 risk can tell."""
    for bound in (tuple_bound, top1_bound):
        assert bound(1.0, [0.5, 0.5], k=100).value == math.inf
        assert bound(1.0, [0.5, 0.5], k=100).vacuous
    assert tuple_competitive_bound(0.0, 0.0, [0.5, 0.5], k=2000, excess=1e-3).value == math.inf


def supports(prior, others, k):
    """Each set of classes, and the probability that k draws bring exactly it: by listing draws."""
    found = {}
    for draw in itertools.product(range(len(prior)), repeat=k):
        if set(draw) <= set(others):
            key = frozenset(draw)
            found[key] = found.get(key, 0.0) + math.prod(prior[c] for c in draw)
    return found


@both_losses
def test_other_laws_of_the_anchor_within_a_task(loss):
    k, ignored = 3, 0
    for model in random_models(40, seed=51, classes=3, points=5):
        rho, scores = model.prior, mean_scores(model)
        joint = {}  # (T, c): probability, given no collision
        for c in range(len(rho)):
            for found, p in supports(rho, set(range(len(rho))) - {c}, k).items():
                joint[found | {c}, c] = joint.get((found | {c}, c), 0.0) + rho[c] * p
        left = plain = 0.0
        total = sum(joint.values())
        for task in {t for t, _ in joint}:
            mass = np.array([joint.get((task, c), 0.0) for c in sorted(task)])
            uniform = np.full(len(task), 1 / len(task))
            losses = [
                sum(
                    p * MANY[loss]([scores[x, e] - scores[x, c] for e in task if e != c])
                    for x, p in enumerate(model.laws[c])
                )
                for c in sorted(task)
            ]
            share = mass.sum() / total
            left += share * task_prior_factor(mass / mass.sum(), uniform) * (uniform @ losses)
            plain += share * (uniform @ losses)
        bound = tuple_bound(tuple_risk(model, loss, k=k), rho, loss, k=k).value
        assert left <= bound + 1e-9
        ignored += plain > mean_tuple_risk(model, loss, k=k) + 1e-9
    assert ignored > 0  # the factor is what relates the two averages


def test_zero_encoders_are_equalities():
    zero = FiniteModel([0.25] * 4, np.eye(4), np.zeros((4, 2)), radius=1.0)
    for k in (1, 5, 60):
        assert tuple_risk(zero, "hinge", k=k) == pytest.approx(1)
        value = infonce_risk(zero, k=k)
        assert value == pytest.approx(math.log(1 + k), rel=1e-12)
        bound = cross_entropy_upper(value, zero.prior, zero.means, k=k, spans=np.zeros(4))
        assert bound.value == pytest.approx(math.log(4), rel=1e-10)
        assert mean_tuple_risk(zero, "logistic", k=k) <= tuple_bound(
            tuple_risk(zero, "logistic", k=k), zero.prior, "logistic", k=k
        ).value * (1 + 1e-9)


def test_jensen_gap_is_the_largest():
    rng = np.random.default_rng(0)
    for d in (0.5, 2.0, 8.0):
        grid = np.linspace(0, 1, 200_001)  # two points at the ends, the extremal law
        largest = (np.log1p(grid * math.expm1(d)) - grid * d).max()
        assert jensen_gap(d) == pytest.approx(largest, abs=1e-9)
        a, p = rng.uniform(0, d, 6), rng.dirichlet(np.ones(6))
        assert np.log(p @ np.exp(a)) - p @ a <= jensen_gap(d) <= d**2 / 8
        assert jensen_gap(d) <= 2 * math.log(math.cosh(d / 2))
    near = jensen_gap([0.99e-4, 1.01e-4])
    assert near[0] < near[1] and near == pytest.approx(np.array([0.99, 1.01]) ** 2 / 8e8, rel=1e-6)
    assert jensen_gap(0.0) == 0 and jensen_gap(5000.0) == pytest.approx(5000 - math.log(5000) - 1)


def test_infonce_and_the_cross_entropy():
    without = {"upper": 0, "lower": 0}
    for model in MODELS:
        rho, mu, radius = model.prior, model.means, model.radius
        exact = mean_cross_entropy(model)
        spans = np.ptp(mean_scores(model), axis=1)
        for k in (1, 3, 20):
            value = infonce_risk(model, k=k)
            given = {"k": k, "spans": spans, "weights": model.negative_law}
            for upper in (cross_entropy_upper, cross_entropy_upper_any_prior):
                sharp = upper(value, rho, mu, **given)
                assert exact <= sharp.value + 1e-9
                assert sharp.value <= upper(value, rho, mu, k=k, radius=radius).value + 1e-9
            low = cross_entropy_lower(value, rho, mu, radius, k=k)
            assert low.value <= exact + 1e-9
            assert published_cross_entropy_lower(value, rho, radius, k=k).value <= exact + 1e-9
            published = published_cross_entropy_upper(value, rho, radius, k=k)
            assert exact <= published.value + 1e-9
            if np.ptp(rho) == 0:
                ours = cross_entropy_upper(value, rho, mu, k=k, radius=radius).value
                both = cross_entropy_upper_any_prior(value, rho, mu, k=k, radius=radius).value
                assert ours <= published.value + 1e-9 and ours == pytest.approx(both)
            sharp = cross_entropy_upper(value, rho, mu, **given)
            without["upper"] += exact > sharp.value - sharp.terms["gap"] + 1e-9
            without["lower"] += exact < low.value - low.terms["gap"] - 1e-9
    assert min(without.values()) > 0  # the Jensen gap is needed both ways


def test_small_radii_close_the_interval():
    """Nothing but the Jensen gaps, about R⁴/2, is left of it at any k."""
    model = FiniteModel([0.2] * 5, np.eye(5), 0.3 * np.eye(5))
    exact = mean_cross_entropy(model)
    for k in (1, 10, 100, 1000):
        value = infonce_risk(model, k=k)
        high = cross_entropy_upper(value, model.prior, model.means, k=k, radius=0.3).value
        low = cross_entropy_lower(value, model.prior, model.means, 0.3, k=k).value
        assert low <= exact <= high < low + 0.01


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: tuple_bound(0.5, [0.5, 0.6]), "prior must sum to 1"),
        (lambda: tuple_bound(math.inf, [0.5, 0.5]), "tuple_risk must be a finite number"),
        (lambda: tuple_bound(0.5, [0.5, 0.5], k=0), "k must be at least 1, got 0"),
        (lambda: tuple_competitive_bound(0.5, -1.0, [0.5, 0.5]), "spread must be a finite"),
        (lambda: task_prior_factor([1.0], [0.5, 0.5]), "must be of one length"),
        (lambda: jensen_gap(-1.0), "span must be finite and >= 0, got -1.0"),
        (lambda: cross_entropy_upper(1.0, [0.5, 0.5], np.eye(2), k=1), "either radius or spans"),
        (lambda: cross_entropy_upper(1.0, [0.5, 0.5], np.eye(3), k=1, radius=1.0), "means must"),
        (lambda: cross_entropy_lower(1.0, [0.5, 0.5], np.eye(2), 0.0, k=1), "radius must be a"),
    ],
)
def test_errors(call, words):
    with pytest.raises(ValueError, match=words):
        call()

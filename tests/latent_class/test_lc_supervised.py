"""The best linear classifier: against dual programs, optimality conditions and closed forms."""

import math

import numpy as np
import pytest
from scipy.optimize import linprog, minimize_scalar
from scipy.special import expit

from relatum.latent_class import (
    FiniteModel,
    ball_lower_bound,
    linear_minimum,
    linear_risk,
    mean_classifier_risk,
    noncollision_risk,
    supervised_risk,
    unsupervised_risk,
)

from .finite_world import LOSS, LOSSES, random_models

MODELS = random_models(60, seed=7, classes=4, points=8)
both = pytest.mark.parametrize("loss", LOSSES)


def task(model, c=0, e=1):
    """Every point twice, for class c and against class e."""
    points = np.concatenate([model.features, model.features])
    signs = np.repeat([1.0, -1.0], len(model.features))
    return points, signs, np.concatenate([model.laws[c], model.laws[e]]) / 2


def cloud(rng, n, d, noise):
    """Points that are hard, easy, separable or repeated, as the noise has it."""
    w = rng.normal(size=d)
    points = rng.normal(size=(n, d))
    if rng.random() < 0.3:
        points = np.round(points)
    signs = np.where(points @ w + noise * rng.normal(size=n) > 0, 1.0, -1.0)
    return points, signs, rng.dirichlet(np.ones(n))


CLOUDS = [
    cloud(rng, n, d, noise)
    for rng in [np.random.default_rng(11)]
    for n, d, noise in [(6, 2, 1.0), (12, 3, 1.0), (12, 3, 0.1), (30, 4, 2.0), (9, 1, 0.5)] * 12
]


@both
@pytest.mark.parametrize("seed", range(3))
def test_nearly_collinear_features_change_nothing(loss, seed):
    """Weights are free, so any invertible map of the features leaves the minimum where it is."""
    generator = np.random.default_rng(seed)
    points, signs, masses = cloud(generator, 60, 30, 30.0)
    axes = np.linalg.qr(generator.normal(size=(30, 30)))[0]
    thin = points * np.arange(1, 31.0) ** -6 @ axes
    truth = linear_minimum(points, signs, masses, loss)
    found = linear_minimum(thin, signs, masses, loss)
    assert found.value == pytest.approx(truth.value, rel=1e-6, abs=1e-9)
    assert found.attained == truth.attained


def test_hinge_equals_the_dual_program():
    """max Σ a, 0 <= a <= m, Σ a y f = 0: nothing of it is in the code under test."""
    for points, signs, masses in [*CLOUDS, *map(task, MODELS)]:
        dual = linprog(
            -np.ones(len(masses)),
            A_eq=(signs[:, None] * points).T,
            b_eq=np.zeros(points.shape[1]),
            bounds=[(0, m) for m in masses],
        )
        best = linear_minimum(points, signs, masses, "hinge")
        assert best.value == pytest.approx(-dual.fun, abs=1e-10)
        assert best.attained


def test_logistic_meets_the_conditions_of_an_infimum():
    """A direction loses nothing and takes some points to zero; on the rest the gradient is zero."""
    separated = 0
    for points, signs, masses in [*CLOUDS, *map(task, MODELS)]:
        best = linear_minimum(points, signs, masses, "logistic")
        rows, mass = (signs[:, None] * points)[masses > 0], masses[masses > 0]
        rise = rows @ best.direction
        assert rise.min() >= -1e-8
        rest = rise < 0.5
        slopes = mass[rest] * expit(-(rows[rest] @ best.weights)) / math.log(2)
        np.testing.assert_allclose(slopes @ rows[rest], 0, atol=1e-12)
        margins = rows[rest] @ best.weights
        value = sum(m * LOSS["logistic"](-t) for m, t in zip(mass[rest], margins, strict=True))
        assert best.value == pytest.approx(value, rel=1e-12, abs=1e-14)
        assert best.attained == bool(rest.all())
        separated += not best.attained
        far = linear_risk(points, signs, masses, best.weights + 60 * best.direction, "logistic")
        assert best.value - 1e-12 <= far <= best.value + 1e-6
    assert 20 < separated < 100


def test_logistic_in_one_dimension():
    for points, signs, masses in CLOUDS[4::5]:
        found = minimize_scalar(
            lambda w, t=points, y=signs, m=masses: linear_risk(t, y, m, [w], "logistic"),
            bounds=(-1e5, 1e5),
            method="bounded",
            options={"xatol": 1e-9},
        )
        best = linear_minimum(points, signs, masses, "logistic")
        assert best.value == pytest.approx(found.fun, abs=1e-9)


def test_separable_classes_are_not_attained():
    best = linear_minimum(
        [[1.0, 0.0], [0.0, 2.0], [-1.0, 0.5]], [1, 1, -1], [0.2, 0.3, 0.5], "logistic"
    )
    assert best.value == 0.0 and not best.attained


@pytest.mark.parametrize("contradictory", [0.1, 0.5, 1.0])
def test_of_quasi_separable_classes_the_contradiction_stays(contradictory):
    """(1, 0) with both labels and equal masses costs 1; (0, 1) goes to zero."""
    points = [[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]]
    masses = [contradictory / 2, contradictory / 2, 1 - contradictory]
    best = linear_minimum(points, [1, -1, 1], masses, "logistic")
    assert best.value == pytest.approx(contradictory, abs=1e-12)
    assert best.attained == (contradictory == 1)


def test_uneven_contradiction_costs_its_entropy():
    """One point, labels with masses p and 1 − p: the infimum is the entropy in bits."""
    for p in (0.5, 0.3, 0.01, 1e-6):
        best = linear_minimum([[2.0], [2.0]], [1, -1], [p, 1 - p], "logistic")
        entropy = -p * math.log2(p) - (1 - p) * math.log1p(-p) / math.log(2)
        assert best.value == pytest.approx(entropy, rel=1e-10)
        hinge = linear_minimum([[2.0], [2.0]], [1, -1], [p, 1 - p], "hinge")
        assert hinge.value == pytest.approx(2 * p, abs=1e-12)


@both
def test_points_at_the_origin_cost_one(loss):
    best = linear_minimum([[0.0], [0.0], [1.0]], [1, -1, 1], [0.25, 0.25, 0.5], loss)
    assert best.value == pytest.approx(0.5, abs=1e-12)
    assert best.attained == (loss == "hinge")
    assert linear_minimum([[0.0], [0.0]], [1, -1], [0.5, 0.5], loss).value == 1.0


@both
def test_it_is_below_the_mean_classifier_and_the_contrastive_risk(loss):
    for model in MODELS:
        best = supervised_risk(model, loss)
        bound = (unsupervised_risk(model, loss) - model.tau) / (1 - model.tau)
        assert best.value <= min(1.0, mean_classifier_risk(model, loss)) + 1e-10
        assert mean_classifier_risk(model, loss) <= bound + 1e-10
        assert best.value <= noncollision_risk(model, loss) + 1e-10
        assert best.value == pytest.approx((model.task_law * best.tasks).sum(), abs=1e-14)
        assert best.attained == best.tasks_attained.all()


@both
def test_it_does_not_see_scale_or_basis(loss):
    rng = np.random.default_rng(5)
    for model in MODELS[:15]:
        width = model.features.shape[1]
        mixed = model.features @ (np.eye(width) + 0.3 * rng.normal(size=(width, width)))
        other = supervised_risk(FiniteModel(model.prior, model.laws, mixed), loss)
        assert other.value == pytest.approx(supervised_risk(model, loss).value, abs=1e-9)


@both
def test_some_task_is_separable_where_classes_are_points(loss):
    apart = FiniteModel([0.3, 0.7], np.eye(2), [[1.0], [-2.0]])
    assert supervised_risk(apart, loss).value == 0.0
    assert supervised_risk(apart, loss).attained == (loss == "hinge")
    noisy = FiniteModel(
        [0.5, 0.5],
        [[0.5, 0.5, 0, 0], [0, 0, 0.5, 0.5]],
        [[2.0, 1.0], [-2.0, 1.0], [2.0, -1.0], [-2.0, -1.0]],
    )
    assert supervised_risk(noisy, loss).value == pytest.approx(0, abs=1e-12)


@both
def test_what_a_ball_cannot_undercut(loss):
    rng = np.random.default_rng(6)
    for points, signs, masses in CLOUDS:
        best = linear_minimum(points, signs, masses, loss)
        norm = np.linalg.norm(best.weights)
        inside = linear_risk(points, signs, masses, best.weights, loss)
        for w in (np.zeros(points.shape[1]), rng.normal(size=points.shape[1]), best.weights):
            assert ball_lower_bound(points, signs, masses, w, norm, loss) <= inside + 1e-10
        if loss == "logistic" and best.attained:  # no gradient is left: nothing is lost
            tight = ball_lower_bound(points, signs, masses, best.weights, norm, loss)
            assert tight == pytest.approx(best.value, abs=1e-8)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"signs": [1, 0]}, "signs must be 1 or -1, got 0.0"),
        ({"signs": [1]}, "must be as many, got 2, 1 and 2"),
        ({"masses": [0.5, -0.5]}, "masses must not be negative"),
        ({"masses": [0, 0]}, "nor all zero"),
        ({"loss": "squared"}, "loss must be one of hinge, logistic, got 'squared'"),
        ({"points": [[1.0], [np.inf]]}, r"points\[1, 0\] is not finite"),
    ],
)
def test_errors(change, message):
    parts = {"points": [[1.0], [2.0]], "signs": [1, -1], "masses": [0.5, 0.5]} | change
    with pytest.raises(ValueError, match=message):
        linear_minimum(**parts)

"""Exact risks: identities, the chain of the theory, collisions, blocks, and what is not true."""

import math
from itertools import product

import numpy as np
import pytest

from relatum.latent_class import (
    FiniteModel,
    collision_risk,
    directional_spread,
    margin_risk,
    mean_classifier_risk,
    noncollision_risk,
    pair_losses,
    pairwise_error,
    score_variances,
    spread,
    unsupervised_risk,
)
from relatum.surrogates import SURROGATES

from .finite_world import LIPSCHITZ, LOSS, LOSSES, random_models, violations

MODELS = random_models(300)
SMALL = random_models(25, seed=1, classes=3, points=5)
both = pytest.mark.parametrize("loss", LOSSES)


def exact(value):
    return pytest.approx(value, rel=1e-12, abs=1e-12)


def gap_terms(model):
    """E √v and E v of the score's variance v over both classes of a task."""
    a = score_variances(model)
    v = a[:, None] + a[None]  # [c, e, x]
    weights = model.task_law[:, :, None] * model.laws[:, None]
    return (weights * np.sqrt(v)).sum(), (weights * v).sum()


# Identities


@both
def test_pair_losses_are_the_sums_of_their_definition(loss):
    for model in SMALL:
        k, n = model.laws.shape
        f, p = model.features, model.laws
        table = np.zeros((k, k))
        for c, e, i, j, m in product(range(k), range(k), range(n), range(n), range(n)):
            table[c, e] += p[c, i] * p[c, j] * p[e, m] * LOSS[loss](f[i] @ f[m] - f[i] @ f[j])
        np.testing.assert_allclose(pair_losses(model, loss), table, rtol=1e-12)


@both
def test_the_risk_mixes_its_two_parts(loss):
    for model in MODELS:
        parts = model.tau * collision_risk(model, loss)
        parts += (1 - model.tau) * noncollision_risk(model, loss)
        assert unsupervised_risk(model, loss) == exact(parts)


@both
def test_one_sided_and_two_sided_tasks_agree(loss):
    for model in SMALL:
        total = 0.0
        for c, e in product(range(len(model.prior)), repeat=2):
            w = model.means[c] - model.means[e]
            for x, f in enumerate(model.features):
                plus, minus = LOSS[loss](-w @ f), LOSS[loss](w @ f)
                two_sided = (model.laws[c, x] * plus + model.laws[e, x] * minus) / 2
                total += model.task_law[c, e] * two_sided
        assert mean_classifier_risk(model, loss) == exact(total)


@both
def test_without_collision_it_is_a_one_shot_classifier(loss):
    """One example a of c and b of e; w = f(a) − f(b); the risk on both classes."""
    for model in SMALL:
        total, n = 0.0, len(model.features)
        for c, e in product(range(len(model.prior)), repeat=2):
            for a, b, x in product(range(n), repeat=3):
                w = model.features[a] - model.features[b]
                shots = model.laws[c, a] * model.laws[e, b]
                plus = model.laws[c, x] * LOSS[loss](-w @ model.features[x])
                minus = model.laws[e, x] * LOSS[loss](w @ model.features[x])
                total += model.task_law[c, e] * shots * (plus + minus) / 2
        assert noncollision_risk(model, loss) == exact(total)


@both
def test_a_collision_costs_the_even_part_of_the_loss(loss):
    excess = {
        "hinge": lambda q: max(abs(q) - 1, 0) / 2,
        "logistic": lambda q: math.log2(math.cosh(q / 2)),
    }
    for model in SMALL:
        total, n = 1.0, len(model.features)
        for c, (i, j, m) in product(range(len(model.nu)), product(range(n), repeat=3)):
            mass = model.nu[c] * model.laws[c, i] * model.laws[c, j] * model.laws[c, m]
            total += mass * excess[loss](model.gram[i, m] - model.gram[i, j])
        assert collision_risk(model, loss) == exact(total)


def test_score_variances_and_spreads():
    for model in MODELS[:50]:
        quadratic = np.einsum("xi,cij,xj->cx", model.features, model.covariances, model.features)
        np.testing.assert_allclose(score_variances(model), quadratic, atol=1e-10)
        by_class = [
            math.sqrt(max(np.linalg.eigvalsh(sigma)[-1], 0))
            * (law @ np.linalg.norm(model.features, axis=1))
            for sigma, law in zip(model.covariances, model.laws, strict=True)
        ]
        assert spread(model) == pytest.approx(model.nu @ by_class, abs=1e-7)


def test_margins_and_errors():
    for model in MODELS[:100]:
        assert margin_risk(model, 1.0) == exact(mean_classifier_risk(model))
        scaled = FiniteModel(model.prior, model.laws, model.features / math.sqrt(2.5))
        assert margin_risk(model, 2.5) == exact(mean_classifier_risk(scaled))
        for loss in LOSSES:
            assert pairwise_error(model) <= mean_classifier_risk(model, loss) + 1e-12
    with pytest.raises(ValueError, match="margin must be a positive finite number, got 0"):
        margin_risk(MODELS[0], 0)
    with pytest.raises(ValueError, match="loss must be one of hinge, logistic, got 'log'"):
        pair_losses(MODELS[0], "log")


# Inequalities


@both
def test_the_contrastive_risk_bounds_that_of_the_mean_classifier(loss):
    def from_risk(model):
        return (unsupervised_risk(model, loss) - model.tau) / (1 - model.tau)

    assert not violations(MODELS, lambda m: mean_classifier_risk(m, loss), from_risk)
    assert not violations(
        MODELS, lambda m: mean_classifier_risk(m, loss), lambda m: noncollision_risk(m, loss)
    )
    # Equality where classes are single points.
    for model in MODELS:
        if spread(model) < 1e-12:
            assert mean_classifier_risk(model, loss) == pytest.approx(from_risk(model), abs=1e-9)


@both
def test_collisions_cost_at_most_the_spread(loss):
    constant = SURROGATES[loss].collision
    assert sum(spread(m) < 1e-12 for m in MODELS) > 30  # collapsed classes are among them
    assert not violations(MODELS, directional_spread, spread)
    assert not violations(MODELS, spread, lambda m: m.radius**2)

    def bound(m):
        return 1 + constant * directional_spread(m)

    assert not violations(MODELS, lambda m: collision_risk(m, loss), bound)
    assert not violations(MODELS, lambda m: 1.0, lambda m: collision_risk(m, loss))

    def second_order(m):
        moments = np.einsum("cn,cn->c", m.laws, score_variances(m))
        return 1 + LIPSCHITZ[loss] / 4 * float(m.nu @ moments)

    assert not violations(MODELS, lambda m: collision_risk(m, loss), second_order)


@both
def test_one_shot_noise_is_bounded(loss):
    def upper(m):
        return mean_classifier_risk(m, loss) + LIPSCHITZ[loss] / 2 * gap_terms(m)[0]

    assert not violations(MODELS, lambda m: noncollision_risk(m, loss), upper)


def test_one_shot_noise_to_second_order():
    def risk(m):
        return noncollision_risk(m, "logistic")

    def upper(m, constant):
        return mean_classifier_risk(m, "logistic") + constant / math.log(2) * gap_terms(m)[1]

    assert not violations(MODELS, risk, lambda m: upper(m, 1 / 8))
    assert violations(MODELS, risk, lambda m: upper(m, 1 / 16)) > 20


@both
def test_blocks_see_less_noise(loss):
    for model in random_models(30, seed=2, classes=3, points=4):
        assert unsupervised_risk(model, loss, block=1) == unsupervised_risk(model, loss)
        risks = [unsupervised_risk(model, loss, block=b) for b in (1, 2, 3, 4)]
        assert (np.diff(risks) <= 1e-10).all()
        mean = mean_classifier_risk(model, loss)
        noise = LIPSCHITZ[loss] / 2 * gap_terms(model)[0]
        for b, risk in enumerate(risks, 1):
            assert (1 - model.tau) * mean + model.tau <= risk + 1e-10
            assert noncollision_risk(model, loss, block=b) <= mean + noise / b**0.5 + 1e-10
            price = SURROGATES[loss].collision * spread(model) / b**0.5
            assert collision_risk(model, loss, block=b) <= 1 + price + 1e-10


@both
def test_blocks_are_means_of_independent_members(loss):
    for model in random_models(5, seed=4, classes=2, points=3):
        total, n = 0.0, len(model.features)
        for c, e in product(range(len(model.prior)), repeat=2):
            for x, a, b, p, q in product(range(n), repeat=5):
                mass = model.prior[c] * model.prior[e] * model.laws[c, [x, a, b]].prod()
                t = model.gram[x, [p, q]].mean() - model.gram[x, [a, b]].mean()
                total += mass * model.laws[e, [p, q]].prod() * LOSS[loss](t)
        assert unsupervised_risk(model, loss, block=2) == exact(total)
    with pytest.raises(ValueError, match="draw some with sample_blocks instead"):
        unsupervised_risk(MODELS[0], block=60)


# Fixtures with closed forms


@both
@pytest.mark.parametrize(("classes", "radius"), [(2, 0.7), (3, 1.0), (5, 2.0)])
def test_simplex(loss, classes, radius):
    corners = np.eye(classes) - 1 / classes
    corners *= radius / np.linalg.norm(corners[0])
    model = FiniteModel(np.full(classes, 1 / classes), np.eye(classes), corners)
    v = LOSS[loss](-(radius**2) * classes / (classes - 1))
    assert unsupervised_risk(model, loss) == exact(1 / classes + (1 - 1 / classes) * v)
    assert mean_classifier_risk(model, loss) == exact(v)
    assert noncollision_risk(model, loss) == exact(v)
    assert collision_risk(model, loss) == exact(1.0)
    assert spread(model) == pytest.approx(0, abs=1e-12)


@both
def test_the_zero_encoder_knows_nothing(loss):
    for model in MODELS[:20]:
        zero = FiniteModel(model.prior, model.laws, np.zeros_like(model.features))
        for risk in (unsupervised_risk, mean_classifier_risk, collision_risk):
            assert risk(zero, loss) == exact(1.0)
        assert pairwise_error(zero) == exact(1.0)  # ties are errors


@pytest.mark.parametrize("r", [0.3, 0.7, 0.71, 1.0, 1.3, 2.0])
def test_noise_that_the_mean_classifier_does_not_see(r):
    """f = (r σ, y) with a fair sign σ: nothing to learn is left, and the zero encoder may win."""
    features = [[r, 1.0], [-r, 1.0], [r, -1.0], [-r, -1.0]]
    model = FiniteModel([0.5, 0.5], [[0.5, 0.5, 0, 0], [0, 0, 0.5, 0.5]], features)
    expected = 0.5 if r**2 <= 0.5 else 0.25 + r**2 / 2
    assert unsupervised_risk(model) == exact(expected)
    assert mean_classifier_risk(model) == exact(0.0)
    assert (unsupervised_risk(model) > 1) == (r**2 > 1.5)


def uniform_segment(radius, points=401):
    """f(x) = x on an even grid of midpoints of [−R, R], twice: two classes, one law."""
    x = radius * (2 * (np.arange(points) + 0.5) / points - 1)
    return FiniteModel([0.5, 0.5], np.full((2, points), 1 / points), x[:, None])


@both
def test_the_collision_constant_is_sharp(loss):
    model = uniform_segment(30.0)
    assert spread(model) == pytest.approx(30.0**2 / (2 * math.sqrt(3)), rel=1e-5)
    ratio = (collision_risk(model, loss) - 1) / spread(model)
    assert 0.99 * SURROGATES[loss].collision < ratio <= SURROGATES[loss].collision


# What is not true, and is found out


@both
def test_wrong_claims_are_refuted(loss):
    def from_risk(m, tau):
        return (unsupervised_risk(m, loss) - tau) / (1 - tau)

    def mean(m):
        return mean_classifier_risk(m, loss)

    # The collision term with τ one percent too large (where the risk is below 1).
    assert violations(MODELS, mean, lambda m: from_risk(m, 1.01 * m.tau)) > 20
    # No price for collisions.
    assert violations(MODELS, lambda m: collision_risk(m, loss), lambda m: 1.0) > 50
    # Pairs of class mates drawn evenly, so that classes come from ν: not the same risk.
    even = [m.nu @ pair_losses(m, loss) @ m.prior for m in MODELS]
    right = [unsupervised_risk(m, loss) for m in MODELS]
    assert (np.abs(np.subtract(even, right)) > 1e-9).sum() > 100
    # The mean classifier at the price of one example.
    assert violations(MODELS, lambda m: noncollision_risk(m, loss), mean) > 50


def test_the_constant_of_the_hinge_is_too_small_for_the_logistic_loss():
    model = uniform_segment(30.0, 101)
    assert collision_risk(model, "logistic") - 1 > SURROGATES["hinge"].collision * spread(model)


def test_the_risk_itself_bounds_the_mean_classifier_only_below_one():
    found = [(mean_classifier_risk(m), unsupervised_risk(m)) for m in random_models(1200, seed=5)]
    assert all(mean <= risk + 1e-10 for mean, risk in found if risk <= 1)
    assert any(mean > risk + 1e-9 for mean, risk in found)

"""k negatives: quadrature and sorting against enumeration, coverage, bounds; InfoNCE; spectral."""

import math
from itertools import product

import numpy as np
import pytest

from relatum.latent_class import (
    FiniteModel,
    collision_counts,
    collision_floor,
    collision_probability,
    coverage,
    distinct_classes,
    full_way_losses,
    infonce_limit,
    infonce_risk,
    mean_classifier_risk,
    mean_cross_entropy,
    mean_tuple_risk,
    noncollision_risk,
    rest_risk,
    spread,
    top1_errors,
    tuple_risk,
    tuple_spread,
    unsupervised_risk,
)

from .finite_world import LIPSCHITZ, LOSSES, MANY, random_models, violations

MODELS = random_models(40, seed=8, classes=4, points=6)
TINY = random_models(12, seed=9, classes=3, points=4)
both = pytest.mark.parametrize("loss", LOSSES)
counts = pytest.mark.parametrize("k", [1, 2, 3])
PRIORS = [[0.5, 0.5], [0.5, 0.3, 0.2], [0.1, 0.2, 0.3, 0.4], [0.05, 0.9, 0.05]]


def draws(prior, k):
    """Every list of k classes with its probability."""
    for classes in product(range(len(prior)), repeat=k):
        yield classes, math.prod(prior[c] for c in classes)


def enumerated(model, k, loss, what):
    """The sum over all anchors, positives, and k negatives with their classes."""
    total, n = 0.0, len(model.features)
    q, joint = np.outer(model.prior, np.ones(n)) * model.laws, model.laws
    kinds = [(e, m, q[e, m]) for e in range(len(q)) for m in range(n) if q[e, m] > 0]
    for c, i, j in product(range(len(q)), range(n), range(n)):
        mass = model.prior[c] * joint[c, i] * joint[c, j]
        for negatives in product(kinds, repeat=k) if mass > 0 else ():
            kept = [m for e, m, _ in negatives if what == "all" or e != c]
            v = [model.gram[i, m] - model.gram[i, j] for m in kept]
            total += mass * math.prod(p for *_, p in negatives) * MANY[loss](v)
    return total


# Sums


@both
@pytest.mark.parametrize("k", [1, 2])
def test_sorting_and_quadrature_equal_enumeration(loss, k):
    for model in TINY:
        assert tuple_risk(model, loss, k=k) == pytest.approx(
            enumerated(model, k, loss, "all"), rel=1e-12
        )
        assert rest_risk(model, loss, k=k) == pytest.approx(
            enumerated(model, k, loss, "others"), rel=1e-12, abs=1e-13
        )


@both
@pytest.mark.parametrize("k", [5, 300, 10**5])
def test_many_negatives_of_two_kinds(loss, k):
    """Negatives at 0 or 1, so that their number is binomial, for anchors at 1."""
    prior, scores = [0.5, 0.5], [[1.0], [0.0]]
    laws = [[0.9, 0.1], [0.2, 0.8]]
    model = FiniteModel(prior, laws, scores)
    p = 0.55
    m = np.arange(k + 1)
    log_pmf = (
        math.lgamma(k + 1)
        - np.array([math.lgamma(a + 1) + math.lgamma(k - a + 1) for a in m])
        + m * math.log(p)
        + (k - m) * math.log(1 - p)
    )
    pmf = np.exp(log_pmf)
    tie = 1.0 if loss == "hinge" else math.log2(1 + k)  # an anchor at 0 sees equal scores

    def of(positive):  # an anchor at 1
        if loss == "hinge":
            none = (1 - p) ** k
            return (1 - none) * (2 - positive) + none * (1 - positive)
        return pmf @ np.log2(1 + m * math.exp(1 - positive) + (k - m) * math.exp(-positive))

    similar = sum(0.5 * np.outer(law, law) for law in np.array(laws))
    expected = similar[1].sum() * tie + similar[0, 0] * of(1.0) + similar[0, 1] * of(0.0)
    # The binomial law itself is exact to about 1e-10 only, by its log-gammas.
    assert tuple_risk(model, loss, k=k) == pytest.approx(expected, rel=1e-12 if k == 5 else 1e-9)


def test_infonce_tends_to_alignment_and_uniformity():
    """The limit by loops, and how fast it is reached: k times what is left tends to a constant."""
    for model in TINY:
        points, limit, rate = range(model.laws.shape[1]), 0.0, 0.0
        data = [(model.prior * model.laws[:, i]).sum() for i in points]
        for i in points:
            terms = [math.exp(model.features[i] @ model.features[j]) for j in points]
            mean = sum(p * t for p, t in zip(data, terms, strict=True))
            variance = sum(p * (t - mean) ** 2 for p, t in zip(data, terms, strict=True))
            limit += data[i] * math.log(mean)
            rate -= data[i] * variance / (2 * mean**2)
            for j in points:
                together = (model.prior * model.laws[:, i] * model.laws[:, j]).sum()
                limit -= together * math.log(terms[j])
                rate += together * terms[j] / mean
        assert infonce_limit(model) == pytest.approx(limit, abs=1e-12)
        left = infonce_risk(model, k=3000) - math.log(3000) - limit
        assert 3000 * left == pytest.approx(rate, abs=0.01)


def test_quadrature_holds_for_large_scores():
    """Two points at ±a: every tuple's loss is known, from e^(−2a²) to e^(2a²)."""
    for a in (0.1, 2.0, 8.0, 20.0):
        model = FiniteModel([0.5, 0.5], np.eye(2), [[a], [-a]])
        for k in (1, 4, 50):
            expected = sum(
                math.comb(k, m) / 2**k * np.logaddexp(0, np.logaddexp(
                    math.log(m) if m else -math.inf,
                    (math.log(k - m) if m < k else -math.inf) - 2 * a * a,
                ))
                for m in range(k + 1)
            )  # fmt: skip
            assert infonce_risk(model, k=k) == pytest.approx(expected, rel=1e-12)


@both
def test_one_negative_is_the_plain_risk(loss):
    for model in MODELS:
        assert tuple_risk(model, loss, k=1) == pytest.approx(
            unsupervised_risk(model, loss), rel=1e-12
        )
        rest = (1 - model.tau) * noncollision_risk(model, loss)
        assert rest_risk(model, loss, k=1) == pytest.approx(rest, rel=1e-12)
        assert mean_tuple_risk(model, loss, k=1) == pytest.approx(
            mean_classifier_risk(model, loss), rel=1e-12
        )
        third = model.tau * spread(model) / math.sqrt(3)
        assert tuple_spread(model, k=1) == pytest.approx(third, rel=1e-12, abs=1e-15)


@both
@counts
@pytest.mark.parametrize("collisions", [False, True])
def test_mean_classifier_of_a_tuple_equals_enumeration(loss, k, collisions):
    for model in MODELS[:10]:
        total = mass = 0.0
        scores = model.features @ model.means.T
        for c, rho in enumerate(model.prior):
            for classes, probability in draws(model.prior, k):
                if c in classes and not collisions:
                    continue
                mass += rho * probability
                chosen = sorted(set(classes) - {c})
                for x, p in enumerate(model.laws[c]):
                    v = [scores[x, e] - scores[x, c] for e in chosen]
                    total += rho * probability * p * MANY[loss](v)
        found = mean_tuple_risk(model, loss, k=k, collisions=collisions)
        assert found == pytest.approx(total / mass, rel=1e-11)


@counts
@pytest.mark.parametrize("prior", PRIORS)
def test_collisions_and_coverage_equal_enumeration(prior, k):
    number = len(prior)
    law, distinct = np.zeros(k + 1), np.zeros(number + 1)
    covered, free = np.zeros((number, number)), np.zeros(number)
    for classes, probability in draws(prior, k):
        distinct[len(set(classes))] += probability
        for c, rho in enumerate(prior):
            law[classes.count(c)] += rho * probability
            if c not in classes:
                free[c] += probability
                for e in set(classes):
                    covered[c, e] += probability
    np.testing.assert_allclose(collision_counts(prior, k), law, atol=1e-14)
    np.testing.assert_allclose(distinct_classes(prior, k), distinct, atol=1e-14)
    assert collision_probability(prior, k) == pytest.approx(1 - law[0], abs=1e-14)
    assert collision_floor(prior, k) == pytest.approx(1 - law[0], abs=1e-14)
    floor = sum(p * math.log2(1 + m) for m, p in enumerate(law))
    assert collision_floor(prior, k, "logistic") == pytest.approx(floor, abs=1e-14)
    others = covered / free[:, None] + 2 * np.eye(number)
    assert coverage(prior, k) == pytest.approx(others.min(), abs=1e-13)


def test_distinct_classes_of_many_draws():
    prior = np.random.default_rng(0).dirichlet(np.ones(30))
    for n in (1, 10, 400):
        law = distinct_classes(prior, n)
        assert law.min() >= 0 and law.sum() == pytest.approx(1, abs=1e-12)
        mean = (1 - (1 - prior) ** n).sum()
        assert law @ np.arange(31) == pytest.approx(mean, rel=1e-12)


# Bounds


@both
@counts
def test_k_negatives_bound_the_mean_classifier(loss, k):
    def excess(m):
        return tuple_risk(m, loss, k=k) - collision_floor(m.prior, k, loss)

    def mean(m):
        return (1 - collision_probability(m.prior, k)) * mean_tuple_risk(m, loss, k=k)

    assert not violations(MODELS, mean, excess)
    doubled = violations(MODELS, mean, lambda m: excess(m) - collision_floor(m.prior, k, loss))
    assert doubled > 20
    assert not violations(
        MODELS,
        lambda m: tuple_risk(m, loss, k=k),
        lambda m: (
            rest_risk(m, loss, k=k)
            + collision_floor(m.prior, k, loss)
            + LIPSCHITZ[loss] * tuple_spread(m, k=k)
        ),
    )


@both
def test_tuples_with_collisions_cost_half_of_either_part(loss):
    """The form with all drawn classes, collisions included."""
    for k in (1, 2, 3):
        assert not violations(
            MODELS,
            lambda m, k=k: (
                (mean_tuple_risk(m, loss, k=k, collisions=True) + collision_floor(m.prior, k, loss))
                / 2
            ),
            lambda m, k=k: tuple_risk(m, loss, k=k),
        )


@both
def test_all_classes_at_once_need_coverage(loss):
    def weighted(m, k):
        return m.prior * (1 - m.prior) ** k @ full_way_losses(m, loss)

    def excess(m, k):
        return tuple_risk(m, loss, k=k) - collision_floor(m.prior, k, loss)

    for k in (1, 2, 5):
        assert not violations(
            MODELS,
            lambda m, k=k: weighted(m, k),
            lambda m, k=k: excess(m, k) / coverage(m.prior, k),
        )
    # Without the coverage the claim is wrong, first for one negative of many classes.
    many = random_models(150, seed=10, classes=6, points=8)
    assert violations(many, lambda m: weighted(m, 1), lambda m: excess(m, 1)) > 10
    for model in MODELS:
        assert (top1_errors(model) <= full_way_losses(model, loss) + 1e-12).all()


def test_two_classes_are_one_task():
    for model in random_models(20, seed=12, classes=2):
        for loss in LOSSES:
            both_sides = full_way_losses(model, loss).mean()
            assert mean_classifier_risk(model, loss) == pytest.approx(both_sides, rel=1e-12)


def jensen_gap(width):
    """The largest gap ln E e^a − E a for a in an interval of this length."""
    if width < 1e-6:
        return width**2 / 8
    slope = math.expm1(width) / width
    return math.log(slope) - 1 + 1 / slope


def test_infonce_bounds_the_cross_entropy_of_the_mean_classifier():
    def above(m, k, gap=1.0):
        scores = m.features @ m.means.T
        gaps = np.array([jensen_gap(row.max() - row.min()) for row in scores])
        centre = m.prior @ m.means
        between = m.prior @ (m.means**2).sum(axis=1) - centre @ centre
        lower = math.log(k + math.exp(between))
        noise = gap * float(m.negative_law @ gaps)
        return infonce_risk(m, k=k) - math.log(m.prior.min()) + noise - lower

    for k in (1, 4, 16):
        assert not violations(MODELS, mean_cross_entropy, lambda m, k=k: above(m, k))
    assert sum(
        violations(MODELS, mean_cross_entropy, lambda m, k=k: above(m, k, 0)) for k in (1, 16)
    )
    for number in (2, 5):  # equality at the zero encoder, uniform prior
        zero = FiniteModel(np.full(number, 1 / number), np.eye(number), np.zeros((number, 1)))
        assert mean_cross_entropy(zero) == pytest.approx(math.log(number), abs=1e-12)
        assert above(zero, 3) == pytest.approx(math.log(number), abs=1e-12)


@pytest.mark.parametrize("k", [1, 7, 100])
def test_the_zero_encoder(k):
    for model in MODELS[:5]:
        zero = FiniteModel(model.prior, model.laws, np.zeros_like(model.features))
        assert tuple_risk(zero, "hinge", k=k) == pytest.approx(1, abs=1e-12)
        assert tuple_risk(zero, "logistic", k=k) == pytest.approx(math.log2(1 + k), abs=1e-12)


def test_errors():
    with pytest.raises(ValueError, match="k must be at least 1, got 0"):
        tuple_risk(MODELS[0], k=0)
    many = FiniteModel(np.full(15, 1 / 15), np.eye(15), np.eye(15))
    with pytest.raises(ValueError, match="subsets are listed for at most 14 classes, got 15"):
        mean_tuple_risk(many, k=2)

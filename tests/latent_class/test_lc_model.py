"""The laws of a model against loops, the laws of its draws against frequencies."""

import numpy as np
import pytest

from relatum.latent_class import FiniteModel, SampledModel

from .finite_world import random_models

SKEWED = FiniteModel(
    [0.5, 0.3, 0.2], [[0.7, 0.3, 0, 0], [0, 0.5, 0.5, 0], [0.1, 0, 0.2, 0.7]], np.eye(4)
)
DRAWS = 40_000
CLOSE = 5 * 0.5 / DRAWS**0.5  # five standard errors of a frequency, at most


def frequencies(*columns, sizes):
    table = np.zeros(sizes)
    np.add.at(table, columns, 1 / len(columns[0]))
    return table


def points(rows):
    return rows.argmax(axis=-1)  # the encoder is the identity


def test_collisions_have_their_own_law_of_classes():
    assert SKEWED.tau == pytest.approx(0.38, abs=1e-15)
    np.testing.assert_allclose(SKEWED.nu, np.array([0.25, 0.09, 0.04]) / 0.38, rtol=1e-14)
    np.testing.assert_allclose(SKEWED.nu, [0.658, 0.237, 0.105], atol=5e-4)


@pytest.mark.parametrize("model", random_models(20))
def test_laws_and_moments(model):
    k, n = model.laws.shape
    similar, negative, task = np.zeros((n, n)), np.zeros(n), np.zeros((k, k))
    for c in range(k):
        for i in range(n):
            negative[i] += model.prior[c] * model.laws[c, i]
            for j in range(n):
                similar[i, j] += model.prior[c] * model.laws[c, i] * model.laws[c, j]
        for e in range(k):
            task[c, e] = model.prior[c] * model.prior[e] / (1 - model.tau) if c != e else 0
        mean = sum(model.laws[c, i] * model.features[i] for i in range(n))
        second = sum(
            model.laws[c, i] * np.outer(model.features[i], model.features[i]) for i in range(n)
        )
        np.testing.assert_allclose(model.means[c], mean, atol=1e-13)
        np.testing.assert_allclose(model.covariances[c], second - np.outer(mean, mean), atol=1e-12)
    np.testing.assert_allclose(model.similar_law, similar, atol=1e-14)
    np.testing.assert_allclose(model.negative_law, negative, atol=1e-14)
    np.testing.assert_allclose(model.task_law, task, atol=1e-14)
    np.testing.assert_allclose(model.similar_law.sum(axis=0), negative, atol=1e-14)


def test_similar_pairs_have_the_law_of_the_theory():
    pairs = SKEWED.sample_pairs(DRAWS, np.random.default_rng(0))
    found = frequencies(points(pairs.anchors), points(pairs.positives), sizes=(4, 4))
    np.testing.assert_allclose(found, SKEWED.similar_law, atol=CLOSE)
    np.testing.assert_allclose(frequencies(pairs.classes, sizes=3), SKEWED.prior, atol=CLOSE)
    # Pairs drawn evenly among all pairs of class mates have another law, which this test can tell.
    even = (SKEWED.laws.T * SKEWED.nu) @ SKEWED.laws
    assert np.abs(found - even).max() > 4 * CLOSE


def test_negatives_are_independent_of_all_else():
    draws = SKEWED.sample_tuples(DRAWS, 3, np.random.default_rng(1))
    assert draws.negatives.shape == (DRAWS, 3, 4) and draws.negative_classes.shape == (DRAWS, 3)
    independent = np.multiply.outer(SKEWED.negative_law, SKEWED.negative_law)
    for one, other in [
        (draws.anchors, draws.negatives[:, 0]),
        (draws.positives, draws.negatives[:, 2]),
        (draws.negatives[:, 0], draws.negatives[:, 1]),
    ]:
        found = frequencies(points(one), points(other), sizes=(4, 4))
        np.testing.assert_allclose(found, independent, atol=CLOSE)
    collided = (draws.negative_classes == draws.classes[:, None]).mean(axis=0)
    np.testing.assert_allclose(collided, SKEWED.tau, atol=CLOSE)


def test_a_block_is_of_one_class():
    draws = SKEWED.sample_blocks(DRAWS, 2, np.random.default_rng(2))
    similar = SKEWED.similar_law
    for block in (draws.positives, draws.negatives):
        found = frequencies(points(block[:, 0]), points(block[:, 1]), sizes=(4, 4))
        np.testing.assert_allclose(found, similar, atol=CLOSE)
    found = frequencies(points(draws.anchors), points(draws.positives[:, 1]), sizes=(4, 4))
    np.testing.assert_allclose(found, similar, atol=CLOSE)
    found = frequencies(points(draws.anchors), points(draws.negatives[:, 1]), sizes=(4, 4))
    np.testing.assert_allclose(
        found, np.outer(SKEWED.negative_law, SKEWED.negative_law), atol=CLOSE
    )


def test_sampled_classes_keep_their_rows():
    """Class c has its points at c exactly, so that a shuffled row would show."""
    model = SampledModel(
        [0.2, 0.3, 0.5],
        [lambda generator, n, c=c: np.full((n, 1), c) for c in range(3)],
        lambda x: np.hstack([x, x + 1.0]),
    )
    rng = np.random.default_rng(3)
    rows, classes = model.sample_labelled(500, rng)
    np.testing.assert_array_equal(rows, np.stack([classes, classes + 1.0], axis=1))
    triplets = model.sample_triplets(500, rng)
    np.testing.assert_array_equal(triplets.positives[:, 0], triplets.classes)
    np.testing.assert_array_equal(triplets.negatives[:, 0], triplets.negative_classes)
    blocks = model.sample_blocks(50, 3, rng)
    np.testing.assert_array_equal(
        blocks.negatives[:, :, 0], np.repeat(blocks.negative_classes[:, None], 3, 1)
    )
    assert model.tau == pytest.approx(0.38)


def test_atomless_classes_never_collide():
    model = SampledModel(
        lambda generator, n: generator.normal(size=(n, 2)),
        lambda generator, centres: centres + 1e-3 * generator.normal(size=centres.shape),
        lambda x: x,
        atomless=True,
    )
    assert model.tau == 0.0
    draws = model.sample_tuples(200, 3, np.random.default_rng(4))
    assert np.abs(draws.anchors - draws.positives).max() < 0.01
    assert np.abs(draws.anchors[:, None] - draws.negatives).max(axis=2).min() > 1e-4
    assert np.abs(draws.negatives - draws.negative_classes).max() < 0.01


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"prior": [1.0], "laws": [[1, 0]]}, "prior must have at least two classes"),
        ({"prior": [0.5, 0.4]}, r"prior must sum to 1, got 0.9"),
        ({"prior": [1.0, 0.0]}, "class 1 has 0"),
        ({"prior": [1.5, -0.5]}, "prior must not be negative, got -0.5"),
        ({"laws": [[0.5, 0.5], [0.5, 0.6]]}, r"laws row 1 must sum to 1, got 1.1"),
        ({"laws": np.eye(3)}, r"\(2, 2\), got \(3, 3\)"),
        ({"features": [[1.0], [np.nan]]}, r"features\[1, 0\] is not finite"),
        ({"features": [1.0, 2.0]}, r"features must be a matrix and not empty, got shape \(2,\)"),
        ({"radius": 0.5}, "radius must be finite and at least the largest norm, 2.0, got 0.5"),
        ({"radius": np.inf}, "radius must be finite"),
    ],
)
def test_errors(change, message):
    parts = {"prior": [0.5, 0.5], "laws": np.eye(2), "features": [[1.0], [2.0]]} | change
    with pytest.raises(ValueError, match=message):
        FiniteModel(**parts)


def test_errors_of_sampled_models():
    with pytest.raises(ValueError, match="samplers must be a list of one for each of 2 classes"):
        SampledModel([0.5, 0.5], [lambda generator, n: np.zeros(n)], lambda x: x)
    with pytest.raises(ValueError, match="an atomless model needs"):
        SampledModel([0.5, 0.5], [], lambda x: x, atomless=True)
    model = SampledModel([0.5, 0.5], [lambda generator, n: np.zeros((n, 1))] * 2, lambda x: x[:1])
    with pytest.raises(ValueError, match="encoder must give 4 rows, got 1"):
        model.sample_labelled(4, np.random.default_rng(0))
    with pytest.raises(ValueError, match="k must be at least 1, got 0"):
        SKEWED.sample_tuples(3, 0, np.random.default_rng(0))


def test_a_bound_on_the_radius_may_be_stated():
    assert FiniteModel([0.5, 0.5], np.eye(2), [[3.0], [-4.0]]).radius == 4.0
    assert FiniteModel([0.5, 0.5], np.eye(2), [[3.0], [-4.0]], radius=5).radius == 5.0

"""The class-means probe against its two defining formulas."""

import numpy as np
import pytest
import torch
from sklearn.neighbors import NearestCentroid

from relatum.probes import class_mean_scores, class_means, class_means_probe


def data(offset=0.0):
    rng = np.random.default_rng(0)
    y = rng.integers(0, 6, size=300)
    return rng.normal(size=(6, 5))[y] + rng.normal(size=(300, 5)) + offset, y


def test_euclidean_equals_scikit_learn():
    x, y = data()
    reference = NearestCentroid().fit(x[:200], y[:200])
    result = class_means_probe(x[:200], y[:200], x[200:], y[200:])
    assert result.predictions == tuple(reference.predict(x[200:]))
    assert 0.2 < result.accuracy < 1


def test_euclidean_does_not_lose_digits_to_an_offset():
    x, y = data()
    moved, _ = data(offset=2.0**30)  # a float64 keeps 22 bits after the point
    plain = class_means_probe(x[:200], y[:200], x[200:], y[200:])
    assert class_means_probe(moved[:200], y[:200], moved[200:], y[200:]) == plain


def test_inner_product_is_the_best_pairwise_mean_classifier():
    x, y = data()
    result = class_means_probe(x[:200], y[:200], x[200:], y[200:], rule="inner-product")
    means = [x[:200][y[:200] == c].mean(axis=0) for c in range(6)]
    for row, predicted in zip(x[200:], result.predictions, strict=True):
        assert all(row @ (means[predicted] - other) >= -1e-12 for other in means)
    assert result.predictions != class_means_probe(x[:200], y[:200], x[200:], y[200:]).predictions


def test_rules_agree_where_means_are_equally_long():
    x = np.array([[2.0, 0.0], [0.0, 2.0], [-2.0, 0.0]])
    queries = np.random.default_rng(0).normal(size=(50, 2))
    euclidean, inner = (
        class_means_probe(x, [0, 1, 2], queries, [0] * 50, rule=rule)
        for rule in ("euclidean", "inner-product")
    )
    assert euclidean.predictions == inner.predictions


def test_top_five_counts_the_five_nearest_means():
    x = np.arange(10.0)[:, None]
    hits = [class_means_probe(x, list(range(10)), x[:1], [c]).top5 for c in range(10)]
    assert hits == [1] * 5 + [0] * 5


@pytest.mark.parametrize("rule", ["euclidean", "inner-product"])
def test_an_empty_class_loses_against_any_score(rule):
    means, counts = class_means(np.array([[-5e9]]), np.array([0]), 2)
    scores = class_mean_scores(np.array([[5e9]]), means, counts, rule=rule)
    assert scores[0, 0] < -1e9 or rule == "euclidean"
    assert scores[0, 1] == -np.inf
    assert scores[0].argmax() == 0
    assert torch.softmax(torch.tensor(scores), dim=1).tolist() == [[1.0, 0.0]]
    empty = class_mean_scores(np.ones((1, 1)), np.zeros((2, 1)), np.zeros(2, int), rule=rule)
    assert (empty == -np.inf).all()


def test_no_scatter_within_classes():
    x = np.array([[0.0], [1.0], [1.0]])
    assert class_means_probe(x, [0, 1, 1], x, [0, 1, 1]).accuracy == 1.0


def test_means_are_those_of_each_class():
    x, y = data()
    means, counts = class_means(x, y, 6)
    for c in range(6):
        assert means[c] == pytest.approx(x[y == c].mean(axis=0), abs=1e-14)
        assert counts[c] == (y == c).sum()


def test_unknown_rule():
    with pytest.raises(ValueError, match="rule must be 'euclidean' or 'inner-product', got 'cos'"):
        class_means_probe(np.eye(2), [0, 1], np.eye(2), [0, 1], rule="cos")

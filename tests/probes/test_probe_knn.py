"""The nearest-neighbour probe against explicit loops, and its ties."""

import itertools
import math

import numpy as np
import pytest
from sklearn.neighbors import KNeighborsClassifier

from relatum.probes import knn_probe


def cosine(a, b):
    def dot(v, w):
        return sum(float(p) * float(q) for p, q in zip(v, w, strict=True))

    return dot(a, b) / math.sqrt(dot(a, a) * dot(b, b))


def votes_by_loop(train_x, train_y, query, k, weight):
    """Votes as the mean over every way to break ties at the k-th place."""
    similarity = [cosine(row, query) for row in train_x]
    last = sorted(similarity, reverse=True)[k - 1]
    above = [i for i, s in enumerate(similarity) if s > last + 1e-9]
    tied = [i for i, s in enumerate(similarity) if abs(s - last) <= 1e-9]
    votes = {}
    choices = list(itertools.combinations(tied, k - len(above)))
    for choice in choices:
        for i in [*above, *choice]:
            share = weight(similarity[i]) / len(choices)
            votes[train_y[i]] = votes.get(train_y[i], 0.0) + share
    return votes


@pytest.mark.parametrize("k", [1, 2, 3, 5, 8])
@pytest.mark.parametrize("weighting", ["uniform", "similarity"])
def test_equals_the_loop_over_all_ways_to_break_ties(k, weighting):
    rng = np.random.default_rng(k)
    # Few distinct directions: many exact ties.
    train_x = rng.integers(-1, 2, size=(12, 2)).astype(float) + np.array([0.0, 3.0])
    train_y = rng.integers(0, 3, size=12)
    test_x = rng.integers(-2, 3, size=(40, 2)) + 0.5
    weight = (lambda s: 1.0) if weighting == "uniform" else (lambda s: math.exp(s / 0.2))
    compared = 0
    result = knn_probe(
        train_x, train_y, test_x, [0] * 40, k=k, weighting=weighting, temperature=0.2
    )
    for query, predicted in zip(test_x, result.predictions, strict=True):
        votes = votes_by_loop(train_x, train_y, query, k, weight)
        best = max(votes.values())
        winners = [label for label, vote in votes.items() if vote > best * (1 - 1e-6)]
        assert predicted in winners
        compared += len(winners) == 1
    assert compared >= 5


def test_equals_scikit_learn_where_nothing_ties():
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(6, 10))
    y = rng.integers(0, 6, size=500)
    x = centres[y] + rng.normal(size=(500, 10))
    unit = x / np.linalg.norm(x, axis=1, keepdims=True)

    def weights(distance):  # |a - b|^2 = 2 - 2 cos
        return np.exp((1 - distance**2 / 2) / 0.07)

    reference = KNeighborsClassifier(20, weights=weights).fit(unit[:400], y[:400])
    result = knn_probe(x[:400], y[:400], x[400:], y[400:])
    assert result.predictions == tuple(reference.predict(unit[400:]))
    assert 0.3 < result.accuracy < 1.0
    probabilities = reference.predict_proba(unit[400:])
    order = np.argsort(-probabilities, axis=1, kind="stable")[:, :5]
    possible = np.take_along_axis(probabilities, order, 1) > 0
    hits = ((order == y[400:, None]) & possible).any(axis=1)
    assert result.top5 == pytest.approx(hits.mean(), abs=1e-12)
    chunked = knn_probe(x[:400], y[:400], x[400:], y[400:], chunk_size=7)
    assert chunked == result


@pytest.mark.parametrize("weighting", ["uniform", "similarity"])
@pytest.mark.parametrize("k", [1, 2])
def test_ties_do_not_depend_on_the_order_of_rows_or_columns(k, weighting):
    for order in ([0, 1], [1, 0]):
        for columns in ([0, 1], [1, 0]):
            train = np.eye(2)[order][:, columns]
            labels = np.array([0, 1])[order]
            result = knn_probe(train, labels, np.ones((1, 2)), [0], k=k)
            assert result.predictions == (0,)  # equal votes and similarities: the first label


def test_permutations_of_a_bank_with_many_ties_change_nothing():
    rng = np.random.default_rng(1)
    x = rng.integers(-2, 3, size=(60, 7)).astype(float) + 0.1
    y = rng.integers(0, 4, size=60)
    queries = rng.integers(-2, 3, size=(40, 7)).astype(float) + 0.1
    plain = knn_probe(x, y, queries, rng.integers(0, 4, size=40), k=7, weighting="uniform")
    for _ in range(5):
        rows, columns = rng.permutation(60), rng.permutation(7)
        other = knn_probe(
            x[rows][:, columns],
            y[rows],
            queries[:, columns],
            [0] * 40,
            k=7,
            weighting="uniform",
        )
        assert other.predictions == plain.predictions


def test_equal_votes_go_to_the_more_similar_class():
    train = np.array([[1.0, 0.5], [0.0, 1.0]])
    labels = ["z", "a"]
    query = np.array([[1.0, 0.2]])
    result = knn_probe(train, labels, query, ["z"], k=2, weighting="uniform")
    assert result.predictions == ("z",)


def test_a_class_without_votes_is_no_hit_among_the_top_five():
    angles = np.arange(10) * 2 * math.pi / 10
    train = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    result = knn_probe(train, list(range(10)), train[:1], [3], k=1)
    assert result.predictions == (0,)
    assert (result.accuracy, result.top5) == (0.0, 0.0)
    # Five neighbours are classes 0, 1, 9, 2, 8: class 2 is now among them, class 3 is not.
    five = [knn_probe(train, list(range(10)), train[:1], [c], k=5).top5 for c in range(10)]
    assert five == [1, 1, 1, 0, 0, 0, 0, 0, 1, 1]


def test_faint_votes_are_still_ranked():
    # All neighbours are nearly opposite to the query, so that every e^(s/T) is below 1e-42. Summed
    # similarities, which only break ties, would favour the single neighbour of class 0.
    cosines = np.array([-1.0, -0.99, -0.98])
    train = np.stack([cosines, np.sqrt(1 - cosines**2)], axis=1)
    result = knn_probe(train, [0, 1, 1], np.array([[1.0, 0.0]]), [1], k=3, temperature=0.01)
    assert result.accuracy == 1.0


def test_rounding_does_not_break_ties_between_classes():
    # Every permutation of one row is equally similar to a query of ones, up to rounding.
    rng = np.random.default_rng(0)
    row = rng.normal(size=7) + 1
    for _ in range(20):
        train = np.stack([rng.permutation(row) for _ in range(10)])
        labels = rng.permutation([0] * 5 + [1] * 5)
        assert knn_probe(train, labels, np.ones((1, 7)), [0], k=10).predictions == (0,)


def test_scale_of_single_rows_changes_nothing():
    rng = np.random.default_rng(2)
    x, y = rng.normal(size=(50, 4)), rng.integers(0, 3, size=50)
    scale = 10.0 ** rng.uniform(-200, 200, size=(50, 1))
    plain = knn_probe(x[:30], y[:30], x[30:], y[30:], k=5)
    assert knn_probe((x * scale)[:30], y[:30], (x * scale)[30:], y[30:], k=5) == plain


def test_zero_rows_are_similar_to_nothing_and_counted():
    train = np.array([[0.0, 0.0], [1.0, 0.0], [-1.0, 0.1]])
    result = knn_probe(train, [0, 1, 2], np.array([[0.0, -1.0]]), [0], k=2)
    # Similarities 0, 0 and -0.0995.
    assert result.predictions == (0,)
    assert result.warnings[0] == (
        "1 training rows are all zeros and have similarity 0 to everything"
    )


def test_the_number_of_classes_comes_from_the_training_labels():
    x = np.array([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0]])
    result = knn_probe(x, [0, 1, 2], x[:1], [0], k=3)
    assert result.n_classes == 3
    assert result.predictions == (0,)


@pytest.mark.parametrize("k", [0, -1, 4])
def test_k_out_of_range(k):
    x = np.eye(3)
    with pytest.raises(ValueError, match=f"k must be from 1 to the 3 labelled .* got {k}"):
        knn_probe(x, [0, 1, 2], x, [0, 1, 2], k=k)


def test_bad_settings():
    x, y = np.eye(3), [0, 1, 2]
    with pytest.raises(ValueError, match="temperature must be positive and finite, got 0"):
        knn_probe(x, y, x, y, k=1, temperature=0)
    with pytest.raises(ValueError, match=r"weighting must be .* got 'distance'"):
        knn_probe(x, y, x, y, k=1, weighting="distance")
    with pytest.raises(ValueError, match="chunk_size must be at least 1, got 0"):
        knn_probe(x, y, x, y, k=1, chunk_size=0)

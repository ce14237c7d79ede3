"""Labels and rows: what a probe accepts, what it leaves out and what it refuses."""

import numpy as np
import pandas as pd
import pytest
import torch

from relatum.probes import class_means_probe, few_labels, knn_probe, linear_probe

PROBES = {
    "linear": lambda *rows, **more: linear_probe(*rows, regularisation=0.1, **more),
    "knn": lambda *rows, **more: knn_probe(*rows, k=1, **more),
    "class-means": class_means_probe,
}
X = np.array([[-2.0, 0.1], [2.0, 0.3], [-1.0, 0.2], [1.5, -0.1], [-1.2, 0.0]])
Y = [0, 1, 0, 1, 0]


@pytest.fixture(params=PROBES)
def probe(request):
    return PROBES[request.param]


@pytest.mark.parametrize(
    "labels",
    [
        np.array(Y, np.uint8),
        np.array(Y, np.int16),
        np.array(Y, bool),
        np.array(Y, np.float32),
        torch.tensor(Y, dtype=torch.int32),
        torch.tensor(Y, dtype=torch.bool),
        pd.Categorical(Y),
        pd.Series(Y),
        Y,
        tuple(bool(label) for label in Y),
    ],
    ids=lambda labels: f"{type(labels).__name__}-{getattr(labels, 'dtype', '')}",
)
def test_integer_like_labels_are_classes(probe, labels):
    result, plain = probe(X, labels, X, labels), probe(X, Y, X, Y)
    assert result == plain
    assert result.accuracy == 1.0
    assert result.classes == (0, 1)


def test_strings_and_gaps_come_back_as_given(probe):
    names = ["b", "a", "b", "a", "b"]
    result = probe(X, names, X, names)
    assert result.classes == ("a", "b")
    assert result.predictions == tuple(names)
    gaps = [2, 5, 2, 5, 2]
    result = probe(X, gaps, X, gaps)
    assert result.classes == (2, 5)
    assert result.predictions == tuple(gaps)
    assert result.class_accuracy == {2: 1.0, 5: 1.0}


def test_unseen_test_labels_are_wrong_and_listed(probe):
    result = probe(X, Y, X, [0, 7, 0, 9, 0])
    assert result.accuracy == 3 / 5
    assert result.n_classes == 2
    (note,) = [text for text in result.warnings if "no training row" in text]
    assert note.startswith("2 test rows")
    assert note.endswith("7, 9")
    # Below, between and above the known labels, and none of them taken for a neighbour's.
    result = probe(X, [2, 5, 2, 5, 2], X, [1, 3, 2, 6, 2])
    assert result.accuracy == 2 / 5


def test_minus_one_is_left_out_and_counted(probe):
    far = np.array([[1e6, -1e6]])
    train_x, train_y = np.concatenate([far, X]), [-1, *Y]
    result = probe(train_x, train_y, train_x, train_y)
    plain = probe(X, Y, X, Y)
    assert result.predictions == plain.predictions
    assert result.settings == plain.settings
    assert (result.n_train, result.n_test) == (5, 5)
    assert "1 train rows are unlabelled (-1) and were left out" in result.warnings
    assert "1 test rows are unlabelled (-1) and were left out" in result.warnings


def test_refused_labels_name_the_row(probe):
    with pytest.raises(ValueError, match=r"train_y row 1 is 0\.5"):
        probe(X, [0.0, 0.5, 1.0, 1.0, 0.0], X, Y)
    with pytest.raises(ValueError, match="test_y row 4 is nan"):
        probe(X, Y, X, [0.0, 1.0, 0.0, 1.0, float("nan")])
    with pytest.raises(TypeError, match="train_y row 2 is 3 and row 0 is 'a'"):
        probe(X, ["a", "b", 3, "a", "b"], X, Y)
    with pytest.raises(TypeError, match="test_y row 1 is None and row 0 is 0"):
        probe(X, Y, X, [0, None, 0, 1, 0])
    with pytest.raises(TypeError, match="train_y is <U1 but test_y is int64"):
        probe(X, ["a", "b", "a", "b", "a"], X, Y)
    with pytest.raises(ValueError, match=r"train_y must hold one label a row, got .*\(5, 2\)"):
        probe(X, np.zeros((5, 2), int), X, Y)
    with pytest.raises(ValueError, match=r"needs two classes.*the classes \[1\]"):
        probe(X, [-1, 1, -1, 1, -1], X, Y)
    with pytest.raises(ValueError, match="test_y 0 labelled rows"):
        probe(X, Y, X, [-1] * 5)


def test_refused_features_name_row_column_and_shapes(probe):
    for value in (np.nan, np.inf, -np.inf):
        bad = np.vstack([X, X])
        bad[3, 1] = value
        with pytest.raises(ValueError, match=f"test_x row 3, column 1 is {value}"):
            probe(X, Y, bad, Y * 2)
        with pytest.raises(ValueError, match=f"train_x row 3, column 1 is {value}"):
            probe(torch.tensor(bad), Y * 2, X, Y)
    with pytest.raises(ValueError, match=r"train_x and train_y.*\(5, 2\) and \(4,\)"):
        probe(X, Y[:4], X, Y)
    with pytest.raises(ValueError, match=r"as many columns, got \(5, 2\) and \(5, 1\)"):
        probe(X, Y, X[:, :1], Y)
    with pytest.raises(ValueError, match=r"train_x must be a matrix.*\(5,\)"):
        probe(X[:, 0], Y, X, Y)
    with pytest.raises(TypeError, match="train_x must hold floating point features, got int64"):
        probe(X.astype(np.int64), Y, X, Y)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_float_types_are_read_exactly(probe, dtype):
    x = torch.tensor(X).to(dtype)
    assert probe(x, Y, x, Y) == probe(x.double().numpy(), Y, x.double().numpy(), Y)


def test_top_five_is_limited_to_the_classes(probe):
    result = probe(X, Y, X, [1, 0, 1, 0, 1])
    assert result.accuracy == 0.0
    assert result.settings["top_k"] == 2
    assert "top5 is top-2: there are only 2 classes" in result.warnings


def test_few_labels_draws_of_every_class():
    labels = np.array([3] * 20 + [-1] * 9 + [7] * 12)
    rows = few_labels(labels, 5, seed=0)
    assert np.bincount(labels[rows]).tolist() == [0, 0, 0, 5, 0, 0, 0, 5]
    assert np.unique(rows).size == 10
    assert np.array_equal(rows, few_labels(labels, 5, seed=0))
    assert any(not np.array_equal(rows, few_labels(labels, 5, seed=s)) for s in (1, 2, 3))
    assert set(rows) < set(few_labels(labels, 8, seed=0))


def test_few_labels_draws_evenly():
    labels = ["a"] * 4 + ["b"] * 4
    drawn = np.concatenate([few_labels(labels, 1, seed=seed) for seed in range(800)])
    # 200 expected of each row, with a deviation of sqrt(800 * 3/16) = 12.
    assert (np.abs(np.bincount(drawn) - 200) < 60).all()


def test_few_labels_names_the_small_class():
    with pytest.raises(ValueError, match="class 'b' has 1 labelled rows, fewer than the 2"):
        few_labels(["a", "b", "a"], 2, seed=0)
    with pytest.raises(ValueError, match="must be at least 1, got 0"):
        few_labels(["a", "b"], 0, seed=0)


def test_labels_per_class_uses_the_drawn_rows_only(probe):
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(40, 3)), np.repeat([0, 1], 20)
    x[:, 0] += 4 * y
    drawn = few_labels(y, 4, seed=3)
    result = probe(x, y, x, y, labels_per_class=4, seed=3)
    expected = probe(x[drawn], y[drawn], x, y)
    assert result.predictions == expected.predictions
    assert (result.n_train, result.n_test, result.labels_per_class) == (8, 40, 4)
    with pytest.raises(ValueError, match="class 1 has 1 labelled rows"):
        probe(X[:3], Y[:3], X, Y, labels_per_class=2)


def test_the_record_leaves_out_the_predictions(probe):
    record = probe(X, Y, X, Y).to_dict()
    assert "predictions" not in record
    assert record["accuracy"] == 1.0

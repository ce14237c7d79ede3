"""The linear probe by SGD, and shares of the labels: by loops that know nothing of the library."""

import numpy as np
import pytest

from relatum.probes import few_labels, labels_share, linear_probe, sgd_probe

RNG = np.random.default_rng(0)


def test_full_batches_follow_nesterov_by_hand():
    """One batch is all rows, so that the order does not matter: ten steps in plain loops."""
    x, y = RNG.normal(size=(9, 3)), np.array([0, 1, 2] * 3)
    result = sgd_probe(x, y, x, y, epochs=10, learning_rate=5.0, momentum=0.8)
    w, v = np.zeros((3, 4)), np.zeros((3, 4))
    inputs = np.column_stack([x, np.ones(9)])
    for step in range(10):
        rate = 5.0 * 9 / 256 * (1 + np.cos(np.pi * step / 10)) / 2
        gradient, loss = np.zeros((3, 4)), 0.0
        for row, label in zip(inputs, y, strict=True):
            p = np.exp(w @ row) / np.exp(w @ row).sum()
            loss -= np.log(p[label]) / 9
            gradient += np.outer(p - np.eye(3)[label], row) / 9
        v = 0.8 * v + gradient
        w = w - rate * (gradient + 0.8 * v)
    assert result.settings["last_batch_loss"] == pytest.approx(loss, rel=1e-12)
    assert result.accuracy == np.mean((inputs @ w.T).argmax(1) == y)
    assert result.settings["learning_rate"] == pytest.approx(5.0 * 9 / 256)
    assert result.probe == "linear-sgd"


def test_it_tends_to_what_logistic_regression_finds():
    """With time enough, small steps reach the minimum that L-BFGS finds without a penalty."""
    x = RNG.normal(size=(300, 4))
    y = (x[:, 0] + RNG.logistic(size=300) > 0).astype(int)
    fresh = RNG.normal(size=(500, 4))
    truth = (fresh[:, 0] > 0).astype(int)
    exact = linear_probe(x, y, fresh, truth, regularisation=1e-9, standardise=False)
    slow = sgd_probe(x, y, fresh, truth, epochs=3000, batch_size=300, learning_rate=1.0)
    agree = np.mean(np.array(exact.predictions) == np.array(slow.predictions))
    assert agree > 0.99


def test_batches_are_all_rows_once_an_epoch_and_keyed_by_the_seed():
    x, y = RNG.normal(size=(64, 2)), np.arange(64) % 2
    one, same, other = (
        sgd_probe(x, y, x, y, epochs=1, batch_size=16, learning_rate=16.0, seed=seed)
        for seed in (0, 0, 1)
    )
    assert one == same
    assert one.settings["last_batch_loss"] != other.settings["last_batch_loss"]
    assert one.settings["steps"] == 4
    # More rows than there are: all of them, and the rate in proportion.
    assert sgd_probe(x, y, x, y, epochs=3).settings["batch_size"] == 64


def test_standardised_features_do_not_know_their_scale():
    x, y = RNG.normal(size=(60, 3)), np.arange(60) % 3
    plain = sgd_probe(x, y, x, y, epochs=5, standardise=True)
    scaled = sgd_probe(1000 * x + 7, y, x * 1000 + 7, y, epochs=5, standardise=True)
    assert plain.predictions == scaled.predictions


@pytest.mark.parametrize(
    ("setting", "value", "said"),
    [
        ("epochs", 0, "epochs must be positive"),
        ("learning_rate", -1, "learning_rate must be positive"),
        ("batch_size", 0, "batch_size must be at least 1"),
        ("momentum", 1.0, r"momentum in \(0, 1\)"),
    ],
)
def test_mistakes_are_named(setting, value, said):
    with pytest.raises(ValueError, match=said):
        sgd_probe(np.eye(2), [0, 1], np.eye(2), [0, 1], **{setting: value})


def test_features_too_large_for_the_rate():
    x = np.array([[1e200], [-1e200]])
    with pytest.raises(ValueError, match="the rate .* is too high for features as large as 1e"):
        sgd_probe(x, [0, 1], x, [0, 1], learning_rate=1e120)


def test_a_share_keeps_the_proportions_and_is_nested():
    labels = np.array(["a"] * 200 + ["b"] * 50 + ["c"] * 10)
    RNG.shuffle(labels)
    before: set[int] = set()
    for share, counts in [(0.05, (10, 3, 1)), (0.1, (20, 5, 1)), (0.5, (100, 25, 5)), (1, None)]:
        rows = labels_share(labels, share, seed=3)
        assert len(set(rows)) == len(rows)
        if counts:
            assert tuple((labels[rows] == c).sum() for c in "abc") == counts
        assert before <= set(rows.tolist())
        before = set(rows.tolist())
    assert before == set(range(260))
    assert labels_share(labels, 0.1, 3).tolist() == labels_share(labels, 0.1, 3).tolist()
    assert labels_share(labels, 0.1, 3).tolist() != labels_share(labels, 0.1, 4).tolist()


def test_a_share_of_balanced_classes_is_a_draw_of_so_many_a_class():
    labels = np.arange(400) % 4
    assert labels_share(labels, 0.07, 5).tolist() == few_labels(labels, 7, 5).tolist()


def test_a_share_that_leaves_a_class_out_is_refused():
    labels = [0] * 1000 + [1] * 40 + [-1] * 5
    with pytest.raises(
        ValueError, match=r"0\.01 of the 40 labelled rows of class 1 is none; .*0\.0125"
    ):
        labels_share(labels, 0.01, 0)
    assert np.bincount(np.array(labels)[labels_share(labels, 0.0125, 0)]).tolist() == [13, 1]
    for share in (0, 1.5):
        with pytest.raises(ValueError, match=r"must be in \(0, 1\]"):
            labels_share(labels, share, 0)


def test_probes_take_a_share():
    x, y = RNG.normal(size=(100, 2)), np.arange(100) % 2
    for probe in (linear_probe, sgd_probe):
        result = probe(x, y, x, y, label_fraction=0.1)
        assert (result.n_train, result.label_fraction) == (10, 0.1)
        with pytest.raises(ValueError, match="not both"):
            probe(x, y, x, y, label_fraction=0.1, labels_per_class=3)

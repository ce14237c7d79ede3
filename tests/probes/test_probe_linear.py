"""The linear probe: its optimum, its choices on validation rows, and what never leaks in."""

import warnings

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler
from threadpoolctl import threadpool_info, threadpool_limits

from relatum.probes import REGULARISATION_GRID, Standardiser, linear_probe
from relatum.probes.linear import _folds


def blobs(n, d, classes, seed=0, spread=1.0):
    rng = np.random.default_rng(seed)
    centres = rng.normal(size=(classes, d))
    y = np.arange(n) % classes
    return centres[y] * spread + rng.normal(size=(n, d)), y


@pytest.mark.parametrize("scale, offset", [(1.0, 0.0), (1e8, 0.0), (1.0, 1e4)])
def test_scale_and_offset_of_the_features_do_not_matter(scale, offset):
    x = np.array([[-2e-4], [-1e-4], [1e-4], [2e-4]]) * scale + offset
    y = [0, 0, 1, 1]
    result = linear_probe(x, y, x, y)
    assert result.accuracy == 1.0
    assert result.settings["converged"]


@pytest.mark.parametrize("classes", [2, 4])
@pytest.mark.parametrize("n, d", [(200, 5), (24, 60)])
def test_equals_scikit_learn_at_the_same_penalty(n, d, classes):
    x, y = blobs(2 * n, d, classes, spread=0.4)
    train, test = x[:n], x[n:]
    result = linear_probe(train, y[:n], test, y[n:], regularisation=0.05, tolerance=1e-6)
    scaler = StandardScaler().fit(train)
    reference = LogisticRegression(C=1 / (0.05 * n), tol=1e-9, max_iter=10_000)
    reference.fit(scaler.transform(train), y[:n])
    assert result.predictions == tuple(reference.predict(scaler.transform(test)))
    assert result.accuracy == pytest.approx(reference.score(scaler.transform(test), y[n:]))
    assert 1 / classes < result.accuracy < 1
    assert result.settings["gradient_norm"] <= 1e-6 * (1 + 1e-6)


@pytest.mark.parametrize("classes", [2, 3])
def test_the_reported_gradient_is_that_of_the_stated_objective(classes, monkeypatch):
    x, y = blobs(60, 4, classes)
    penalty = 0.3
    models = []
    fit = LogisticRegression.fit
    monkeypatch.setattr(
        LogisticRegression, "fit", lambda self, *rows: models.append(fit(self, *rows)) or self
    )
    result = linear_probe(x, y, x, y, regularisation=penalty, max_iter=2)
    z = torch.tensor((x - x.mean(0)) / x.std(0))
    w = torch.tensor(models[-1].coef_, requires_grad=True)
    b = torch.tensor(models[-1].intercept_, requires_grad=True)
    scores = z @ w.T + b
    if classes == 2:
        scores = torch.cat([torch.zeros_like(scores), scores], dim=1)
    loss = torch.nn.functional.cross_entropy(scores, torch.tensor(y))
    (loss + penalty / 2 * w.square().sum()).backward()
    largest = max(w.grad.abs().max().item(), b.grad.abs().max().item())
    assert largest > 1e-3
    assert result.settings["gradient_norm"] == pytest.approx(largest, rel=1e-9)


def test_not_converged_is_said_in_the_result_and_nowhere_else():
    x, y = blobs(300, 20, 3)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        result = linear_probe(x, y, x, y, regularisation=1e-6, max_iter=3)
    assert not result.settings["converged"]
    (note,) = [text for text in result.warnings if "did not converge" in text]
    assert "in 3 steps" in note
    assert f"{result.settings['gradient_norm']:.2g}" in note
    assert linear_probe(x, y, x, y).settings["converged"]


def test_standardised_by_the_rows_it_is_fitted_on():
    standard = Standardiser.fit(np.array([[0.0], [2.0]]))
    assert standard.apply(np.array([[10.0]])).item() == 9.0
    constant = Standardiser.fit(np.full((1000, 1), 0.1))
    assert constant.apply(np.array([[0.1], [0.6]])).ravel().tolist() == [0.0, 0.5]


def test_test_rows_change_nothing_but_the_count():
    x, y = blobs(200, 6, 3, spread=0.7)
    result = linear_probe(x[:100], y[:100], x[100:], y[100:])
    wild = np.concatenate([x[100:], 1e6 * x[:50]])
    other = linear_probe(x[:100], y[:100], wild, np.concatenate([y[100:], y[:50]]))
    assert other.predictions[:100] == result.predictions
    assert other.settings == result.settings


def test_constant_features_are_harmless():
    x, y = blobs(60, 3, 2)
    wide = np.concatenate([x, np.full((60, 2), 0.1)], axis=1)
    assert linear_probe(wide, y, wide, y).predictions == linear_probe(x, y, x, y).predictions
    flat = np.full((10, 2), 0.1)
    assert linear_probe(flat, [0] * 6 + [1] * 4, flat, [0] * 6 + [1] * 4).accuracy == 0.6


@pytest.mark.parametrize("n", [60, 1200])
def test_the_penalty_is_the_best_on_the_validation_rows(n):
    x, y = blobs(n + 100, 30, 3, spread=0.25)
    grid = [10.0, 0.3, 1e-3]
    result = linear_probe(x[:n], y[:n], x[n:], y[n:], grid=grid, seed=4)
    folds, _ = _folds(y[:n], 4)
    turns = range(5) if n < 1000 else [0]
    correct = np.zeros(3)
    for turn in turns:
        fitted, held = np.flatnonzero(folds != turn), np.flatnonzero(folds == turn)
        scaler = StandardScaler().fit(x[fitted])
        for i, penalty in enumerate(grid):
            model = LogisticRegression(C=1 / (penalty * len(fitted)), tol=1e-6, max_iter=5000)
            model.fit(scaler.transform(x[fitted]), y[fitted])
            correct[i] += (model.predict(scaler.transform(x[held])) == y[held]).sum()
    rows = n if n < 1000 else n // 5
    assert result.settings["validation_rows"] == rows
    # Fits that only choose stop earlier: a row or two may differ.
    assert np.abs(np.array(result.settings["validation_accuracy"]) * rows - correct).max() <= 2
    assert result.settings["regularisation"] == grid[int(correct.argmax())]
    assert result.settings["folds"] == len(turns)


def test_ties_go_to_the_strongest_penalty():
    x, y = blobs(100, 4, 2, spread=30)
    result = linear_probe(x, y, x, y, grid=[1e-3, 1.0, 1e-1])
    assert result.settings["validation_accuracy"] == [1.0, 1.0, 1.0]
    assert result.settings["regularisation_grid"] == [1.0, 1e-1, 1e-3]
    assert result.settings["regularisation"] == 1.0


def test_one_seed_gives_one_result():
    x, y = blobs(80, 10, 4, spread=0.5)
    grid = [1.0, 0.1]
    assert linear_probe(x, y, x, y, grid=grid) == linear_probe(x, y, x, y, grid=grid)
    drawn = [
        linear_probe(x, y, x, y, seed=seed, labels_per_class=5, regularisation=0.1).predictions
        for seed in range(4)
    ]
    assert len(set(drawn)) > 1


def test_folds_are_stratified_and_every_class_stays_in_what_is_fitted():
    codes = np.array([0] * 23 + [1] * 2 + [2] * 7 + [3] + [4] * 11)
    folds, single = _folds(codes, seed=0)
    assert single.tolist() == [3]
    assert folds[codes == 3].tolist() == [-1]
    for code in (0, 1, 2, 4):
        sizes = np.bincount(folds[codes == code], minlength=5)
        assert sizes.sum() == (codes == code).sum()
        assert sizes.max() - sizes.min() <= 1
        assert all(((codes == code) & (folds != fold)).any() for fold in range(5))
    sizes = np.bincount(folds[folds >= 0], minlength=5)
    assert sizes.max() - sizes.min() <= 1


def test_a_class_of_one_is_named_and_kept():
    x = np.array([[float(i)] for i in range(10)] + [[1000.0]])
    y = ["many"] * 10 + ["one"]
    result = linear_probe(x, y, x, y)
    assert result.n_train == 11
    assert "classes with one labelled row took no part in validation: 'one'" in result.warnings
    assert result.settings["validation_rows"] == 10
    fixed = linear_probe(x[9:], y[9:], x[9:], y[9:])
    assert fixed.settings["regularisation"] == 1e-2
    assert fixed.warnings[0] == "every class has one labelled row: the penalty is 0.01, not chosen"
    assert fixed.accuracy == 1.0


def test_grid_runs_from_strong_to_weak_in_half_decades():
    steps = np.diff(np.log10(REGULARISATION_GRID))
    assert np.allclose(steps, -0.5)
    assert (REGULARISATION_GRID[0], REGULARISATION_GRID[-1]) == (10.0, pytest.approx(1e-5))


@pytest.mark.parametrize(
    "setting, message",
    [
        ({"regularisation": 0.0}, r"regularisation must be positive and finite, got \[0"),
        ({"grid": []}, r"regularisation must be positive and finite, got \[\]"),
        ({"grid": [1.0, float("inf")]}, "regularisation must be positive and finite"),
        ({"max_iter": 0}, "max_iter and tolerance must be positive, got 0"),
        ({"tolerance": 0.0}, r"max_iter and tolerance must be positive, got 1000 and 0\.0"),
    ],
)
def test_bad_settings(setting, message):
    x, y = blobs(20, 2, 2)
    with pytest.raises(ValueError, match=message):
        linear_probe(x, y, x, y, **setting)


def test_without_standardising_the_scale_matters():
    x, y = blobs(60, 3, 2, spread=0.5)
    tiny = x * 1e-6
    plain = linear_probe(tiny, y, tiny, y, regularisation=0.1, standardise=False)
    scaled = linear_probe(tiny, y, tiny, y, regularisation=0.1)
    assert plain.settings["standardised"] is False
    assert plain.settings["gradient_norm"] != scaled.settings["gradient_norm"]
    assert scaled.predictions == linear_probe(x, y, x, y, regularisation=0.1).predictions


def test_small_fits_use_one_thread_and_leave_the_others_their_own(monkeypatch):
    x, y = blobs(40, 3, 2)
    inside = []
    fit = LogisticRegression.fit

    def threads():
        return max(pool["num_threads"] for pool in threadpool_info())

    def watched(self, *rows):
        inside.append(threads())
        return fit(self, *rows)

    monkeypatch.setattr(LogisticRegression, "fit", watched)
    with threadpool_limits(2):
        linear_probe(x, y, x, y)
        assert threads() == 2
        assert set(inside) == {1}
        monkeypatch.setattr("relatum.probes.linear._ONE_THREAD_UP_TO", 10)
        inside.clear()
        linear_probe(x, y, x, y, regularisation=1.0)
        assert set(inside) == {2}

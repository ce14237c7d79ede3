"""Gaussian variables: the closed form without bias, its error, and a ratio that does no harm."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from relatum.mi.gaussian import GaussianRatio, gaussian


def pairs(n, d, rho, seed=0):
    """d independent pairs with correlation rho: the information is −d/2 log(1 − rho²)."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, d))
    return x, rho * x + np.sqrt(1 - rho**2) * rng.normal(size=(n, d))


def truth(d, rho):
    return -d / 2 * np.log1p(-(rho**2))


def test_plug_in_is_that_of_the_canonical_correlations():
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(60, 3)), rng.normal(size=(60, 2))
    y[:, 0] += x @ [1.0, -2.0, 0.5]
    s = np.cov(x, y, rowvar=False)
    det = np.linalg.det
    expected = np.log(det(s[:3, :3]) * det(s[3:, 3:]) / det(s)) / 2
    assert gaussian(x, y).settings["uncorrected"] == pytest.approx(expected, rel=1e-12)


def test_pointwise_is_the_log_ratio_of_the_fitted_law():
    from scipy.stats import multivariate_normal

    x, y = pairs(50, 2, 0.7)
    z = np.c_[x, y]
    mean, s = z.mean(0), np.cov(z, rowvar=False, ddof=0)
    log_ratio = (
        multivariate_normal(mean, s).logpdf(z)
        - multivariate_normal(mean[:2], s[:2, :2]).logpdf(x)
        - multivariate_normal(mean[2:], s[2:, 2:]).logpdf(y)
    )
    reading = gaussian(x, y)
    corrected = log_ratio - reading.settings["bias"]
    np.testing.assert_allclose(reading.pointwise, corrected, atol=1e-12)
    assert reading.terms.mean() == pytest.approx(reading.value, abs=1e-12)


@pytest.mark.parametrize(("n", "d", "rho", "repeats"), [(200, 50, 0.0, 40), (30, 5, 0.6, 300)])
def test_no_bias(n, d, rho, repeats):
    readings = [gaussian(*pairs(n, d, rho, seed)) for seed in range(repeats)]
    values = np.array([reading.value for reading in readings])
    error = values.std(ddof=1) / np.sqrt(repeats)
    assert abs(values.mean() - truth(d, rho)) < 3.5 * error
    # The plug-in without correction is nats off.
    assert np.mean([r.settings["uncorrected"] for r in readings]) - truth(d, rho) > 10 * error


def test_independent_sides_in_high_dimension_are_not_read_as_dependent():
    lower = [
        reading.value - 1.96 * reading.standard_error
        for reading in (gaussian(*pairs(200, 50, 0.0, seed)) for seed in range(100, 160))
    ]
    assert np.mean(np.array(lower) <= 0.05) >= 0.93


@pytest.mark.parametrize(
    ("n", "d", "rho"), [(200, 1, 0.0), (500, 1, 0.6), (120, 50, 0.0), (200, 20, 0.5)]
)
def test_coverage(n, d, rho):
    readings = [gaussian(*pairs(n, d, rho, seed)) for seed in range(100)]
    hits = [abs(r.value - truth(d, rho)) <= 1.96 * r.standard_error for r in readings]
    assert np.mean(hits) >= 0.88


def test_influence_is_the_derivative_in_the_weight_of_a_row():
    x, y = pairs(40, 2, 0.5)
    z = np.c_[x, y]

    def plug_in(weights):
        mean = weights @ z
        s = (weights[:, None] * (z - mean)).T @ (z - mean)
        det = np.linalg.det
        return np.log(det(s[:2, :2]) * det(s[2:, 2:]) / det(s)) / 2

    reading, even = gaussian(x, y), np.full(40, 1 / 40)
    for row in (0, 7):
        step = 1e-6 * (np.eye(40)[row] - even)
        slope = (plug_in(even + step) - plug_in(even - step)) / 2e-6
        assert reading.terms[row] - reading.value == pytest.approx(slope, abs=1e-6)


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 10**6), st.floats(1e-6, 1e6), st.floats(-1e3, 1e3))
def test_invariance(seed, scale, shift):
    rng = np.random.default_rng(seed)
    x, y = rng.normal(size=(30, 2)), rng.normal(size=(30, 3))
    y[:, 0] += x[:, 1]
    value = gaussian(x, y).value
    order = rng.permutation(30)
    for changed in [
        gaussian(y, x),
        gaussian(x[order], y[order]),
        gaussian(x * scale + shift, y),
        gaussian(x @ rng.normal(size=(2, 2)), y),
    ]:
        assert changed.value == pytest.approx(value, abs=1e-7)


def test_errors_and_notes():
    x, y = pairs(100, 50, 0.0)
    with pytest.raises(ValueError, match=r"at least dx \+ dy \+ 1 = 101 rows .* got 100"):
        gaussian(x, y)
    x, y = pairs(200, 3, 0.0)
    with pytest.raises(ValueError, match="column 2 of x .* is a linear function"):
        gaussian(np.c_[x[:, :2], x[:, 0] - 2 * x[:, 1]], y)
    with pytest.raises(ValueError, match="column 1 of y .* the mutual information is infinite"):
        gaussian(x, np.c_[y[:, 0], 5 * x[:, 2] + 1])
    with_constant = gaussian(np.c_[np.full(200, 0.1), x], y)
    assert with_constant.value == pytest.approx(gaussian(x, y).value, abs=1e-12)
    assert with_constant.notes == ("1 constant columns of x left out",)
    assert gaussian(x, np.full((200, 1), 0.1)).value == 0.0
    assert gaussian(x, y).notes == ()
    (note,) = gaussian(x, np.exp(y)).notes
    assert "3 of 3 columns of y are far from Gaussian" in note


def test_ratio_of_all_pairs():
    x, y = pairs(400, 3, 0.7)
    ratio = GaussianRatio.fit(x, y)
    left, right, of_x, of_y, constant = ratio.terms(x[:5], y[5:12])
    every = constant + left @ right.T - of_x[:, None] - of_y
    assert every.shape == (5, 7)
    for i in range(5):
        for j in range(7):
            one = ratio.log_ratio(x[i : i + 1], y[5 + j : 6 + j])
            assert every[i, j] == pytest.approx(one[0], abs=1e-12)


def test_ratio_against_the_exact_one():
    x, y = pairs(20_000, 1, 0.6)
    exact = (0.6 * x * y - 0.18 * (x**2 + y**2)) / 0.64 - np.log(0.64) / 2
    fitted = GaussianRatio.fit(5 * x - 2, y / 100).log_ratio(5 * x - 2, y / 100)
    np.testing.assert_allclose(fitted, exact[:, 0], atol=0.15)
    assert np.abs(fitted - exact[:, 0]).mean() < 0.01


@pytest.mark.parametrize("d", [1, 5, 20, 50])
@pytest.mark.parametrize("n", [60, 200, 640])
def test_ratio_of_independent_sides_does_no_harm(n, d):
    test_x, test_y = pairs(4000, d, 0.0, seed=99)
    held_out = [
        GaussianRatio.fit(*pairs(n, d, 0.0, seed)).log_ratio(test_x, test_y).mean()
        for seed in range(3)
    ]
    assert min(held_out) > -0.35 and np.mean(held_out) > -0.13


@pytest.mark.parametrize(
    ("n", "d", "share"), [(200, 5, 0.9), (640, 20, 0.9), (640, 50, 0.8), (3000, 20, 0.97)]
)
def test_ratio_of_dependent_sides_keeps_most_of_the_information(n, d, share):
    test_x, test_y = pairs(4000, d, 0.5, seed=99)
    held_out = GaussianRatio.fit(*pairs(n, d, 0.5)).log_ratio(test_x, test_y).mean()
    assert share * truth(d, 0.5) < held_out < 1.06 * truth(d, 0.5)


def test_ratio_with_more_columns_than_rows_and_with_constants():
    x, y = pairs(40, 60, 0.0)
    assert GaussianRatio.fit(x, y).log_ratio(*pairs(2000, 60, 0.0, 1)).mean() > -0.3
    x, y = pairs(100, 2, 0.9)
    x[:, 1] = 0.1
    ratio = GaussianRatio.fit(x, y)
    assert np.isfinite(ratio.log_ratio(x, y)).all() and ratio.log_ratio(x, y).mean() > 0.5
    nothing = GaussianRatio.fit(np.full((50, 1), 3.0), y[:50])
    np.testing.assert_array_equal(nothing.log_ratio(np.full((50, 1), 3.0), y[:50]), 0.0)
    with pytest.raises(ValueError, match="at least 10 rows, got 5"):
        GaussianRatio.fit(x[:5], y[:5])


def test_ratio_of_a_copy_stays_finite():
    x, _ = pairs(100, 2, 0.0)
    assert np.isfinite(GaussianRatio.fit(x, x).log_ratio(x, x)).all()

"""Nearest neighbours: values of the field to ten digits, double loops, and known laws."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import digamma

from relatum.mi.ksg import ksg


def pairs(n, d, rho, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, d))
    return x, rho * x + np.sqrt(1 - rho**2) * rng.normal(size=(n, d))


@pytest.mark.parametrize(("dx", "dy", "k"), [(1, 1, 3), (2, 1, 1), (3, 4, 5), (7, 6, 3)])
def test_against_a_double_loop(dx, dy, k):
    rng = np.random.default_rng(dx)
    x, y = rng.normal(size=(300, dx)), rng.normal(size=(300, dy))
    y[:, 0] += x[:, 0]
    terms = []
    for i in range(300):
        of_x, of_y = np.abs(x - x[i]).max(1), np.abs(y - y[i]).max(1)
        radius = np.sort(np.maximum(of_x, of_y))[k]
        inside = [int((of < radius).sum()) - 1 for of in (of_x, of_y)]
        terms.append(digamma(k) + digamma(300) - sum(digamma(m + 1) for m in inside))
    reading = ksg(x, y, k=k, standardise=False)
    np.testing.assert_allclose(reading.pointwise, terms, rtol=1e-12)
    assert reading.terms.mean() == pytest.approx(reading.value, abs=1e-12)


def test_square_root_of_integers():  # M03
    p = np.array([*range(100), 1000.0])[:, None]
    q = np.sqrt(p + 1)
    assert ksg(p, q).value == pytest.approx(2.4560022587, abs=1e-10)
    assert ksg(q, p).value == ksg(p, q).value


def test_many_integers_and_a_wide_number_are_symmetric():  # M05
    rng = np.random.default_rng(0)
    d, c = rng.integers(0, 10, (100, 1)).astype(float), 1000 * rng.normal(size=(100, 1))
    assert ksg(c, d).value == pytest.approx(ksg(d, c).value, abs=1e-12)
    assert any("1 of 1 columns of y repeat values" in note for note in ksg(c, d).notes)


@pytest.mark.parametrize(
    ("n", "value"), [(10, 1.3289683), (100, 3.6773775176), (1000, 5.9844708606)]
)
def test_information_of_a_copy_tells_the_number_of_rows(n, value):  # M06
    x, _ = pairs(n, 1, 0.0)
    reading = ksg(x, x)
    assert reading.value == pytest.approx(value, abs=1e-7)
    assert reading.value == pytest.approx(digamma(n) - digamma(3), abs=1e-12)
    assert reading.ceiling == pytest.approx(reading.value, abs=1e-12)


def test_units_do_not_matter():  # M07
    rng = np.random.default_rng(0)
    x, y = rng.uniform(size=(1000, 1)), rng.uniform(size=(1000, 1))
    z = (x + y) / 2  # the information is exactly ½
    scales = (1e-3, 1.0, 100.0, 1e6)
    standardised = [ksg(scale * x, z).value for scale in scales]
    np.testing.assert_allclose(standardised, 0.4913, atol=5e-5)
    raw = [ksg(scale * x, z, standardise=False).value for scale in scales]
    np.testing.assert_allclose(raw, [0.02, 0.48, 0.25, 0.00], atol=5e-3)


def test_negative_values_are_returned():  # M01
    values = np.array([ksg(*pairs(1000, 1, 0.0, seed)).value for seed in range(20)])
    assert (np.abs(values) < 0.1).all() and (values < 0).any()


@pytest.mark.parametrize("n", [1500, 5000])
def test_many_columns_are_noted(n):  # M10
    x, y = pairs(n, 16, 0.5)
    reading = ksg(x, y)
    assert 0.5 < reading.value < 0.8  # the truth is 2.30
    (note,) = reading.notes
    assert "too many columns for so few rows: with 16 + 16 columns" in note
    (note,) = ksg(100 * x, 100 * y, standardise=False).notes
    assert "deviations away" in note
    each = sum(ksg(x[:, [j]], y[:, [j]]).value for j in range(16))
    assert each == pytest.approx(2.3014565796, abs=0.4)


@pytest.mark.parametrize(("n", "d"), [(200, 1), (1000, 2), (5000, 2)])
def test_few_columns_are_not_noted(n, d):
    assert ksg(*pairs(n, d, 0.5)).notes == ()


def test_too_few_rows():  # M11
    x, y = pairs(3, 1, 0.0)
    with pytest.raises(ValueError, match="k=3 with n=3 rows"):
        ksg(x, y)
    with pytest.raises(ValueError, match="1 <= k < n"):
        ksg(x, y, k=0)


@pytest.mark.parametrize(("d", "rho"), [(1, 0.0), (1, 0.5), (1, 0.9), (2, 0.5)])
def test_gaussians_and_the_spread_over_samples(d, rho):
    readings = [ksg(*pairs(500, d, rho, seed)) for seed in range(200)]
    values = np.array([reading.value for reading in readings])
    assert values.mean() == pytest.approx(-d / 2 * np.log(1 - rho**2), abs=0.02)
    error = np.sqrt(np.mean([reading.terms.var() for reading in readings]) / 500)
    assert error == pytest.approx(values.std(), rel=0.15)


def test_constants_and_copies():
    x, y = pairs(100, 1, 0.5)
    assert ksg(x, np.full((100, 1), 0.1)).value == pytest.approx(0, abs=1e-12)
    assert ksg(np.c_[x, np.full(100, 0.1)], y).value == pytest.approx(ksg(x, y).value, abs=1e-12)
    # Tables of counts, where all distances are 0: the plug-in but for the rounding of digamma.
    rng = np.random.default_rng(0)
    a = rng.integers(0, 2, (4000, 1)).astype(float)
    b = np.where(rng.uniform(size=(4000, 1)) < 0.8, a, 1 - a)
    reading = ksg(a, b)
    assert reading.value == pytest.approx(
        np.log(2) + 0.8 * np.log(0.8) + 0.2 * np.log(0.2), abs=0.03
    )
    assert reading.ceiling is None
    assert "4000 of 4000 rows have so many exact copies" in reading.notes[0]


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 10**6), st.sampled_from([1, 2, 6]), st.integers(-30, 30))
def test_invariance(seed, d, power):
    x, y = pairs(80, d, 0.5, seed)
    value = ksg(x, y).value
    order = np.random.default_rng(seed).permutation(80)
    for changed in [
        ksg(y, x),
        ksg(x[order], y[order]),
        ksg(x * 2.0**power, y),
        ksg(x + 3.0, -y),
    ]:
        assert changed.value == pytest.approx(value, abs=1e-9)

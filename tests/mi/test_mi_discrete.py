"""Classes against classes, against numbers, and bins: closed forms, field values, independence."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import digamma

from relatum.mi.discrete import discrete, histogram, mixed


def column(values):
    return np.asarray(values, float)[:, None]


T, Y = column([0, 0, 1, 1, 2]), column([0, 0, 1, 1, 1])


def test_table_of_five_rows():  # M12
    reading = discrete(T, Y, correction="none")
    assert reading.value == pytest.approx(0.6730116670, abs=1e-10)
    assert reading.settings["entropy_x"] == pytest.approx(1.0549201680, abs=1e-10)
    assert reading.settings["entropy_y"] == pytest.approx(0.6730116670, abs=1e-10)
    assert reading.ceiling == reading.settings["entropy_y"]
    # Three pairs of classes as well: the correction is (2 + 1 − 2) / 10.
    assert discrete(T, Y).value == pytest.approx(0.6730116670 + 0.1, abs=1e-10)


def test_plug_in_against_a_loop():
    rng = np.random.default_rng(0)
    x, y = rng.integers(0, 3, (40, 2)), rng.integers(0, 4, (40, 1))
    rows = [(tuple(a), tuple(b)) for a, b in zip(x.tolist(), y.tolist(), strict=True)]
    expected = 0.0
    for a, b in rows:
        joint = rows.count((a, b)) / 40
        of_x, of_y = (sum(row[side] == c for row in rows) / 40 for side, c in ((0, a), (1, b)))
        expected += np.log(joint / (of_x * of_y)) / 40
    reading = discrete(x.astype(float), y.astype(float), correction="none")
    assert reading.value == pytest.approx(expected, rel=1e-12)
    assert reading.pointwise.mean() == pytest.approx(expected, rel=1e-12)


def test_a_constant_side_says_nothing():  # M04
    for correction in ("none", "miller-madow"):
        assert discrete(T, column([1] * 5), correction=correction).value == 0.0
    assert mixed(column([3.0] * 20), column(np.arange(20))).value == pytest.approx(0, abs=1e-12)


def test_correction_removes_the_bias_of_independent_sides():
    rng = np.random.default_rng(0)
    readings = [discrete(*rng.integers(0, 5, (2, 300, 1)).astype(float)) for _ in range(200)]
    values = np.array([reading.value for reading in readings])
    raw = np.mean([reading.pointwise.mean() for reading in readings])
    assert raw == pytest.approx(16 / 600, rel=0.1)
    assert abs(values.mean()) < 0.002
    # The chi-square law: the error is known where influences vanish.
    assert values.std() <= np.mean([r.standard_error for r in readings]) < 2 * values.std()


def test_coverage_of_two_by_two():
    rng = np.random.default_rng(1)
    readings = [discrete(*rng.integers(0, 2, (2, 100, 1)).astype(float)) for _ in range(200)]
    hits = [abs(reading.value) <= 1.96 * reading.standard_error for reading in readings]
    assert np.mean(hits) >= 0.9


def test_measurements_are_no_classes():  # M13
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(2, 100, 1))
    with pytest.raises(ValueError, match="found 100 classes of x in 100 rows.* use ksg"):
        discrete(x, y)
    with pytest.raises(ValueError, match="100 or more distinct rows.*n=100, k=3|only one of its"):
        mixed(x, y)
    assert abs(histogram(x, y).value) < 0.1
    with pytest.raises(ValueError, match="correction must be one of"):
        discrete(T, Y, correction="jackknife")
    (note,) = discrete(*np.round(4 * rng.normal(size=(2, 100, 1)))).notes
    assert "mostly empty" in note


@pytest.mark.parametrize(("mean", "truth"), [(2, 0.6327201937), (1, 0.3368308203)])
def test_bit_against_number(mean, truth):  # M09
    rng = np.random.default_rng(0)
    values = []
    for _ in range(40):
        bit = rng.integers(0, 2, (1000, 1)).astype(float)
        reading = mixed(bit, mean * (2 * bit - 1) + rng.normal(size=(1000, 1)))
        values.append(reading.value)
        assert reading.value <= reading.ceiling < np.log(2) + 1e-3
    assert np.mean(values) == pytest.approx(truth, abs=0.008)


@pytest.mark.parametrize("mean", [0, 1])
def test_spread_over_samples(mean):
    rng = np.random.default_rng(2)
    bits = rng.integers(0, 2, (200, 300, 1)).astype(float)
    readings = [mixed(bit, mean * bit + rng.normal(size=(300, 1))) for bit in bits]
    error = np.sqrt(np.mean([reading.terms.var() for reading in readings]) / 300)
    assert error == pytest.approx(np.std([reading.value for reading in readings]), rel=0.15)


@pytest.mark.parametrize("width", [1, 2, 10])
def test_mixed_against_a_loop(width):
    rng = np.random.default_rng(1)
    label, z = rng.integers(0, 3, 60), rng.normal(size=(60, width))
    z[:, 0] += label
    z = (z - z.mean(0)) / z.std(0)
    terms = []
    for i in range(60):
        distance = np.abs(z - z[i]).max(axis=1)
        own = np.sort(distance[label == label[i]])[3]
        terms.append(
            digamma(60) + digamma(3) - digamma((label == label[i]).sum())
            - digamma((distance < own).sum())
        )  # fmt: skip
    reading = mixed(column(label), z)
    np.testing.assert_allclose(reading.pointwise, terms, rtol=1e-12)
    assert mixed(z, column(label)).value == reading.value


def test_small_classes():  # M11
    with pytest.raises(ValueError, match=r"class \[1.0, 0.0, 1.0\] \(n=2, k=3\)"):
        mixed(np.array([[1.0, 0, 1], [0, 1, 1]]), column([0, 1]))
    with pytest.raises(ValueError, match="k must be at least 1, got 0"):
        mixed(T, Y, k=0)
    rng = np.random.default_rng(0)
    labels, z = column([0] * 20 + [1] * 20 + [2] * 2 + [3]), rng.normal(size=(43, 1))
    reading = mixed(labels, z)
    assert reading.notes == (
        "1 rows that are the only one of their class were left out",
        "1 classes have at most k=3 rows: k is their rows less one there",
    )
    assert reading.settings["rows_used"] == 42
    assert np.isnan(reading.pointwise[42]) and reading.terms[42] == reading.value
    assert reading.terms.mean() == pytest.approx(reading.value, abs=1e-12)
    assert reading.value == pytest.approx(mixed(labels[:42], z[:42]).value, abs=1e-12)


def test_many_columns_are_noted():
    rng = np.random.default_rng(0)
    label = rng.integers(0, 2, (500, 1)).astype(float)
    assert mixed(label, rng.normal(size=(500, 2))).notes == ()
    (note,) = mixed(label, rng.normal(size=(500, 10))).notes
    assert "with 10 columns and 500 rows" in note


def test_copies_are_the_classes_of_a_table():
    """With numbers that are classes too, mixed becomes a table of counts."""
    rng = np.random.default_rng(0)
    x = rng.integers(0, 2, (4000, 1)).astype(float)
    y = np.where(rng.uniform(size=(4000, 1)) < 0.8, x, 1 - x)
    reading = mixed(x, y)
    assert reading.value == pytest.approx(discrete(x, y).value, abs=2e-3)
    assert "exact copies" in reading.notes[-1]


@pytest.mark.parametrize(("rho", "n", "within"), [(0.0, 1000, 0.03), (0.5, 5000, 0.03)])
def test_histogram_of_gaussians(rho, n, within):
    rng = np.random.default_rng(0)
    x, noise = rng.normal(size=(2, n, 1))
    reading = histogram(x, rho * x + np.sqrt(1 - rho**2) * noise)
    assert reading.settings["bins"] == int((n / 5) ** 0.5)
    assert reading.value == pytest.approx(-np.log(1 - rho**2) / 2, abs=within)


def test_histogram_bins():
    x = column(np.arange(40))
    assert histogram(x, x**3, bins=4, correction="none").value == pytest.approx(np.log(4))
    # A column of few values is left alone.
    bit = column([0] * 35 + [1] * 5)
    reading = histogram(bit, x, bins=8, correction="none")
    assert reading.settings["classes_x"] == 2
    assert reading.value == pytest.approx(reading.settings["entropy_x"])
    with pytest.raises(ValueError, match="needs 320 rows for 2 bins of each of 3 \\+ 3 columns"):
        histogram(*np.random.default_rng(0).normal(size=(2, 300, 3)))
    with pytest.raises(ValueError, match="bins=7 makes 49 cells .* more than the 40 rows"):
        histogram(x, x, bins=7)
    with pytest.raises(ValueError, match="bins must be at least 2, got 1"):
        histogram(x, x, bins=1)


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 10**6), st.floats(1e-3, 1e3), st.integers(-50, 50))
def test_invariance(seed, scale, shift):
    rng = np.random.default_rng(seed)
    label = rng.integers(0, 4, (60, 1)).astype(float)
    other = np.where(rng.uniform(size=(60, 1)) < 0.5, label, rng.integers(0, 3, (60, 1)))
    z = label + rng.normal(size=(60, 1))
    order = rng.permutation(60)
    for estimate, x, y, bound in [
        (discrete, label, other, 1e-12),
        (mixed, label, z, 1e-12),
        (histogram, z, z + rng.normal(size=(60, 1)), 1e-12),
    ]:
        value = estimate(x, y).value
        for changed in [
            estimate(y, x),
            estimate(x[order], y[order]),
            estimate(x, y * 2.0**shift),
            estimate(x * scale + shift, y),
        ]:
            assert changed.value == pytest.approx(value, abs=bound)

"""Intervals, against standard errors from the mathematics."""

import math

import numpy as np
import pytest
from scipy.signal import lfilter
from scipy.stats import norm

from relatum.mi import Reading, bootstrap, estimate_mi
from relatum.mi.estimate import _with_learning
from relatum.mi.intervals import Interval
from relatum.mi.methods import READERS
from relatum.mi.splits import Split
from relatum.mi.trained import _with_training


def reading(terms, value=None, standard_error=None):
    value = float(np.mean(terms)) if value is None else value
    return Reading(value, np.asarray(terms, float), None, "plug-in", standard_error=standard_error)


@pytest.mark.parametrize("level", [0.5, 0.9, 0.95])
def test_rows(level):
    terms = np.random.default_rng(0).normal(1.0, 2.0, 1000)
    found = bootstrap(reading(terms), level=level, resamples=4000)
    error = terms.std() / math.sqrt(1000)
    assert found.standard_error == pytest.approx(error, rel=0.05)
    reach = norm.ppf((1 + level) / 2) * error
    assert found.low == pytest.approx(terms.mean() - reach, abs=0.1 * error)
    assert found.high == pytest.approx(terms.mean() + reach, abs=0.1 * error)


def test_coverage():
    hits = []
    for seed in range(300):
        terms = np.random.default_rng(seed).exponential(size=150)
        low, high, _ = bootstrap(reading(terms), resamples=300, seed=seed)
        hits.append(low <= 1.0 <= high)
    assert 0.89 <= np.mean(hits) <= 0.985  # 0.95 within three errors, a little less for skewness


def test_whole_groups_are_drawn():
    """40 rows of each of 50 groups are all alike: 50 numbers, not 2000."""
    means = np.random.default_rng(1).normal(size=50)
    groups = np.repeat(np.arange(50), 40)
    found = bootstrap(reading(means[groups]), resamples=4000, groups=groups)
    assert found.standard_error == pytest.approx(means.std() / math.sqrt(50), rel=0.05)
    assert bootstrap(reading(means[groups])).standard_error < 0.2 * found.standard_error


def test_groups_of_unlike_size():
    """A ratio of sums: the linearised error is sd(s_g − m c_g) / (mean c √G)."""
    rng = np.random.default_rng(2)
    sizes = rng.integers(1, 9, 120)
    groups = np.repeat(np.arange(120), sizes)
    terms = rng.normal(size=120)[groups] + rng.normal(size=len(groups))
    left = [(terms[groups == g] - terms.mean()).sum() for g in range(120)]
    error = np.std(left) / (sizes.mean() * math.sqrt(120))
    order = rng.permutation(len(groups))
    for rows in (np.arange(len(groups)), order):
        found = bootstrap(reading(terms[rows]), resamples=4000, groups=groups[rows].astype(str))
        assert found.standard_error == pytest.approx(error, rel=0.06)


def test_groups_of_one_row_are_rows():
    terms = np.random.default_rng(3).normal(size=80)
    assert bootstrap(reading(terms), groups=np.arange(80)) == bootstrap(reading(terms))
    assert bootstrap(reading(terms), block_length=1).standard_error == pytest.approx(
        bootstrap(reading(terms)).standard_error, rel=0.1
    )


def test_blocks_know_the_long_run_variance():
    """AR(1) with a = 0.8: n Var(mean) tends to 1 / (1 − a)² = 25, while Var of one is 2.8."""
    errors, plain = [], []
    for seed in range(8):
        noise = np.random.default_rng(seed).normal(size=20_100)
        series = lfilter([1.0], [1.0, -0.8], noise)[100:]
        errors.append(bootstrap(reading(series), resamples=400, block_length=200).standard_error)
        plain.append(bootstrap(reading(series), resamples=400).standard_error)
    assert np.mean(errors) == pytest.approx(5 / math.sqrt(20_000), rel=0.08)
    assert np.mean(plain) == pytest.approx(math.sqrt(1 / 0.36 / 20_000), rel=0.05)


def test_every_row_is_in_as_many_blocks():
    """Circular: the mean of resampled means is the mean, even where an end is unlike the rest."""
    terms = np.zeros(50)
    terms[-1] = 50.0
    low, high, error = bootstrap(reading(terms), resamples=20_000, block_length=7, level=0.5)
    assert error > 0 and low <= 1.0 <= high
    # 8 blocks of 7 hold the row Binomial(8, 7/50) times: sd of the mean 50/56 · √(8 p (1 − p)).
    assert error == pytest.approx(50 / 56 * math.sqrt(8 * 0.14 * 0.86), rel=0.03)


def test_widening_about_the_value():
    terms = np.random.default_rng(4).exponential(size=500)
    of_terms = terms.std(ddof=1) / math.sqrt(500)
    plain = bootstrap(reading(terms))
    wide = bootstrap(reading(terms, value=3.0, standard_error=3 * of_terms))
    assert wide.standard_error == pytest.approx(math.hypot(plain.standard_error, 8**0.5 * of_terms))
    times, center = wide.standard_error / plain.standard_error, terms.mean()
    assert wide.low - 3.0 == pytest.approx(times * (plain.low - center))
    assert wide.high - 3.0 == pytest.approx(times * (plain.high - center))
    # A smaller error of its own changes nothing.
    assert bootstrap(reading(terms, standard_error=1e-9)) == plain


@pytest.mark.parametrize("how", [{"groups": np.arange(400) // 20}, {"block_length": 20}])
def test_an_error_beyond_the_terms_is_not_lost_among_dependent_rows(how):
    """Twenty stretches of equal terms: errors 1/√20 of them and 0.2 beyond add in squares."""
    terms = np.repeat(np.tile([-1.0, 1.0], 10), 20)
    beyond = reading(terms, standard_error=math.hypot(terms.std(ddof=1) / 20, 0.2))
    alone = bootstrap(reading(terms), **how).standard_error
    assert alone > 0.1  # where a row has 1/√400
    assert bootstrap(beyond, **how).standard_error == pytest.approx(math.hypot(alone, 0.2))


def test_terms_without_spread_leave_the_error_of_the_reading():
    low, high, error = bootstrap(
        reading(np.ones(100), standard_error=0.5), resamples=20_000, level=0.9
    )
    assert error == 0.5
    assert (low, high) == pytest.approx((1 - 0.5 * 1.645, 1 + 0.5 * 1.645), abs=0.03)
    assert bootstrap(reading(np.ones(100))) == (1.0, 1.0, 0.0)


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_what_is_not_finite_has_no_interval(bad):
    terms = np.ones(10)
    assert np.isnan(bootstrap(reading(terms, value=bad))).all()
    terms[3] = bad
    assert np.isnan(bootstrap(reading(terms, value=1.0))).all()


def test_seed():
    terms = np.random.default_rng(5).normal(size=50)
    assert bootstrap(reading(terms), seed=1) == bootstrap(reading(terms), seed=1)
    assert bootstrap(reading(terms), seed=1) != bootstrap(reading(terms), seed=2)
    # Draws in several parts, to bound memory, are as good as in one.
    long = np.random.default_rng(5).normal(size=30_000)
    assert bootstrap(reading(long)).standard_error == pytest.approx(
        long.std() / math.sqrt(30_000), rel=0.08
    )


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"level": 1.0}, "level must be between 0 and 1, got 1.0"),
        ({"resamples": 1}, "resamples must be at least 2, got 1"),
        ({"groups": [1] * 20}, "at least 2 different labels"),
        ({"groups": [1, 2]}, r"one label for each of 20 rows, got \(2,\)"),
        ({"block_length": 11}, "from 1 to half the 20 rows, got 11"),
        ({"block_length": 0}, "from 1 to half the 20 rows, got 0"),
        ({"block_length": 2, "groups": list(range(20))}, "exclude each other"),
    ],
)
def test_errors(settings, message):
    with pytest.raises(ValueError, match=message):
        bootstrap(reading(np.arange(20.0)), **settings)


def test_training_that_differs_between_folds_widens_the_error():
    """Two folds of rows without spread, at 0 and 1: the rows say 1/√n, the folds ½."""
    splits = [Split(np.arange(0), np.arange(0), rows) for rows in np.split(np.arange(100), 2)]
    apart = Reading(0.5, np.repeat([0.0, 1.0], 50), None, "plug-in")
    # Standard error of the mean of two: √((¼ + ¼) / 1) / √2.
    assert _with_training(apart, splits) == pytest.approx(0.5)
    alike = Reading(0.5, np.tile([0.0, 1.0], 50), None, "plug-in")
    assert _with_training(alike, splits) == pytest.approx(np.sqrt(0.25 * 100 / 99) / 10)


def test_an_interval_does_not_end_below_zero_and_the_value_stays(monkeypatch):
    below = Reading(-1.0, np.tile([-1.1, -0.9], 20), None, "plug-in")
    monkeypatch.setitem(READERS, "ksg", lambda x, y: below)
    rows = np.random.default_rng(0).normal(size=(2, 40))
    estimate = estimate_mi(*rows, "ksg", permutations=0)
    assert estimate.value == -1.0
    assert estimate.interval[0] < -0.9 and estimate.interval[1] == 0.0


@pytest.mark.parametrize(
    ("trained", "high"), [(0.9, 1.0), (0.3, 0.6), (None, 0.6), (math.nan, 0.6)]
)
def test_what_was_not_learned_raises_the_upper_end(trained, high):
    """0.5 nats on new rows, 0.9 on trained ones: 0.4 more above; less on them says nothing."""
    assert _with_learning(Interval(0.4, 0.6, 0.05), 0.5, trained) == (0.4, pytest.approx(high))
    assert _with_learning(Interval(-0.9, -0.8, 0.05), -0.85, None) == (-0.9, 0.0)

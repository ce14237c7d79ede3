"""Intervals over seeds: closed forms, coverage, and what has no interval."""

import math

import numpy as np
import pytest
from scipy import stats

from relatum.probes import Interval, mean_interval, paired_difference


def test_by_hand_with_quantiles_in_closed_form():
    # Mean 2, deviation 1, n = 3; of two degrees P(|T| < t) = t / sqrt(2 + t^2) = 0.95.
    interval = mean_interval([1.0, 2.0, 3.0])
    half = 0.95 * math.sqrt(2 / (1 - 0.95**2)) / math.sqrt(3)
    assert interval.mean == 2.0
    assert interval.low == pytest.approx(2 - half, abs=1e-12)
    assert interval.high == pytest.approx(2 + half, abs=1e-12)
    assert interval.n == 3
    # t(0.95, 1) = tan(0.45 pi): the t-distribution of one degree is Cauchy's.
    two = mean_interval([0.0, 2.0], confidence=0.9)
    assert two.high == pytest.approx(1 + math.tan(0.45 * math.pi), abs=1e-12)


def test_covers_as_often_as_it_says():
    rng = np.random.default_rng(0)
    intervals = [mean_interval(row) for row in rng.normal(0.9, 0.01, size=(2000, 4))]
    covered = np.mean([one.low <= 0.9 <= one.high for one in intervals])
    assert abs(covered - 0.95) < 4 * math.sqrt(0.95 * 0.05 / 2000)


def test_paired_equals_the_paired_t_test():
    rng = np.random.default_rng(1)
    shared = rng.normal(0.8, 0.1, size=6)
    a, b = shared + rng.normal(0.02, 0.005, size=6), shared
    reference = stats.ttest_rel(a, b).confidence_interval(0.95)
    difference = paired_difference(a, b)
    assert (difference.low, difference.high) == pytest.approx(tuple(reference), abs=1e-12)
    assert difference.excludes_zero
    assert not paired_difference(a, a).excludes_zero
    separate = mean_interval(a)
    assert difference.high - difference.low < (separate.high - separate.low) / 5


def test_one_repetition_has_no_interval():
    one = mean_interval([0.5])
    assert one.mean == 0.5
    assert math.isnan(one.low) and math.isnan(one.high)
    assert str(one) == "50.0 % (one repetition, no interval)"
    assert not paired_difference([0.9], [0.1]).excludes_zero


def test_how_it_prints():
    assert str(Interval(0.931, 0.927, 0.935, 5)) == "93.1 ± 0.4 %"
    assert str(Interval(-0.012, -0.016, -0.008, 5, kind="difference")) == "-1.2 ± 0.4 points"
    assert str(mean_interval([0.25, 0.25])) == "25.0 ± 0.0 %"


def test_what_is_refused():
    with pytest.raises(ValueError, match="equally many, got 2 in a and 1 in b"):
        paired_difference([0.1, 0.2], [0.1])
    with pytest.raises(ValueError, match=r"b\[1\] is nan"):
        paired_difference([0.1, 0.2], [0.1, float("nan")])
    with pytest.raises(ValueError, match="values must be a list of at least one number"):
        mean_interval([])
    with pytest.raises(ValueError, match="confidence must lie between 0 and 1, got 95"):
        mean_interval([0.1, 0.2], confidence=95)

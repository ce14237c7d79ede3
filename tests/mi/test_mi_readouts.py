"""Read-outs of relative critics: what a perfect one reads, and what is outside is counted."""

import math

import numpy as np
import pytest
import torch
from scipy import stats

from relatum.mi.readouts import log_ratio_of_mean_score, mean_log_ratio
from relatum.relative import relative_density_ratio

PAPER = (1.0, 1e-4, 1.0)
LEVELS = (2.0, 4.0, 6.0, 8.0, 10.0)
# Means over batches of 128 of the published read-out at the perfect critic of the 20-dimensional
# Gaussian task, computed elsewhere; and their spread.
PUBLISHED = {2.0: (3.73, 0.36), 4.0: (6.20, 0.24), 6.0: (7.65, 0.16), 8.0: (8.68, 0.13),
             10.0: (9.53, 0.14)}  # fmt: skip


def _log_ratios(information, n, seed=0, dim=20):
    """Log r of n pairs of the joint law, by scipy's normal densities."""
    generator = np.random.default_rng(seed)
    rho = math.sqrt(1 - math.exp(-2 * information / dim))
    x = generator.standard_normal((n, dim))
    noise = math.sqrt(1 - rho**2)
    y = rho * x + noise * generator.standard_normal((n, dim))
    given = stats.norm.logpdf(y, rho * x, noise)
    return (given - stats.norm.logpdf(y)).sum(1)


def _perfect(information, n, weights=PAPER, seed=0):
    ratio = torch.from_numpy(np.exp(_log_ratios(information, n, seed)))
    return relative_density_ratio(ratio, *weights)


@pytest.mark.parametrize("information", LEVELS)
def test_the_mean_of_logs_is_the_information_at_the_perfect_critic(information):
    batches, size = 200, 128
    scores = _perfect(information, batches * size)
    reading = mean_log_ratio(scores, *PAPER)
    rho2 = 1 - math.exp(-information / 10)
    spread = math.sqrt(20 * rho2 / size)  # of one batch, exactly
    assert abs(reading.value - information) < 4 * spread / math.sqrt(batches)
    assert (reading.below, reading.above, reading.used) == (0, 0, batches * size)
    each = [mean_log_ratio(part, *PAPER).value for part in scores.split(size)]
    assert abs(np.std(each, ddof=1) / spread - 1) < 0.2


@pytest.mark.parametrize("information", LEVELS)
def test_the_logarithm_of_the_mean_is_what_was_published(information):
    scores = _perfect(information, 200 * 128)
    each = [log_ratio_of_mean_score(part, *PAPER).value for part in scores.split(128)]
    mean, spread = PUBLISHED[information]
    assert abs(np.mean(each) - mean) < 4 * spread / math.sqrt(200) + 0.005
    assert abs(np.std(each) / spread - 1) < 0.2


def test_loops():
    scores, (a, b, g) = np.array([-0.2, 0.0, 0.7, 1.9]), (0.3, 0.5, 0.8)
    logs = [math.log((g * f + a) / (1 - b * f)) for f in scores]
    assert mean_log_ratio(scores, a, b, g).value == pytest.approx(np.mean(logs), rel=1e-12)
    assert np.allclose(mean_log_ratio(scores, a, b, g).pointwise, logs)
    m = scores.mean()
    one = log_ratio_of_mean_score(scores, a, b, g)
    assert one.value == pytest.approx(math.log((g * m + a) / (1 - b * m)), rel=1e-12)
    assert one.pointwise is None


OUTSIDE = np.array([-3.0, -1.0, 0.0, 0.8, 2.0, 5.0, 7.0])  # the range is (−1, 2)
WEIGHTS = (1.0, 0.5, 1.0)


@pytest.mark.parametrize("outside", ["nan", "drop", "end", "published floor"])
def test_scores_without_a_ratio_are_counted_under_every_policy(outside):
    for read in (mean_log_ratio, log_ratio_of_mean_score):
        reading = read(torch.from_numpy(OUTSIDE), *WEIGHTS, outside=outside)
        assert (reading.below, reading.above, reading.outside) == (2, 3, outside)


def test_policies():
    def read(outside):
        return mean_log_ratio(OUTSIDE, *WEIGHTS, outside=outside)

    assert math.isnan(read("nan").value)
    assert np.isnan(read("nan").pointwise).tolist() == [True, True, False, False, True, True, True]
    dropped = read("drop")
    assert dropped.used == 2
    assert dropped.value == pytest.approx(math.log(3) / 2)
    ended = read("end")
    low, high = math.log(1e-4 / (1 + 0.5 * (1 - 1e-4))), math.log((2 * (1 - 1e-4) + 1) / 1e-4)
    truth = [low, low, 0.0, math.log(3), high, high, high]
    assert np.allclose(ended.pointwise, truth)
    assert ended.adjusted == 5
    floored = read("published floor")
    floor = math.log(1e-4)
    assert np.allclose(floored.pointwise[[0, 1, 5, 6]], floor)  # also the most confident pairs
    assert floored.pointwise[4] == math.inf
    assert floored.adjusted == 4


def test_nothing_is_left():
    reading = mean_log_ratio(np.array([5.0]), *WEIGHTS, outside="drop")
    assert math.isnan(reading.value)
    assert reading.used == 0


def test_published_floor_of_a_mean_out_of_range():
    reading = log_ratio_of_mean_score(np.array([1.0, 9.0]), *WEIGHTS, outside="published floor")
    assert reading.value == pytest.approx(math.log(1e-4))
    assert (reading.above, reading.adjusted) == (1, 1)


def test_errors():
    with pytest.raises(ValueError, match="outside must be one of 'nan', 'drop', 'end'.*'clip'"):
        mean_log_ratio(np.zeros(2), *WEIGHTS, outside="clip")
    with pytest.raises(ValueError, match=r"positives must have shape \(n,\), n >= 1, got \(2, 2\)"):
        mean_log_ratio(np.zeros((2, 2)), *WEIGHTS)
    with pytest.raises(ValueError, match=r"epsilon must be in \(0, 1\), got 0"):
        mean_log_ratio(np.zeros(2), *WEIGHTS, outside="end", epsilon=0.0)
    with pytest.raises(ValueError, match="beta and gamma must not both be 0"):
        mean_log_ratio(np.zeros(2), 1.0, 0.0, 0.0)

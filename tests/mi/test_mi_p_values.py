"""P-values where chance can do just as well as what was seen."""

from itertools import permutations

import numpy as np
import pytest

from relatum.mi import discrete, estimate_mi


def test_tables_equal_to_the_one_seen_count_as_reached():
    """Against all orders of six rows; sums round by the order of rows, and must not decide."""
    x, y = np.array([0.0, 0, 0, 1, 1, 1]), np.array([0.0, 1, 1, 2, 2, 0])
    values = [
        discrete(x[:, None], y[list(order)][:, None]).value for order in permutations(range(6))
    ]
    seen = discrete(x[:, None], y[:, None]).value
    exact = np.mean(np.array(values) >= seen - 1e-9)
    found = estimate_mi(x, y, "discrete", permutations=1999, resamples=2)
    assert found.p_value == pytest.approx(exact, abs=4 * np.sqrt(exact * (1 - exact) / 1999))


@pytest.mark.parametrize("length", [24, 30])
def test_a_series_has_no_more_shifts_than_there_are(length):
    """60 rows and blocks of 30 leave one shift, so that p is 1/2 or 1; of 24, 13 shifts."""
    random, count = np.random.default_rng(0), 61 - 2 * length
    for _ in range(5):
        x, y = random.normal(size=(2, 60))
        found = estimate_mi(x, y, "gaussian", block_length=length, resamples=2)
        assert found.permutations == count
        assert found.p_value * (count + 1) == pytest.approx(round(found.p_value * (count + 1)))
        assert found.p_value >= 1 / (count + 1)

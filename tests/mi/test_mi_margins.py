"""Normal scores: what they are, and what they do not change by."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import norm, rankdata

from relatum.mi import NormalScores


def test_scores_of_the_fit_are_normal_quantiles_of_mid_ranks():
    x = np.random.default_rng(0).integers(0, 12, size=(40, 3)).astype(float)
    expected = norm.ppf(rankdata(x, axis=0, method="average") / 41)
    np.testing.assert_allclose(NormalScores.fit(x)(x), expected, atol=1e-12)


@given(st.integers(0, 10**6), st.integers(1, 40))
def test_rising_maps_change_nothing(seed, n):
    rng = np.random.default_rng(seed)
    fit, new = np.round(rng.normal(size=(n, 2)), 1), np.round(rng.normal(size=(9, 2)), 1)
    plain = NormalScores.fit(fit)
    for bent in (lambda z: 1e5 * z - 3, lambda z: z**3, np.exp):
        scores = NormalScores.fit(bent(fit))
        np.testing.assert_array_equal(scores(bent(fit)), plain(fit))
        np.testing.assert_array_equal(scores(bent(new)), plain(new))


@given(st.integers(0, 10**6))
def test_order_is_kept_and_falling_maps_turn_signs(seed):
    rng = np.random.default_rng(seed)
    fit, new = rng.normal(size=(15, 1)), np.sort(rng.normal(scale=3, size=(50, 1)), axis=0)
    scores = NormalScores.fit(fit)(new)
    assert (np.diff(scores[:, 0]) >= 0).all()
    np.testing.assert_allclose(NormalScores.fit(-fit)(-new), -scores, atol=1e-12)


def test_extremes_stay_at_the_ends_of_the_fit():
    fit = np.array([[0.0], [1.0], [5.0]])
    scores = NormalScores.fit(fit)(np.array([[-1e300], [0.0], [0.5], [5.0], [1e300]]))[:, 0]
    assert scores[0] == scores[1] == pytest.approx(norm.ppf(1 / 4))
    assert scores[3] == scores[4] == pytest.approx(norm.ppf(3 / 4))
    assert scores[2] == pytest.approx(norm.ppf(1.5 / 4))  # half way, wherever it lies between


def test_constant_columns_score_zero_and_rows_stay_as_given():
    fit = np.array([[7.0, 1.0], [7.0, 2.0], [7.0, 2.0]])
    before = fit.copy()
    scores = NormalScores.fit(fit)(np.array([[7.0, 2.0], [-1.0, 1.0]]))
    np.testing.assert_array_equal(scores[:, 0], 0.0)
    np.testing.assert_allclose(scores[:, 1], norm.ppf([2.5 / 4, 1 / 4]))
    np.testing.assert_array_equal(fit, before)

"""The integral behind the logistic loss of many negatives, where its value is known."""

import math

import numpy as np
import pytest

from relatum.latent_class.quadrature import expected_logarithms


@pytest.mark.parametrize("k", [1, 300, 10**6, 10**12])
def test_equal_scores_have_a_closed_form(k):
    """All v equal: S = k e^(v - u) without chance, however many negatives there are."""
    v, u = 0.7, np.array([-3.0, 0.0, 0.7, 5.0])
    found = expected_logarithms(np.array([v]), np.ones(1), u, k)
    truth = np.logaddexp(0, math.log(k) + v - u) / math.log(2)
    np.testing.assert_allclose(found, truth, rtol=2e-13)


def test_rare_negatives_lack_mass():
    """One negative that is there with probability w: E log2(1 + S) = w log2(1 + e^(v - u))."""
    found = expected_logarithms(np.array([1.0]), np.array([1e-9]), np.zeros(1), 1)
    np.testing.assert_allclose(found, 1e-9 * np.logaddexp(0, 1.0) / math.log(2), rtol=1e-12)

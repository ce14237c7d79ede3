"""What the paper proves about RPC, on exact laws and by simulation."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from relatum import RPC, density_ratio, log_density_ratio, relative_density_ratio, rpc_bounds
from relatum.relative import (
    brier_score_form,
    least_squares_form,
    optimal_value,
    relative_score,
)
from relatum.scores import from_matrix

weight = st.floats(0.01, 3.0)
any_alpha = st.floats(0.0, 3.0)


@given(ratio=st.floats(0.0, 1e6), alpha=any_alpha, beta=weight, gamma=weight)
def test_lemma_1_range_and_inverse(ratio, alpha, beta, gamma):
    r = torch.tensor(ratio, dtype=torch.float64)
    f = relative_density_ratio(r, alpha, beta, gamma)
    low, high = rpc_bounds(alpha, beta, gamma).score_range
    assert low - 1e-9 <= float(f) <= high + 1e-9
    # The inverse is ill-conditioned near 1/beta: compare through the forward map.
    back = relative_density_ratio(density_ratio(f, alpha, beta, gamma), alpha, beta, gamma)
    torch.testing.assert_close(back, f, rtol=1e-6, atol=1e-9)


def test_two_forms_of_the_ratio():
    f = torch.linspace(-0.9, 30, 50, dtype=torch.float64)
    a, b, g = 1.0, 0.02, 1.0
    other = (g / b + a) / (1 - b * f) - g / b
    torch.testing.assert_close(density_ratio(f, a, b, g), other, rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(log_density_ratio(f, a, b, g), other.log(), rtol=1e-9, atol=1e-9)


def test_no_ratio_outside_the_range():
    outside = torch.tensor([-1.1, 200.1])
    assert log_density_ratio(outside, 1.0, 0.005, 1.0).isnan().all()


@given(
    st.lists(st.floats(-50, 50), min_size=2, max_size=8),
    st.lists(st.floats(-50, 50), min_size=2, max_size=8),
    any_alpha,
    weight,
    weight,
)
def test_least_squares_form_equals_the_objective(p, q, alpha, beta, gamma):
    p, q = (torch.tensor(v, dtype=torch.float64) for v in (p, q))
    direct = (
        p.mean() - alpha * q.mean() - beta / 2 * p.square().mean() - gamma / 2 * q.square().mean()
    )
    found = least_squares_form(p, q, alpha, beta, gamma)
    torch.testing.assert_close(found, direct, rtol=1e-9, atol=1e-7)
    bounds = rpc_bounds(alpha, beta, gamma)
    assert float(direct) <= bounds.value_range[1] + 1e-7  # Proposition 1: any critic whatsoever
    s_p, s_q = (brier_score_form(v, alpha, beta, gamma) for v in (p, q))
    width = 1 / beta + alpha / gamma
    brier = bounds.value_range[1] - width**2 / 2 * (
        beta * (1 - s_p).square().mean() + gamma * s_q.square().mean()
    )
    torch.testing.assert_close(brier, direct, rtol=1e-9, atol=1e-6)


@given(st.integers(0, 10**6), any_alpha, weight, weight)
def test_value_range_on_random_laws(seed, alpha, beta, gamma):
    generator = np.random.default_rng(seed)
    p = generator.dirichlet(np.full(6, 0.3))
    q = generator.dirichlet(np.full(6, 1.0))
    value = float((q * optimal_value(torch.as_tensor(p / q), alpha, beta, gamma).numpy()).sum())
    assert abs(value - 0.5 * ((p - alpha * q) ** 2 / (beta * p + gamma * q)).sum()) < 1e-9 * max(
        1, value
    )
    low, high = rpc_bounds(alpha, beta, gamma).value_range
    assert low - 1e-9 <= value <= high + 1e-9


def test_ends_of_the_value_range_are_attained():
    a, b, g = 0.4, 0.2, 0.7
    low, high = rpc_bounds(a, b, g).value_range
    independent = optimal_value(torch.ones(1, dtype=torch.float64), a, b, g)
    assert abs(float(independent) - low) < 1e-12
    disjoint_p, disjoint_q = 1 / (2 * b), a**2 / (2 * g)  # Q sees r = 0, P sees r = infinity
    assert abs(disjoint_p + disjoint_q - high) < 1e-12


@pytest.mark.parametrize(
    ("weights", "scores", "top"),
    [
        ((1, 0.005, 1), (-1, 200), 100.5),
        ((0, 0.001, 1), (0, 1000), 500),
        ((0.3, 0.01, 0.1), (-3, 100), 50.45),
        ((0.3, 0.001, 0.01), (-30, 1000), 504.5),
        ((1, 0.25, 1), (-1, 4), 2.5),
        ((1, 1e-4, 1), (-1, 10_000), 5000.5),
    ],
)
def test_published_parameter_sheet(weights, scores, top):
    bounds = rpc_bounds(*weights)
    np.testing.assert_allclose(bounds.score_range, scores)
    np.testing.assert_allclose(bounds.value_range[1], top)


def test_term_intervals_are_the_extremes_of_the_terms():
    a, b, g = 0.7, 0.3, 1.2
    bounds = rpc_bounds(a, b, g)
    f = np.linspace(*bounds.score_range, 100_001)
    positive, negative = f - b / 2 * f**2, a * f + g / 2 * f**2
    np.testing.assert_allclose(np.ptp(positive), bounds.positive_term_length, rtol=1e-8)
    np.testing.assert_allclose(np.ptp(negative), bounds.negative_term_length, rtol=1e-8)
    published = max(positive**2) / 10 + max(negative**2) / 20
    np.testing.assert_allclose(bounds.variance_as_published(10, 20), published, rtol=1e-8)
    assert bounds.variance(10, 20) <= bounds.variance_as_published(10, 20)


def test_sharper_variance_is_attained_by_two_end_values():
    a, b, g, n, m = 1.0, 0.5, 1.0, 10, 30
    bounds = rpc_bounds(a, b, g)
    low, high = bounds.score_range
    generator = np.random.default_rng(0)
    # Ends of the *terms*: positives at low/high of f - b/2 f², negatives at 0-slope point and high.
    p = generator.choice([low, high], size=(200_000, n))
    q = generator.choice([-a / g, high], size=(200_000, m))
    value = (p - b / 2 * p**2).mean(1) - (a * q + g / 2 * q**2).mean(1)
    np.testing.assert_allclose(value.var(), bounds.variance(n, m), rtol=0.02)


def test_score_matrix_variance_bound_holds():
    a, b, g, n = 1.0, 0.5, 1.0, 12
    bounds = rpc_bounds(a, b, g)
    low, high = bounds.score_range
    generator = torch.Generator().manual_seed(0)
    values = []
    for _ in range(400):
        x = torch.randn(n, 1, generator=generator, dtype=torch.float64)
        y = 0.8 * x + 0.6 * torch.randn(n, 1, generator=generator, dtype=torch.float64)
        values.append(float(RPC(a, b, g)(from_matrix((3 * x * y.T).clamp(low, high)))))
    assert np.var(values) <= bounds.variance_score_matrix(n)


@pytest.mark.parametrize("weights", [(1.0, 0.1, 1.0), (0.3, 0.5, 0.2), (0.0, 0.05, 1.0)])
def test_large_negatives_are_rare_at_the_optimum(weights):
    """Over laws Q of r with mean 1: the extreme ones sit on two points, 0 and r."""
    a, _, g = weights
    bound = rpc_bounds(*weights).large_negatives_at_optimum()
    r = torch.logspace(0, 8, 4000, dtype=torch.float64)
    f = relative_density_ratio(r, *weights).clamp(min=0)
    assert ((a * f + g / 2 * f.square()).square() / r).max().item() <= bound


def test_deviation_probability():
    bounds = rpc_bounds(1.0, 1.0, 1.0)  # R_A = R_B = 2
    assert math.isclose(bounds.deviation_probability(1.0, 8, 8), 2 * math.exp(-2))
    assert bounds.deviation_probability(0.0, 8, 8) == 1.0


def test_unbounded_corners_are_infinite():
    assert rpc_bounds(0.0, 0.0, 1.0).score_range == (0.0, math.inf)
    assert rpc_bounds(1.0, 0.0, 1.0).variance(5, 5) == math.inf
    with pytest.raises(ValueError, match="beta and gamma must be > 0"):
        least_squares_form(torch.ones(2), torch.ones(2), 1.0, 0.0, 1.0)
    for of in (density_ratio, log_density_ratio):
        assert of(torch.ones(1), 1.0, 0.0, 0.0).isnan().all()
    with pytest.raises(ValueError, match="must not both be 0"):
        relative_density_ratio(torch.ones(1), 1.0, 0.0, 0.0)


@pytest.mark.parametrize(("mi", "wrong"), [(2.0, 3.80), (4.0, 6.23), (6.0, 7.66)])
def test_the_logarithm_belongs_inside_the_mean(mi, wrong):
    """At the perfect critic of the 20-d Gaussian task: the mean of logs is right."""
    rho = math.sqrt(1 - math.exp(-mi / 10))
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(200_000, 20, generator=generator, dtype=torch.float64)
    y = rho * x + math.sqrt(1 - rho**2) * torch.randn(
        200_000, 20, generator=generator, dtype=torch.float64
    )
    log_r = -10 * math.log(1 - rho**2) - (rho**2 * (x**2 + y**2) - 2 * rho * x * y).sum(1) / (
        2 * (1 - rho**2)
    )
    weights = (1.0, 1e-4, 1.0)
    f = relative_density_ratio(log_r.exp(), *weights)
    assert abs(float(log_density_ratio(f, *weights).mean()) - mi) < 0.02
    assert abs(float(log_density_ratio(f.mean(), *weights)) - wrong) < 0.03


@given(st.floats(-30, 30), any_alpha, weight, weight)
def test_score_of_a_log_ratio_is_the_optimal_critic(u, alpha, beta, gamma):
    log_ratio = torch.tensor(u, dtype=torch.float64)
    found = relative_score(log_ratio, alpha, beta, gamma)
    expected = relative_density_ratio(log_ratio.exp(), alpha, beta, gamma)
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-9)


def test_score_of_a_log_ratio_at_the_ends():
    u = torch.tensor([-1e4, -800.0, 0.0, 800.0, 1e4], dtype=torch.float64, requires_grad=True)
    found = relative_score(u, 1.0, 0.25, 2.0)
    low, high = rpc_bounds(1.0, 0.25, 2.0).score_range
    torch.testing.assert_close(
        found, torch.tensor([low, low, 0.0, high, high], dtype=torch.float64), rtol=0, atol=1e-12
    )
    found.sum().backward()
    assert u.grad is not None and u.grad.isfinite().all()
    # (0, 0, 1) is the ratio itself.
    torch.testing.assert_close(relative_score(u[1:3], 0.0, 0.0, 1.0), u[1:3].exp())
    with pytest.raises(ValueError, match="gamma must be > 0"):
        relative_score(u, 1.0, 1.0, 0.0)
    with pytest.raises(ValueError, match="beta must be a finite number >= 0, got -1"):
        relative_score(u, 1.0, -1.0, 1.0)

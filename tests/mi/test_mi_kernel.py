"""The closed form of RPC in product kernels, against double loops over all pairs."""

import math

import numpy as np
import pytest
import torch

from relatum import RPC
from relatum.mi import KernelRatio
from relatum.mi.kernel import _RIDGES
from relatum.objectives import chi_square
from relatum.relative import density_ratio
from relatum.scores import from_matrix

SETTINGS = [(1.0, 0.05, 1.0), (0.5, 0.3, 0.7), (0.0, 0.0, 1.0), (0.0, 0.4, 0.6)]


def pairs(n, dx, dy, seed):
    rng = np.random.default_rng(seed)
    x, y = rng.normal(size=(n, dx)), rng.normal(size=(n, dy))
    y[:, 0] = 0.8 * x[:, 0] + 0.6 * y[:, 0]
    return x, y


def score(fit, x, y):
    """f(x, y) of two single rows, written out."""
    total = 0.0
    for weight, cx, cy in zip(fit.weights, fit.centres_x, fit.centres_y, strict=True):
        left = math.exp(-sum((x - cx) ** 2) / (2 * fit.width_x**2))
        total += weight * left * math.exp(-sum((y - cy) ** 2) / (2 * fit.width_y**2))
    return total


def matrix(fit, x, y):
    return np.array([[score(fit, a, b) for b in y] for a in x])


def objective(scores, relative):
    """J over all pairs, by two loops."""
    alpha, beta, gamma = relative
    n, total = len(scores), 0.0
    for i in range(n):
        for j in range(n):
            f = scores[i, j]
            if i == j:
                total += (f - beta / 2 * f**2) / n
            else:
                total -= (alpha * f + gamma / 2 * f**2) / (n * (n - 1))
    return total


def rpc(relative):
    return chi_square() if relative == (0, 0, 1) else RPC(*relative)


@pytest.fixture(params=SETTINGS, ids=str)
def fitted(request):
    train, held = pairs(30, 1, 2, 0), pairs(25, 1, 2, 1)
    kernel = KernelRatio.fit(*train, held, objective=rpc(request.param), centres=6, seed=3)
    return kernel, train, held


def test_weights_are_where_the_gradient_is_that_of_the_ridge(fitted):
    kernel, (x, y), _ = fitted

    def value(weights):
        moved = KernelRatio(**{**vars(kernel), "weights": weights})
        return objective(matrix(moved, x, y), kernel.relative)

    # J is quadratic, so central differences are exact but for rounding.
    steps = 0.1 * np.eye(6)
    gradient = np.array(
        [(value(kernel.weights + s) - value(kernel.weights - s)) / 0.2 for s in steps]
    )
    ridge = gradient / kernel.weights
    np.testing.assert_allclose(ridge, ridge[0], rtol=1e-4)
    # The ridge is one of those tried, times the mean curvature of J.
    at = value(kernel.weights)
    curvature = [
        -(value(kernel.weights + s) - 2 * at + value(kernel.weights - s)) / 0.01 for s in steps
    ]
    assert np.isclose(ridge[0] / np.mean(curvature), _RIDGES, rtol=1e-3).any()


def test_value_is_the_objective_on_the_validation_rows(fitted):
    kernel, _, (x, y) = fitted
    scores = matrix(kernel, x, y)
    assert kernel.value == pytest.approx(objective(scores, kernel.relative), abs=1e-10)
    by_library = rpc(kernel.relative)(from_matrix(torch.from_numpy(scores)))
    assert kernel.value == pytest.approx(float(by_library), abs=1e-10)


def test_log_ratio_is_that_of_the_score_inside_the_range(fitted):
    kernel, _, (x, y) = fitted
    alpha, beta, gamma = kernel.relative
    low, high = -alpha / gamma, 1 / beta if beta else math.inf
    margin = 0.01 * (high - low) if beta else 0.01
    kept = torch.from_numpy(matrix(kernel, x, y).clip(low + margin, high - margin))
    expected = density_ratio(kept, *kernel.relative).log().numpy()
    found = kernel.matrix(x, y)
    np.testing.assert_allclose(found, expected, atol=1e-9)
    np.testing.assert_allclose(kernel.log_ratio(x, y), np.diag(found), atol=1e-9)
    assert np.isfinite(found).all()


def test_chi_square_case_is_least_squares_importance_fitting():
    """(0, 0, 1): min ½ θᵀ(Ĥ + λ)θ − ĥᵀθ, with Ĥ over negatives and ĥ over positives."""
    x, y = pairs(40, 1, 1, 0)
    kernel = KernelRatio.fit(x, y, pairs(40, 1, 1, 1), objective=chi_square(), centres=5, seed=0)
    basis = np.array(
        [
            [
                [
                    math.exp(-((a - cx) ** 2) / (2 * kernel.width_x**2))
                    * math.exp(-((b - cy) ** 2) / (2 * kernel.width_y**2))
                    for cx, cy in zip(kernel.centres_x[:, 0], kernel.centres_y[:, 0], strict=True)
                ]
                for b in y[:, 0]
            ]
            for a in x[:, 0]
        ]
    )
    off = ~np.eye(40, dtype=bool)
    h = basis[~off].mean(0)
    quadratic = basis[off].T @ basis[off] / off.sum()
    solutions = [
        np.linalg.solve(quadratic + ridge * np.trace(quadratic) / 5 * np.eye(5), h)
        for ridge in _RIDGES
    ]
    assert any(np.allclose(kernel.weights, s, rtol=1e-6, atol=1e-8) for s in solutions)


def test_recovers_a_smooth_ratio():
    x, y = pairs(2000, 1, 1, 0)
    kernel = KernelRatio.fit(x, y, pairs(500, 1, 1, 1), objective=RPC(1.0, 0.05, 1.0))
    new_x, new_y = pairs(2000, 1, 1, 2)
    truth = (0.8 * new_x * new_y - 0.32 * (new_x**2 + new_y**2)) / 0.36 - math.log(0.36) / 2
    assert kernel.log_ratio(new_x, new_y).mean() == pytest.approx(truth.mean(), abs=0.04)

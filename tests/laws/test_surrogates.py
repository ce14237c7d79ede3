"""Hinge and base-2 logistic: constants of the theory against numerical extremes."""

import math

import pytest
import torch

from relatum.surrogates import SURROGATES, softplus

T = torch.linspace(-30, 30, 60_001, dtype=torch.float64)


@pytest.mark.parametrize("name", SURROGATES)
def test_bounds_the_zero_one_error(name):
    loss = SURROGATES[name](T)
    assert SURROGATES[name](torch.zeros((), dtype=torch.float64)).item() == pytest.approx(1.0)
    assert (loss >= (T >= 1e-9).double()).all()


@pytest.mark.parametrize("name", SURROGATES)
def test_lipschitz_constant_is_the_steepest_slope(name):
    slope = SURROGATES[name](T).diff() / T.diff()
    assert slope.abs().max().item() == pytest.approx(SURROGATES[name].lipschitz, rel=1e-6)


@pytest.mark.parametrize(("name", "constant"), [("hinge", 0.57735), ("logistic", 0.83294)])
def test_collision_constant(name, constant):
    assert SURROGATES[name].collision == pytest.approx(constant, abs=1e-5)


@pytest.mark.parametrize("name", SURROGATES)
@pytest.mark.parametrize("radius", [0.3, 0.6, 1.0, 2.5])
def test_oscillation_is_the_range_of_the_loss(name, radius):
    """Scores lie in [−R², R²], so t in [−2R², 2R²]."""
    ends = torch.tensor([-2 * radius**2, 2 * radius**2], dtype=torch.float64)
    low, high = SURROGATES[name](ends).tolist()
    assert SURROGATES[name].oscillation(radius) == pytest.approx(high - low, rel=1e-9)
    with pytest.raises(ValueError, match="radius must be a positive number"):
        SURROGATES[name].oscillation(0.0)


def test_many_negatives():
    v = torch.tensor([[0.5, -1.0], [-3.0, -2.0]], dtype=torch.float64)
    assert SURROGATES["hinge"].many(v).tolist() == [1.5, 0.0]
    expected = [math.log2(1 + math.exp(a) + math.exp(b)) for a, b in v.tolist()]
    assert SURROGATES["logistic"].many(v).tolist() == pytest.approx(expected, rel=1e-12)
    for surrogate in SURROGATES.values():
        none = torch.zeros(3, 0, dtype=torch.float64)
        assert surrogate.many(none).tolist() == [0, 0, 0]
        masked = torch.full((2, 2), -torch.inf, dtype=torch.float64).requires_grad_()
        surrogate.many(masked).sum().backward()
        assert masked.grad.abs().sum() == 0


def test_softplus_is_exact_in_float64():
    t = torch.tensor([19.0, 20.5, 30.0, 45.0, 60.0, -40.0], dtype=torch.float64)
    exact = [v + math.log1p(math.exp(-v)) if v > 0 else math.log1p(math.exp(v)) for v in t.tolist()]
    torch.testing.assert_close(
        softplus(t), torch.tensor(exact, dtype=torch.float64), rtol=1e-15, atol=0
    )

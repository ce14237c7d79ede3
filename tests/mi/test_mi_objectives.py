"""MINE, TUBA and SMILE against loops in float64 and against what their moving parts must do."""

import io
import math

import numpy as np
import pytest
import torch

from relatum import DV, NWJ
from relatum.critics import JointMLP
from relatum.mi.objectives import MINE, SMILE, TUBA, Baselined
from relatum.scores import from_matrix


def _matrix(n=6, scale=2.0):
    return scale * torch.randn(n, n, dtype=torch.float64)


def _off(matrix, g):
    n = len(matrix)
    return np.mean([g(matrix[i, j]) for i in range(n) for j in range(n) if i != j])


def _diagonal(matrix, g):
    return np.mean([g(matrix[i, i]) for i in range(len(matrix))])


def test_values_are_the_loops():
    scores = _matrix()
    s = scores.numpy()
    dv = _diagonal(s, float) - math.log(_off(s, math.exp))
    assert float(MINE()(from_matrix(scores))) == pytest.approx(dv, rel=1e-12)
    assert float(MINE().mutual_information(from_matrix(scores))) == pytest.approx(dv, rel=1e-12)
    tuba = 1 + _diagonal(s, float) - _off(s, math.exp)
    assert float(TUBA()(from_matrix(scores))) == pytest.approx(tuba, rel=1e-12)
    smile = SMILE(1.5)
    clipped = math.log(_off(s, lambda f: math.exp(min(max(f, -1.5), 1.5))))
    read = float(smile.mutual_information(from_matrix(scores)))
    assert read == pytest.approx(_diagonal(s, float) - clipped, rel=1e-12)
    js = -_diagonal(s, lambda f: np.logaddexp(0, -f)) - _off(s, lambda f: np.logaddexp(0, f))
    assert float(smile(from_matrix(scores))) == pytest.approx(js, rel=1e-12)


def test_smile_without_a_clip_is_donsker_varadhan():
    scores = from_matrix(_matrix())
    assert torch.isclose(SMILE(math.inf).mutual_information(scores), DV()(scores))
    with pytest.raises(ValueError, match="tau must be above 0, got 0"):
        SMILE(0.0)


def test_mine_value_average_and_gradient():
    """Positives 1, negatives 0, an average of 10 and rate 0.1: value 1, new average 9.1."""
    scores = torch.eye(2, dtype=torch.float64).requires_grad_()
    mine = MINE(rate=0.1)
    mine.log_average.fill_(math.log(10))
    value = mine(from_matrix(scores))
    value.backward()
    assert value.item() == 1.0
    assert float(mine.log_average.exp()) == pytest.approx(9.1, rel=1e-12)
    assert scores.grad[0, 1] == pytest.approx(-0.5 / 9.1, rel=1e-12)
    assert scores.grad[0, 0] == pytest.approx(0.5, rel=1e-12)


def test_mine_starts_at_the_first_batch_where_its_gradient_is_that_of_dv():
    scores = _matrix().requires_grad_()
    mine = MINE()
    (own,) = torch.autograd.grad(mine(from_matrix(scores)), scores)
    (dv,) = torch.autograd.grad(DV()(from_matrix(scores)), scores)
    assert torch.allclose(own, dv, rtol=1e-12)
    mean = _off(scores.detach().numpy(), math.exp)
    assert float(mine.log_average.exp()) == pytest.approx(mean, rel=1e-12)


def test_mine_stays_in_evaluation_and_travels_in_checkpoints():
    mine, scores = MINE(), from_matrix(_matrix())
    mine.eval()
    mine(scores)
    assert mine.log_average.isnan()  # nothing kept before the first training batch
    mine.train()
    mine(scores)
    kept = float(mine.log_average)
    mine.eval()
    mine(from_matrix(_matrix(scale=9.0)))
    mine.mutual_information(from_matrix(_matrix(scale=9.0)))
    assert float(mine.log_average) == kept
    file = io.BytesIO()
    torch.save(mine.state_dict(), file)
    file.seek(0)
    again = MINE()
    again.load_state_dict(torch.load(file))
    assert float(again.log_average) == kept


def test_mine_average_does_not_overflow():
    mine = MINE()
    scores = 500 * torch.eye(3).flip(0).requires_grad_()
    for _ in range(2):
        value = mine(from_matrix(scores))
        assert torch.isfinite(value)
        assert torch.isfinite(torch.autograd.grad(value, scores)[0]).all()


@pytest.mark.parametrize("rate", [0.0, 1.5, math.nan])
def test_mine_rate(rate):
    with pytest.raises(ValueError, match=r"rate must be in \(0, 1\]"):
        MINE(rate)


def test_tuba_with_its_first_constant_is_nwj():
    critic = JointMLP(2, 3, hidden=(8,)).double()
    x, y = torch.randn(5, 1, 2).double(), torch.randn(1, 5, 3).double()
    plain, shifted = critic(x, y), Baselined(critic)(x, y)
    assert torch.isclose(TUBA()(from_matrix(shifted)), NWJ()(from_matrix(plain)))


def test_baseline_belongs_to_y():
    """log A(y_j) leaves column j, whatever the critic says."""
    critic, baseline = JointMLP(2, 3, hidden=(8,)), torch.nn.Linear(3, 1)
    x, y = torch.randn(5, 2), torch.randn(5, 3)
    removed = critic(x[:, None], y[None]) - Baselined(critic, baseline)(x[:, None], y[None])
    for j in range(5):
        assert torch.allclose(removed[:, j], baseline(y[j]).expand(5), atol=1e-6)
    names = {name for name, _ in Baselined(critic, baseline).named_parameters()}
    assert "constant" not in names


def test_tuba_is_best_at_the_mean_ratio():
    """For f = 0 the best constant A is E_Q e^0 = 1, where the bound is 0; elsewhere it is below."""
    for log_a in (-1.0, 0.5, 2.0):
        assert float(TUBA()(from_matrix(torch.full((4, 4), -log_a)))) < 0
    assert float(TUBA()(from_matrix(torch.zeros(4, 4)))) == 0

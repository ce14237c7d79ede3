"""Critics: factors give the score, one broadcasting call gives every shape, temperatures behave."""

import math

import pytest
import torch
from torch import nn

from relatum import CPC, Bilinear, ContrastiveLoss, Cosine, DotProduct, JointMLP, TwoTower

SEPARABLE = [
    DotProduct(0.7),
    DotProduct(0.5, learn=True),
    Cosine(0.2),
    Cosine(0.3, learn=True),
    Bilinear(3, 3, temperature=2.0),
    TwoTower(nn.Linear(3, 5)),
    TwoTower(nn.Linear(3, 5), nn.Linear(3, 5), temperature=0.4, normalize=True),
]
ALL = [*SEPARABLE, JointMLP(3, 3, hidden=(4, 6))]


@pytest.mark.parametrize("critic", ALL, ids=lambda c: type(c).__name__)
def test_one_call_gives_pairs_matrix_and_own_candidates(critic):
    x, y, own = torch.randn(4, 3), torch.randn(4, 3), torch.randn(4, 2, 3)
    matrix = critic(x[:, None], y[None])
    assert matrix.shape == (4, 4)
    torch.testing.assert_close(critic(x, y), matrix.diagonal())
    for i in range(4):
        for j in range(2):
            torch.testing.assert_close(
                critic(x[:, None], own)[i, j], critic(x[i : i + 1], own[i, j][None])[0]
            )


@pytest.mark.parametrize("critic", SEPARABLE, ids=lambda c: type(c).__name__)
def test_factors_multiply_to_the_score(critic):
    x, y = torch.randn(4, 3), torch.randn(5, 3)
    u, v = critic.factors(x, y)
    torch.testing.assert_close(u @ v.T, critic(x[:, None], y[None]))


@pytest.mark.parametrize("critic", ALL, ids=lambda c: type(c).__name__)
def test_symmetric_says_the_truth(critic):
    x, y = torch.randn(6, 3), torch.randn(6, 3)
    assert critic.symmetric == torch.allclose(critic(x, y), critic(y, x))
    if critic.symmetric:
        u, v = critic.factors(x, x)
        assert u is v


def test_joint_is_the_mlp_of_the_concatenated_pair():
    critic = JointMLP(2, 3, hidden=(4, 5)).double()
    x, y = torch.randn(6, 2).double(), torch.randn(6, 3).double()
    hidden = (torch.cat([x, y], 1) @ critic.first.weight.T + critic.first.bias).relu()
    hidden = (hidden @ critic.rest[1].weight.T + critic.rest[1].bias).relu()
    expected = (hidden @ critic.rest[3].weight.T + critic.rest[3].bias).squeeze(1)
    torch.testing.assert_close(critic(x, y), expected)


def test_published_joint_critic_size():
    assert (
        sum(p.numel() for p in JointMLP(20, 20).parameters()) == 284_161
    )  # the 40-512-512-1 network


def test_cosine_of_extreme_rows():
    """Squares of 1e-30 and 1e30 do not fit in float32; the directions do."""
    x = torch.tensor([[3e-30, 4e-30], [3e30, 4e30], [0.0, 0.0]], requires_grad=True)
    y = torch.tensor([[4.0, 3.0]]).expand(3, 2)
    scores = Cosine(temperature=1.0)(x, y)
    torch.testing.assert_close(scores.detach(), torch.tensor([0.96, 0.96, 0.0]))
    scores.sum().backward()
    assert x.grad.isfinite().all()
    assert x.grad[2].abs().sum() == 0


def test_learned_temperature_is_stored_as_log_scale():
    """log(1/0.07) = 2.6592600369, and the loss of two pairs with cosines 0.5 and 0."""
    critic = Cosine(temperature=0.07, learn=True).double()
    assert abs(float(critic.temperature.log_scale.detach()) - 2.6592600369) < 1e-6
    with torch.no_grad():
        critic.temperature.log_scale.fill_(2.6592600369)
    x = torch.tensor([[1, 0, 0, 0], [0, 1, 0, 0]]).double()
    y = torch.tensor([[0.5, 0, math.sqrt(0.75), 0], [0, 0.5, 0, math.sqrt(0.75)]]).double()
    assert abs(ContrastiveLoss(CPC(), critic, "in_batch")(x, y).item() - 0.0007901781) < 1e-9


def test_learned_temperature_is_capped_and_comes_back():
    """The parameter is moved to the cap, and a gradient that lowers it still does."""
    critic = Cosine(learn=True)
    with torch.no_grad():
        critic.temperature.log_scale.fill_(100.0)
    x = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
    loss = ContrastiveLoss(CPC(), critic, "in_batch")(x, x.flip(0))  # swapped: a colder T is worse
    assert loss.isfinite()
    assert critic.temperature.value >= 0.01 - 1e-9
    loss.backward()
    optimizer = torch.optim.SGD(critic.parameters(), lr=1e-3)
    optimizer.step()
    assert float(critic.temperature.log_scale.detach().exp()) < 100


@pytest.mark.parametrize("bad", [0.0, -1.0, float("nan"), float("inf")])
def test_bad_temperature(bad):
    for critic in (Cosine, DotProduct):
        with pytest.raises(ValueError, match="temperature must be a positive number"):
            critic(temperature=bad)
    with pytest.raises(ValueError, match=r"must start at 0\.01 or above"):
        Cosine(temperature=0.001, learn=True)


def test_bad_sizes():
    with pytest.raises(ValueError, match="dim_y must be at least 1, got 0"):
        Bilinear(3, 0)
    with pytest.raises(ValueError, match="hidden must name at least one width"):
        JointMLP(3, 3, hidden=())

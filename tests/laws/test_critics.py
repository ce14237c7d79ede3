"""Critics: factors give the score, one broadcasting call gives every shape, temperatures behave."""

import math

import pytest
import torch
from torch import nn

from relatum import CPC, RPC, Bilinear, ContrastiveLoss, Cosine, DotProduct, JointMLP, TwoTower
from relatum.scores import from_matrix

# torch's forward derivatives come with a warning of torch's own about torch.
pytestmark = pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated")

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


def _spread(scales, d=3):
    generator = torch.Generator().manual_seed(7)
    rows = torch.randn(len(scales), d, generator=generator, dtype=torch.float64)
    return rows * torch.tensor(scales, dtype=torch.float64)[:, None]


@pytest.mark.parametrize("scales", [[1.0, 0.1, 5.0], [1e-30, 1e-15, 1.0, 1e15, 1e30]])
def test_directions_have_the_derivatives_of_the_formula(scales):
    """First, second and forward-mode derivatives of x / ‖x‖, as float64 computes it written out."""
    critic, y = Cosine(1.0), _spread([1.0] * len(scales)).flip(0)

    def formula(x):
        return ((x / x.norm(dim=1, keepdim=True)) * (y / y.norm(dim=1, keepdim=True))).sum(1)

    x = _spread(scales).requires_grad_()
    tangent = _spread(scales).flip(1)
    found = []
    for score in (lambda x: critic(x, y), formula):
        # A function of the slopes that is neither linear in them nor of one scale.
        (slope,) = torch.autograd.grad((score(x) ** 2).sum(), x, create_graph=True)
        scaled = slope * x.detach().norm(dim=1, keepdim=True)
        (second,) = torch.autograd.grad((scaled**3).sum(), x)
        value, forward = torch.func.jvp(score, (x.detach(),), (tangent,))
        size = x.detach().norm(dim=1, keepdim=True)
        found.append([value, forward, slope.detach() * size, second * size])
    for ours, truth in zip(*found, strict=True):
        torch.testing.assert_close(ours, truth, rtol=1e-9, atol=1e-12)


def test_zero_rows_among_others_have_no_derivative_of_any_order():
    x, y = _spread([1.0, 0.0, 2.0]).requires_grad_(), _spread([3.0, 1.0, 0.0]).requires_grad_()
    critic = Cosine(0.5)
    slopes = torch.autograd.grad((critic(x, y) ** 2).sum(), (x, y), create_graph=True)
    seconds = torch.autograd.grad(sum((s**2).sum() for s in slopes), (x, y))
    for side, zero in zip((*slopes, *seconds), (1, 2, 1, 2), strict=True):
        assert side.isfinite().all()
        assert side[zero].abs().sum() == 0
        assert side[0].abs().sum() > 0


# A learned temperature moves itself back to its cap, which torch.func wants to be told of.
@pytest.mark.parametrize(
    "critic",
    [c for c in ALL if not any("log_scale" in name for name, _ in c.named_parameters())],
    ids=lambda c: type(c).__name__,
)
def test_critics_under_function_transforms(critic):
    """torch.func: gradients of each pair (vmap of grad), and derivatives both ways."""
    x, y = torch.randn(4, 3), torch.randn(4, 3)

    def one(a, b):
        return critic(a[None], b[None])[0]

    leaf = x.clone().requires_grad_()
    (expected,) = torch.autograd.grad(critic(leaf, y).sum(), leaf)
    torch.testing.assert_close(torch.func.vmap(torch.func.grad(one))(x, y), expected)
    torch.testing.assert_close(torch.func.vmap(one)(x, y), critic(x, y))
    torch.testing.assert_close(torch.func.vmap(one, in_dims=(1, 1))(x.T, y.T), critic(x, y))
    tangents = torch.randn(4, 3)
    _, forward = torch.func.jvp(lambda a: critic(a, y), (x,), (tangents,))
    torch.testing.assert_close(forward, (tangents * expected).sum(1))
    for jacobian in (torch.func.jacrev, torch.func.jacfwd):
        rows = jacobian(lambda a: critic(a, y))(x)
        torch.testing.assert_close(torch.stack([rows[i, i] for i in range(4)]), expected)


def test_shapes_of_a_cosine_without_numbers():
    x = torch.empty(5, 3, device="meta")
    assert Cosine().factors(x, x)[0].shape == (5, 3)


class Centre(nn.Module):
    """A layer of one's own that ties rows together."""

    def forward(self, x):
        return x - x.mean(0)


@pytest.mark.parametrize(
    ("layer", "rowwise"),
    [
        (nn.Sequential(nn.Linear(3, 3), nn.Tanh(), nn.LayerNorm(3), nn.Dropout()), True),
        (nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3)), False),
        (nn.LazyBatchNorm1d(), False),
        (nn.TransformerEncoderLayer(4, 2), False),
        (nn.MultiheadAttention(4, 2), False),
        (Centre(), False),
        (nn.Sequential(nn.Linear(3, 3), Centre()), False),
    ],
)
def test_a_tower_is_taken_apart_only_if_its_layers_are_known(layer, rowwise):
    assert TwoTower(layer).rowwise == rowwise
    assert TwoTower(nn.Linear(3, 3), layer).rowwise == rowwise


def test_a_tower_of_ones_own_sees_all_rows():
    """600 rows of 2,048 numbers are taken apart where rows do not meet; these do."""
    x, y = torch.randn(2, 600, 2048) + 1
    loss = ContrastiveLoss(RPC(), TwoTower(Centre(), nn.Identity(), 2048.0), "in_batch")
    scores = (x - x.mean(0)).double() @ y.double().T / 2048
    torch.testing.assert_close(loss.scores(x, y).positives.double(), scores.diagonal(),
                               rtol=1e-4, atol=1e-4)  # fmt: skip
    expected = -RPC()(from_matrix(scores))
    torch.testing.assert_close(loss(x, y).double(), expected, rtol=1e-5, atol=1e-5)

"""Half-precision inputs and autocast regions against float64 of the same numbers."""

import copy
import itertools
import math

import pytest
import torch

from relatum import OBJECTIVES, Bilinear, ContrastiveLoss, Cosine, DotProduct, JointMLP
from relatum.products import linear, matmul
from relatum.scores import holding

N, D = 12, 8
CRITICS = {
    "dot": lambda t: DotProduct(2 * D * t),
    "cosine": lambda t: Cosine(t),
    "cosine-learned": lambda t: Cosine(t, learn=True),
    "bilinear": lambda t: Bilinear(D, D, temperature=2 * D * t),
    "joint": lambda t: JointMLP(D, D, hidden=(8, 8)),
}
HALVES = [torch.bfloat16, torch.float16]
STRATEGIES = {"dense": (None, False), "tiled": (5, False), "gram": (None, True)}


def _value_and_gradients(loss, tensors, half=None):
    """Forward *and* backward inside the autocast region, where a careless product would round."""
    tensors = [t.clone().requires_grad_() for t in tensors]
    x, y, *given = tensors
    keywords = {"negatives": given[0]} if loss.pairing is None else {}
    with torch.autocast("cpu", dtype=half, enabled=half is not None):
        value = loss(x, y, **keywords)
        value.backward()
    wanted = tensors if loss.pairing is None else tensors[:2]
    return value.detach(), [t.grad for t in [*wanted, *loss.critic.parameters()]]


def _cases(name, temperature, monkeypatch):
    """A float32 loss of every kind, its float64 twin, and what an overflow of it would be."""
    torch.manual_seed(1)
    critic = CRITICS[name](temperature)
    exact = copy.deepcopy(critic).double()
    pairings = ["two_view" if critic.symmetric else "in_batch", "in_batch_symmetric", None]
    for objective, pairing, strategy in itertools.product(OBJECTIVES, pairings, STRATEGIES):
        block_size, gram = STRATEGIES[strategy]
        if gram and (objective not in ("rpc", "chi2") or name == "joint"):
            continue
        monkeypatch.setattr(holding, "gram_pays", lambda *_, gram=gram: gram)
        for parameter in (*critic.parameters(), *exact.parameters()):
            parameter.grad = None
        made = [ContrastiveLoss(OBJECTIVES[objective](), c, pairing, block_size)
                for c in (critic, exact)]  # fmt: skip
        yield f"{objective}, {pairing}, {strategy}", objective, *made


def _check_value(value, truth, objective, what):
    assert value.dtype == torch.float32, what
    # e^f has the relative error |f| eps, and NWJ is such an exponential: 1e27 of a score of 62.
    bound = 3e-5 if objective == "nwj" else 1e-5
    assert abs(value.double() - truth) <= bound * max(1, abs(truth)), what


@pytest.mark.parametrize("temperature", [0.5, 0.01])
@pytest.mark.parametrize("critic", CRITICS)
@pytest.mark.parametrize("half", HALVES, ids=str)
def test_inside_autocast_nothing_is_rounded_to_half(half, critic, temperature, monkeypatch):
    """float32 inputs: value and every gradient are float32's, far from the 4e-3 of bfloat16."""
    torch.manual_seed(2)
    tensors = [torch.randn(N, D), torch.randn(N, D), torch.randn(N, 5, D)]
    wide = [t.double() for t in tensors]
    for what, objective, loss, exact in _cases(critic, temperature, monkeypatch):
        value, gradients = _value_and_gradients(loss, tensors, half)
        truth, slopes = _value_and_gradients(exact, wide)
        _check_value(value, truth, objective, what)
        for found, slope in zip(gradients, slopes, strict=True):
            if slope is not None:
                # Sums that cancel, as those of a bias, are judged by what is summed.
                scale = max(float(slope.norm()), 1e-2)
                assert (found.double() - slope).norm() <= 5e-5 * scale, what


@pytest.mark.parametrize("temperature", [0.5, 0.01])
@pytest.mark.parametrize("critic", CRITICS)
@pytest.mark.parametrize("half", HALVES, ids=str)
def test_half_inputs_cost_one_rounding_of_the_gradient(half, critic, temperature, monkeypatch):
    """The value is float32's. The gradient is exact up to the type in which inputs keep it."""
    torch.manual_seed(2)
    tensors = [torch.randn(shape).to(half) for shape in ((N, D), (N, D), (N, 5, D))]
    wide = [t.double() for t in tensors]
    kind = torch.finfo(half)
    for what, objective, loss, exact in _cases(critic, temperature, monkeypatch):
        value, gradients = _value_and_gradients(loss, tensors)
        truth, slopes = _value_and_gradients(exact, wide)
        _check_value(value, truth, objective, what)
        for found, slope in zip(gradients[:2], slopes[:2], strict=True):
            assert found.dtype == half
            largest = slope.abs().max()
            if largest > kind.max:  # NWJ at a low temperature: its slope does not fit, and says so
                assert objective == "nwj" and not found.isfinite().all()
                continue
            if critic == "joint":  # its inputs meet in several places, each of which rounds
                assert (found.double() - slope).norm() <= 2 * kind.eps * slope.norm(), what
                continue
            # Half a unit in the last place of each number; the smallest are spaced evenly.
            allowed = kind.eps / 2 * slope.abs() + kind.smallest_normal * kind.eps / 2
            assert ((found.double() - slope).abs() <= allowed + 3e-5 * largest).all(), what


@pytest.mark.parametrize("half", HALVES, ids=str)
def test_gradients_of_many_blocks_are_not_summed_in_half(half):
    """A candidate has a share of its gradient from each of 512 blocks."""
    x, y = torch.randn(512, D).to(half), torch.randn(512, D).to(half)
    critic = JointMLP(D, D, hidden=(8,))
    loss = ContrastiveLoss(OBJECTIVES["js"](), critic, "in_batch", block_size=1)
    exact = ContrastiveLoss(OBJECTIVES["js"](), copy.deepcopy(critic).double(), "in_batch")
    _, gradients = _value_and_gradients(loss, [x, y])
    _, slopes = _value_and_gradients(exact, [x.double(), y.double()])
    for found, slope in zip(gradients[:2], slopes[:2], strict=True):
        assert (found.double() - slope).norm() <= 2 * torch.finfo(half).eps * slope.norm()


@pytest.mark.parametrize("half", HALVES, ids=str)
def test_a_critic_with_half_weights_scores_blocks_as_it_scores_all(half):
    critic = JointMLP(D, D, hidden=(8,)).to(half)
    x, y = torch.randn(2, N, D).to(half)
    for pairing in ("in_batch", "in_batch_symmetric"):
        whole, blocks = (ContrastiveLoss(OBJECTIVES["js"](), critic, pairing, b)(x, y)
                         for b in (None, 5))  # fmt: skip
        torch.testing.assert_close(whole, blocks, rtol=1e-6, atol=1e-6)


def test_small_gradients_of_float16_inputs_vanish_without_a_scaler():
    """What the guide says: float16 holds nothing below 6e-8, and a scaled loss brings it back."""
    x = torch.eye(8, dtype=torch.float16)
    y = x + 0.125
    loss = ContrastiveLoss(OBJECTIVES["cpc"](), Cosine(0.05), "in_batch")

    def slope(x, scale=1.0):
        x = x.clone().requires_grad_()
        return torch.autograd.grad(scale * loss(x, y), x)[0].double() / scale

    truth = slope(x.double())
    plain, scaled = ((slope(x, scale) - truth).norm() / truth.norm() for scale in (1.0, 2.0**16))
    assert 0 < truth.abs().max() < 1e-6
    assert plain > 0.01
    assert scaled < 1e-3


@pytest.mark.parametrize("block_size", [None, 2])
def test_nwj_beyond_float32_is_infinite_and_not_clamped(block_size):
    """−J = E_Q exp(f − 1) − E_P f: at f = 88 it is e^87 − 88, at f = 95 no float32."""
    ones = torch.ones(4, 1)
    for score, expected in ((88.0, math.exp(87)), (95.0, math.inf)):
        loss = ContrastiveLoss(OBJECTIVES["nwj"](), DotProduct(1 / score), "in_batch", block_size)
        assert loss(ones, ones).item() == pytest.approx(expected, rel=3e-5)


def test_products_have_every_derivative_under_autocast():
    a, b = torch.randn(3, 4), torch.randn(4, 5)
    weight, bias = torch.randn(2, 5), torch.randn(2)
    tensors = [t.double().requires_grad_() for t in (a, b, weight, bias)]

    def through(a, b, weight, bias):
        return linear(matmul(a, b)[None].tanh(), weight, bias)

    with torch.autocast("cpu", dtype=torch.bfloat16):
        torch.testing.assert_close(
            through(a, b, weight, bias), ((a.double() @ b.double()).tanh() @ weight.double().T
            + bias)[None].float(),
        )  # fmt: skip
        assert torch.autograd.gradcheck(through, tensors)
        assert torch.autograd.gradgradcheck(through, tensors)

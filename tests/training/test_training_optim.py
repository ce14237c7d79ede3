"""Optimisers against explicit loops, the schedule against numbers worked out by hand."""

import math

import numpy as np
import pytest
import torch
from torch import nn

from relatum.training import LARS, OPTIMIZERS, build_optimizer, warmup_cosine
from relatum.training.optim import parameter_groups


def lars_by_hand(weights, gradients, *, rate, momentum, decay, trust, adapt):
    """The update of one tensor over several steps, as SimCLRv2 does it."""
    w, v = weights.copy(), np.zeros_like(weights)
    for gradient in gradients:
        total = gradient + decay * w
        norm_w, norm_g = np.sqrt((w**2).sum()), np.sqrt((total**2).sum())
        local = trust * norm_w / norm_g if adapt and norm_w > 0 and norm_g > 0 else 1.0
        v = momentum * v + rate * local * total
        w = w - v
    return w


@pytest.mark.parametrize("adapt", [True, False])
@pytest.mark.parametrize("start", [1.0, 0.0])
def test_lars_equals_the_formula(adapt, start):
    generator = torch.Generator().manual_seed(0)
    weight = nn.Parameter(start * torch.randn(4, 3, generator=generator, dtype=torch.float64))
    gradients = [torch.randn(4, 3, generator=generator, dtype=torch.float64) for _ in range(5)]
    expected = lars_by_hand(
        weight.detach().numpy(),
        [g.numpy() for g in gradients],
        rate=0.7, momentum=0.9, decay=0.01, trust=0.001, adapt=adapt,
    )  # fmt: skip
    optimizer = LARS([{"params": [weight], "adapt": adapt}], lr=0.7, weight_decay=0.01)
    for gradient in gradients:
        weight.grad = gradient.clone()
        optimizer.step()
    np.testing.assert_allclose(weight.detach().numpy(), expected, rtol=1e-12, atol=1e-14)


def test_the_built_lars_is_the_reference_with_its_exclusions():
    """Convolutions and matrices decay and adapt; normalisations and biases do neither."""
    torch.manual_seed(0)
    network = nn.Sequential(
        nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(16, 2), nn.BatchNorm1d(2)
    ).double()
    for parameter in network.parameters():
        nn.init.normal_(parameter)
    optimizer = build_optimizer("lars", [network], learning_rate=0.1, weight_decay=0.02)
    rates = [warmup_cosine(step, base=2.0, warmup=3, total=8) for step in range(8)]
    start = {name: p.detach().numpy().copy() for name, p in network.named_parameters()}
    gradients = {name: [] for name in start}
    for rate in rates:
        for group in optimizer.param_groups:
            group["lr"] = rate
        optimizer.zero_grad()
        network(torch.randn(6, 3, 4, 4, dtype=torch.float64)).square().sum().backward()
        for name, p in network.named_parameters():
            gradients[name].append(p.grad.numpy().copy())
        optimizer.step()
    matrices = {"0.weight", "3.weight"}
    for name, p in network.named_parameters():
        w, v = start[name].copy(), np.zeros_like(start[name])
        for rate, gradient in zip(rates, gradients[name], strict=True):
            local, total = 1.0, gradient
            if name in matrices:
                total = gradient + 0.02 * w
                local = 0.001 * math.sqrt((w**2).sum()) / math.sqrt((total**2).sum())
            v = 0.9 * v + rate * local * total
            w = w - v
        np.testing.assert_allclose(p.detach().numpy(), w, rtol=1e-10, err_msg=name)


def test_lars_with_zero_gradient_stays_finite():
    weight = nn.Parameter(torch.ones(3, 3))
    weight.grad = torch.zeros(3, 3)
    LARS([weight], lr=1.0).step()
    assert torch.equal(weight, torch.ones(3, 3))


def test_lars_refuses_impossible_numbers():
    weight = nn.Parameter(torch.ones(1))
    with pytest.raises(ValueError, match=r"momentum must be in \[0, 1\), got 1"):
        LARS([weight], lr=1.0, momentum=1)
    with pytest.raises(ValueError, match="trust must be positive, got 0"):
        LARS([weight], lr=1.0, trust=0)


def test_vectors_are_excluded_from_decay_and_adaptation():
    network = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(4, 2))
    decayed, free = parameter_groups([network], 0.1)
    assert [p.ndim for p in decayed["params"]] == [4, 2]
    assert [tuple(p.shape) for p in free["params"]] == [(4,), (4,), (4,), (2,)]
    assert (decayed["weight_decay"], free["weight_decay"]) == (0.1, 0.0)
    assert free["adapt"] is False


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_bias_without_gradient_direction_does_not_move(name):
    """With zero gradients only decay could move a parameter: weights move, biases do not."""
    layer = nn.Linear(2, 2)
    nn.init.ones_(layer.weight)
    nn.init.ones_(layer.bias)
    optimizer = build_optimizer(name, [layer], learning_rate=0.1, weight_decay=0.5)
    for parameter in layer.parameters():
        parameter.grad = torch.zeros_like(parameter)
    optimizer.step()
    assert torch.equal(layer.bias, torch.ones(2))
    assert bool((layer.weight < 1).all())


def test_unknown_optimizer_and_negative_rate():
    with pytest.raises(ValueError, match="unknown optimizer 'adm'; known: adamw, sgd, lars"):
        build_optimizer("adm", [nn.Linear(1, 1)], learning_rate=0.1, weight_decay=0.0)
    with pytest.raises(ValueError, match=r"at least 0, got -0\.1"):
        build_optimizer("sgd", [nn.Linear(1, 1)], learning_rate=-0.1, weight_decay=0.0)


def test_schedule_by_hand():
    rates = [warmup_cosine(step, base=0.1, warmup=10, total=100) for step in range(100)]
    assert rates[:10] == pytest.approx([0.01 * (step + 1) for step in range(10)])
    assert rates[10] == pytest.approx(0.1)
    assert rates[50] == pytest.approx(0.0586824089, abs=5e-11)
    assert rates[55] == pytest.approx(0.05)
    assert rates[99] == pytest.approx(0.05 * (1 + math.cos(math.pi * 89 / 90)))
    assert warmup_cosine(100, base=0.1, warmup=10, total=100) == pytest.approx(0.0)
    assert warmup_cosine(0, base=0.1, warmup=0, total=100) == pytest.approx(0.1)
    assert warmup_cosine(9, base=0.1, warmup=10, total=10) == pytest.approx(0.1)


def test_schedule_refuses_a_warmup_longer_than_the_training():
    with pytest.raises(ValueError, match="warmup must be in"):
        warmup_cosine(0, base=0.1, warmup=11, total=10)

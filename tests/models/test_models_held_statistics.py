"""Batch normalisation by held statistics: the function of one image that training has."""

import pytest
import torch
from torch import nn

from relatum.models import held_statistics
from relatum.penalty import gradient_penalty


class Mean(nn.Module):
    def forward(self, x):
        return x.mean(dim=(2, 3))


@pytest.fixture
def network():
    """Smooth, for finite differences; one layer without offset, one without a scale either."""
    torch.manual_seed(0)
    parts = [
        nn.Conv2d(3, 6, 3), nn.BatchNorm2d(6), nn.Softplus(), nn.Conv2d(6, 5, 3),
        nn.BatchNorm2d(5, affine=False), nn.Tanh(), Mean(), nn.Linear(5, 4), nn.BatchNorm1d(4),
    ]  # fmt: skip
    network = nn.Sequential(*parts).double()
    nn.init.uniform_(network[1].weight, 0.5, 2)
    network[8].bias = None
    return network


@pytest.fixture
def rows():
    return torch.rand(32, 3, 8, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


def test_rows_are_mapped_as_in_training_but_each_by_itself(network, rows):
    expected = network.train()(rows)
    buffers = {name: value.clone() for name, value in network.named_buffers()}
    for training in (True, False):
        network.train(training)
        with held_statistics([network], lambda: network(rows)):
            torch.testing.assert_close(network(rows), expected)
            torch.testing.assert_close(network(rows[3:4]), expected[3:4])
    for name, value in network.named_buffers():
        torch.testing.assert_close(value, buffers[name], rtol=0, atol=0)
    torch.testing.assert_close(network.train()(rows), expected)  # and nothing is left behind


def penalty(network, rows, *, held):
    """Of pairs of rows, as WPC takes it."""

    def score(x, y):
        u, v = network(torch.cat([x, y])).chunk(2)
        return 20 * nn.functional.cosine_similarity(u, v)

    x, y = rows.chunk(2)
    if not held:
        return gradient_penalty(score, x, y)
    with held_statistics([network], lambda: network(rows)):
        return gradient_penalty(score, x, y)


def first(network):
    return next(network.parameters())


def test_smaller_weights_before_a_normalisation_meet_no_bound(network, rows):
    """The function in training does not change; that of the running statistics gets flatter."""
    network.train()
    for _ in range(200):  # running statistics are those of the rows
        network(rows)
    network.eval()
    before = {held: float(penalty(network, rows, held=held).detach()) for held in (True, False)}
    assert before[True] > 0.1
    assert before[False] == pytest.approx(before[True], rel=0.2)
    with torch.no_grad():
        for part in network.modules():
            if isinstance(part, nn.Conv2d):
                part.weight /= 2
    after = {held: float(penalty(network, rows, held=held).detach()) for held in (True, False)}
    assert after[True] == pytest.approx(before[True], rel=1e-2)
    assert after[False] < 0.1 * before[False]
    # So its gradient does not ask for smaller weights: it is orthogonal to them.
    loss = penalty(network, rows, held=True)
    (slope,) = torch.autograd.grad(loss, [first(network)])
    weight = first(network).detach()
    assert abs(float((slope * weight).sum())) < 1e-2 * float(slope.norm() * weight.norm())


def test_the_gradient_by_the_weights_is_that_of_finite_differences(network, rows):
    """Statistics move with the weights."""
    network.eval()
    loss = penalty(network, rows, held=True)
    (slope,) = torch.autograd.grad(loss, [first(network)])
    direction = torch.randn(slope.shape, dtype=torch.float64,
                            generator=torch.Generator().manual_seed(2))  # fmt: skip
    values, h = [], 1e-5
    for sign in (1, -1):
        with torch.no_grad():
            first(network).add_(sign * h * direction)
        values.append(float(penalty(network, rows, held=True).detach()))
        with torch.no_grad():
            first(network).sub_(sign * h * direction)
    assert (values[0] - values[1]) / (2 * h) == pytest.approx(
        float((slope * direction).sum()), rel=1e-5
    )


def test_what_a_batch_did_not_go_through_is_named(network, rows):
    with (
        pytest.raises(RuntimeError, match="saw nothing of the batch"),
        held_statistics([network], lambda: None),
    ):
        network(rows)
    with (
        pytest.raises(RuntimeError, match="used twice in one run"),
        held_statistics([network], lambda: [network(rows), network(rows)]),
    ):
        pass
    network(rows)

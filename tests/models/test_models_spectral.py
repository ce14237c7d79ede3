"""Spectral normalisation: what follows for a layer, and what a normalisation behind it undoes."""

import pytest
import torch
from torch import nn

from relatum.models import ProjectionHead, build_encoder, spectrally_normalized


def settled(network, x):
    """After enough passes in training mode for the power iteration."""
    with torch.no_grad():
        for _ in range(200):
            network(x)
    return network.eval()


def operator_norm(network, *shape):
    """Largest singular value of a linear map, from its whole matrix."""
    x = torch.zeros(1, *shape, dtype=torch.float64)
    matrix = torch.autograd.functional.jacobian(lambda v: network(v).flatten(), x)
    return float(torch.linalg.matrix_norm(matrix.flatten(1), 2))


def test_a_dense_layer_has_norm_one():
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(7, 5, dtype=torch.float64))
    spectrally_normalized(network)
    settled(network, torch.randn(3, 7, dtype=torch.float64))
    assert operator_norm(network, 7) == pytest.approx(1, abs=1e-6)


@pytest.mark.parametrize(("stride", "least", "most"), [(1, 2.5, 3), (2, 1.2, 2), (3, 0.99, 1)])
def test_a_convolution_has_norm_up_to_its_overlap(stride, least, most):
    """A kernel of ones: as the matrix of one row it is divided by 3, but windows overlap."""
    network = nn.Sequential(nn.Conv2d(1, 1, 3, stride, bias=False, dtype=torch.float64))
    nn.init.ones_(network[0].weight)
    spectrally_normalized(network)
    settled(network, torch.randn(1, 1, 12, 12, dtype=torch.float64))
    assert least < operator_norm(network, 1, 12, 12) <= most + 1e-6


def test_normalisation_behind_a_layer_undoes_it():
    """The caveat, as a law: with batch normalisation everywhere the function is as before."""
    torch.manual_seed(0)
    network = nn.Sequential(build_encoder("conv-small", image_size=16), ProjectionHead(128, 32, 8))
    for module in network.modules():
        if isinstance(module, nn.Linear | nn.Conv2d):
            nn.init.normal_(module.weight)  # so that epsilon is nothing beside the variances
    network = network.double()
    images = torch.rand(6, 3, 16, 16, dtype=torch.float64)
    before = network(images)
    spectrally_normalized(network)
    assert float(network[1].layers[0].weight.detach().norm(2)) < 6  # divided all the same
    torch.testing.assert_close(network(images), before, rtol=1e-2, atol=1e-2)


def test_without_normalisation_it_binds():
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(6, 20), nn.ReLU(), nn.Linear(20, 4)).double()
    for p in network.parameters():
        nn.init.normal_(p)
    x, y = torch.randn(2, 400, 6, dtype=torch.float64)

    def steepest():
        with torch.no_grad():
            return float(((network(x) - network(y)).norm(dim=1) / (x - y).norm(dim=1)).max())

    assert steepest() > 5
    spectrally_normalized(network)
    settled(network, x)
    assert steepest() <= 1

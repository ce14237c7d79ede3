"""Diagnostics against closed forms and explicit loops, at their edges and under autograd."""

import math

import numpy as np
import pytest
import torch

from relatum import diagnostics
from relatum.diagnostics import alignment, effective_rank, participation_ratio, uniformity

ALL = {
    "alignment": lambda z: alignment(z, z.flip(0)),
    "uniformity": uniformity,
    "effective_rank": effective_rank,
    "effective_rank_centred": lambda z: effective_rank(z, centred=True),
    "participation_ratio": participation_ratio,
}


def sample(n=30, d=6):
    return torch.randn(n, d, dtype=torch.float64, generator=torch.Generator().manual_seed(0))


def unit(z):
    rows = z.numpy()
    return rows / np.sqrt((rows**2).sum(axis=1, keepdims=True))


def test_alignment_is_the_mean_squared_distance():
    x, y = sample(), sample().flip(0) + 0.3
    expected = np.mean([sum((a - b) ** 2) for a, b in zip(unit(x), unit(y), strict=True)])
    assert alignment(x, y).item() == pytest.approx(expected, abs=1e-14)
    cosines = torch.nn.functional.cosine_similarity(x, y)
    assert alignment(x, y).item() == pytest.approx((2 - 2 * cosines).mean().item(), abs=1e-14)
    assert alignment(x, -x).item() == pytest.approx(4, abs=1e-14)


def test_equal_views_have_distance_zero_and_a_finite_gradient():
    x = torch.randn(100, 64, requires_grad=True)
    value = alignment(x, 3 * x.detach())
    value.backward()
    assert 0 <= value.item() < 1e-12
    assert alignment(x, x.detach()).item() == 0
    assert x.grad.isfinite().all()


@pytest.mark.parametrize("block", [1, 7, 30, 1024])
def test_uniformity_is_the_loop_over_pairs(block, monkeypatch):
    monkeypatch.setattr(diagnostics, "_BLOCK", block)
    z, t = sample(), 1.7
    rows = unit(z)
    pairs = [
        math.exp(-t * ((rows[i] - rows[j]) ** 2).sum())
        for i in range(30)
        for j in range(30)
        if i != j
    ]
    assert uniformity(z, t=t).item() == pytest.approx(math.log(sum(pairs) / 870), abs=1e-12)


def test_uniformity_of_known_configurations():
    # The corners of a simplex of d + 1 points all have cosine -1/d.
    eye = torch.eye(5, dtype=torch.float64)
    assert uniformity(eye).item() == pytest.approx(-4, abs=1e-13)
    assert uniformity(eye - 0.2).item() == pytest.approx(-4 * (1 + 1 / 4), abs=1e-13)
    # A uniform circle: log of the mean of e^{-4 (1 - cos)} = log(e^{-4} I_0(4)).
    angles = torch.arange(4001, dtype=torch.float64) * 2 * math.pi / 4001
    circle = torch.stack([angles.cos(), angles.sin()], dim=1)
    continuous = math.log(math.exp(-4) * np.i0(4))
    assert uniformity(circle).item() == pytest.approx(continuous, abs=2e-3)


def test_collapse_is_seen_and_harmless():
    z = torch.full((50, 64), 0.1, requires_grad=True)
    value = uniformity(z)
    value.backward()
    assert -1e-5 < value.item() <= 0
    assert z.grad.isfinite().all()
    # Large t: e^{-t d} of a pair far apart underflows, its logarithm must not.
    assert uniformity(torch.tensor([[1.0], [-1.0]]), t=1e4).item() == -4e4


@pytest.mark.parametrize("scale", [1e-30, 1e-3, 1e30])
@pytest.mark.parametrize("name", ALL)
def test_the_scale_does_not_matter(name, scale):
    for z in (sample(), sample().float()):
        value = ALL[name]((z.double() * scale).to(z.dtype)).item()
        assert value == pytest.approx(ALL[name](z).item(), rel=1e-5)


@pytest.mark.parametrize("centred", [False, True])
def test_effective_rank_is_the_entropy_of_the_singular_values(centred):
    z = sample() + 2
    matrix = z.numpy() - (z.numpy().mean(axis=0) if centred else 0)
    values = np.sqrt(np.linalg.eigvalsh(matrix.T @ matrix))
    p = values / values.sum()
    expected = math.exp(-(p * np.log(p)).sum())
    assert effective_rank(z, centred=centred).item() == pytest.approx(expected, rel=1e-12)


def test_effective_rank_of_known_spectra():
    basis = torch.linalg.qr(sample(30, 4)).Q  # four equal singular values
    assert effective_rank(basis @ torch.eye(4, 9, dtype=torch.float64)).item() == pytest.approx(4)
    two = torch.diag(torch.tensor([3.0, 1.0, 0.0], dtype=torch.float64))
    assert effective_rank(two).item() == pytest.approx(4 / 3**0.75, rel=1e-12)
    assert effective_rank(sample()).item() <= 6


def test_participation_ratio_is_that_of_the_covariance():
    z = sample() * torch.tensor([5.0, 3.0, 1.0, 1.0, 0.5, 0.1]) + 7
    covariance = np.cov(z.numpy().T)
    expected = np.trace(covariance) ** 2 / (covariance**2).sum()
    assert participation_ratio(z).item() == pytest.approx(expected, rel=1e-12)
    matrix = z.numpy().T @ z.numpy()
    uncentred = np.trace(matrix) ** 2 / (matrix**2).sum()
    assert participation_ratio(z, centred=False).item() == pytest.approx(uncentred, rel=1e-12)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("value", [0.1, -3.7, 1e-20])
def test_ranks_of_equal_embeddings(dtype, value):
    row = torch.arange(1, 65, dtype=dtype) * value
    z = row.repeat(1000, 1)
    assert effective_rank(z).item() == pytest.approx(1, abs=1e-6)
    assert participation_ratio(z, centred=False).item() == pytest.approx(1, abs=1e-6)
    assert effective_rank(z, centred=True).item() == 0
    assert participation_ratio(z).item() == 0
    assert participation_ratio(z).ndim == 0


def test_zero_embeddings():
    zeros = torch.zeros(4, 3)
    assert effective_rank(zeros).item() == 0
    assert participation_ratio(zeros).item() == 0
    assert uniformity(zeros).item() == 0
    assert alignment(zeros, zeros).item() == 0
    # A zero row sits at the origin: squared distance 1 to every unit vector.
    z = torch.tensor([[0.0, 0.0], [3.0, 4.0]], requires_grad=True)
    value = uniformity(z)
    value.backward()
    assert value.item() == pytest.approx(-2, abs=1e-6)
    assert z.grad.isfinite().all()
    assert alignment(z[:1], z[1:]).item() == pytest.approx(1, abs=1e-6)


def test_gradients():
    x, y = sample(6, 3).requires_grad_(), sample(6, 3).flip(1).requires_grad_()
    assert torch.autograd.gradcheck(alignment, (x, y))
    assert torch.autograd.gradcheck(uniformity, (x,))
    assert not effective_rank(x).requires_grad


@pytest.mark.parametrize("name", ALL)
def test_types_of_values(name):
    z = sample()
    assert ALL[name](z).dtype == torch.float64
    half = ALL[name](z.bfloat16())
    assert half.dtype == torch.float32
    assert half.item() == pytest.approx(ALL[name](z.bfloat16().double()).item(), rel=1e-5)
    with pytest.raises(TypeError, match=r"must hold floating point embeddings, got torch\.int64"):
        ALL[name](z.long())


@pytest.mark.parametrize("name", ALL)
def test_bad_values_are_named(name):
    z = sample()
    z[3, 1] = float("nan")
    with pytest.raises(ValueError, match="row 3, column 1 is nan"):
        ALL[name](z)
    with pytest.raises(ValueError, match=r"must be a matrix .* got \(5,\)"):
        ALL[name](torch.zeros(5))
    with pytest.raises(ValueError, match=r"must be a matrix .* got \(0, 5\)"):
        ALL[name](torch.zeros(0, 5))


def test_bad_arguments():
    with pytest.raises(ValueError, match=r"one shape, got \(3, 2\) and \(2, 2\)"):
        alignment(torch.ones(3, 2), torch.ones(2, 2))
    with pytest.raises(ValueError, match="at least two embeddings, got 1"):
        uniformity(torch.ones(1, 2))
    with pytest.raises(ValueError, match="t must be positive and finite, got 0"):
        uniformity(torch.ones(2, 2), t=0)

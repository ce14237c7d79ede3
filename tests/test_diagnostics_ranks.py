"""RankMe, the decay of eigenvalues and LiDAR: closed forms, loops in float64, and edges."""

import math

import numpy as np
import pytest
import scipy.linalg
import torch

from relatum.diagnostics import alpha_req, effective_rank, lidar, rankme


def sample(n=40, d=6, seed=0):
    return torch.from_numpy(np.random.default_rng(seed).standard_normal((n, d)))


def entropy_rank(values):
    return math.exp(-sum(p * math.log(p) for p in values if p > 0))


def test_rankme_is_its_formula():
    z = sample()
    values = np.sqrt(np.linalg.eigvalsh((z.T @ z).numpy()))
    shares = values / values.sum() + 1e-3
    assert rankme(z, epsilon=1e-3).item() == pytest.approx(entropy_rank(shares), rel=1e-10)
    assert rankme(z, epsilon=0).item() == pytest.approx(effective_rank(z).item(), rel=1e-14)
    assert rankme(7 * z).item() == pytest.approx(rankme(z).item(), rel=1e-12)
    with pytest.raises(ValueError, match="epsilon must be a finite number >= 0, got -1"):
        rankme(z, epsilon=-1)
    with pytest.raises(ValueError, match="zero everywhere"):
        rankme(torch.zeros(3, 2))


def test_rankme_adds_a_little_for_each_unused_direction():
    z = torch.zeros(10, 5, dtype=torch.float64)
    z[:, 0] = 1
    expected = entropy_rank([1 + 1e-7] + [1e-7] * 4)
    assert rankme(z).item() == pytest.approx(expected, rel=1e-12) and expected > 1


def power_law(exponent, d, scale=3.0):
    """Embeddings whose covariance has the eigenvalues scale · k^(−exponent), rotated."""
    root = np.sqrt(scale * np.arange(1, d + 1) ** -float(exponent))
    basis = np.linalg.qr(np.random.default_rng(1).standard_normal((d, d)))[0]
    return torch.from_numpy(np.concatenate([np.diag(root), -np.diag(root)]) @ basis + 5)


@pytest.mark.parametrize("exponent", [0.0, 0.7, 1.0, 2.5])
def test_alpha_req_finds_the_exponent_of_a_power_law(exponent):
    z = power_law(exponent, 60)
    for options, ends in (
        ({}, (5, 50)),
        ({"first": 1, "last": 3}, (1, 3)),
        ({"last": 60}, (5, 60)),
    ):
        found = alpha_req(z, **options)
        assert found.exponent.item() == pytest.approx(exponent, abs=1e-9)
        assert (found.first, found.last) == ends
    assert tuple(alpha_req(power_law(exponent, 8)))[1:] == (1, 8)
    assert tuple(alpha_req(power_law(exponent, 20)))[1:] == (5, 20)


def test_alpha_req_is_least_squares():
    z = sample(200, 30)
    values = np.linalg.eigvalsh(np.cov(z.T.numpy()))[::-1]
    slope = np.polyfit(np.log(np.arange(5, 31)), np.log(values[4:30]), 1)[0]
    assert alpha_req(z).exponent.item() == pytest.approx(-slope, rel=1e-10)


def test_alpha_req_needs_two_directions():
    line = torch.arange(6.0)[:, None] * torch.ones(1, 3)
    with pytest.raises(
        ValueError, match="two indices from 1 to the 1 positive eigenvalues, got 1 a"
    ):
        alpha_req(line)
    with pytest.raises(ValueError, match="from 1 to the 6 positive eigenvalues, got 0 and 6"):
        alpha_req(sample(), first=0)


@pytest.mark.parametrize("sizes", [[2] * 9, [1, 4, 2, 3]])
def test_lidar_is_the_generalised_eigenproblem(sizes):
    """Loops over items, and eigenvalues of Σ_b against Σ_w + δI."""
    items = np.repeat(np.arange(len(sizes)), sizes)
    z = sample(len(items), 4).numpy()
    groups = [z[items == i] for i in range(len(sizes))]
    means = np.array([group.mean(0) for group in groups])
    between = sum(np.outer(m - means.mean(0), m - means.mean(0)) for m in means) / len(means)
    within = sum(
        sum(np.outer(x - m, x - m) for x in group) / len(group)
        for group, m in zip(groups, means, strict=True)
    ) / len(means)  # fmt: skip
    values = scipy.linalg.eigh(between, within + 0.02 * np.eye(4), eigvals_only=True).clip(0)
    expected = entropy_rank(values / values.sum())
    order = np.random.default_rng(2).permutation(len(items))  # in any order, with any names
    found = lidar(torch.from_numpy(z[order]), torch.from_numpy(7 * items[order] - 3), ridge=0.02)
    assert found.item() == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("rank", [1, 2, 5])
def test_lidar_counts_equal_directions(rank):
    """Items at ± unit vectors, views around them along every axis: that many directions."""
    items = torch.cat([torch.eye(6)[:rank], -torch.eye(6)[:rank]])
    views = (items[:, None] + 0.1 * torch.cat([torch.eye(6), -torch.eye(6)])).reshape(-1, 6)
    codes = torch.arange(len(items)).repeat_interleave(12)
    assert lidar(views, codes).item() == pytest.approx(rank, rel=1e-5)
    # A wide direction within items counts for less, and one without differences not at all.
    assert lidar(views * torch.tensor([1.0] * 5 + [9.0]), codes).item() <= rank + 1e-5


def test_lidar_mistakes():
    z, items = sample(6, 2), torch.arange(6) // 2
    for given, options, message in (
        (items[:5], {}, r"items must have the shape \(6,\), got \(5,\)"),
        (torch.arange(6), {}, "needs two items and several views of one, got 6 items in 6 rows"),
        (torch.zeros(6, dtype=torch.int64), {}, "got 1 items in 6 rows"),
        (items, {"ridge": 0.0}, "ridge must be positive and finite, got 0.0"),
    ):
        with pytest.raises(ValueError, match=message):
            lidar(z, given, **options)
    assert lidar(torch.ones(6, 2), items).item() == 0  # no two items differ
    z[3, 1] = math.nan
    with pytest.raises(ValueError, match="z row 3, column 1 is nan"):
        lidar(z, items)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_half_precision_is_computed_in_more(dtype):
    z = sample().to(dtype)
    items = torch.arange(40) // 4
    assert rankme(z).item() == pytest.approx(rankme(z.double()).item(), rel=1e-4)
    assert alpha_req(z).exponent.item() == pytest.approx(
        alpha_req(z.double()).exponent.item(), rel=1e-3
    )
    assert lidar(z, items).item() == pytest.approx(lidar(z.double(), items).item(), rel=1e-6)

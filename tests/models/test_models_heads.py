"""The projection head: centred embeddings, what they do to alpha, and its first layers."""

import pytest
import torch
from torch import nn

from relatum import RPC, ContrastiveLoss, DotProduct
from relatum.models import ProjectionHead

N, TAU = 7, 3.0


def embeddings(offset):
    """Those of N pairs by a head in training, of random weights."""
    torch.manual_seed(0)
    head = ProjectionHead(6, 10, 5, offset=offset).double()
    for p in head.parameters():
        nn.init.normal_(p)
    return head(torch.randn(2 * N, 6, dtype=torch.float64))


def mean_scores(z):
    """Mean positive and negative score of two views, and the mean square, by double loops."""
    positive, negative = [], []
    for i in range(2 * N):
        for j in range(2 * N):
            if i != j:
                (positive if abs(i - j) == N else negative).append(z[i] @ z[j] / TAU)
    return torch.stack(positive).mean(), torch.stack(negative).mean()


def test_the_released_head_fixes_the_mean_negative_score():
    z = embeddings(offset=False)
    torch.testing.assert_close(z.sum(0), torch.zeros(5, dtype=torch.float64), atol=1e-10, rtol=0)
    positive, negative = mean_scores(z)
    square = (z**2).sum(1).mean()
    torch.testing.assert_close(negative, -(square / TAU + positive) / (2 * N - 2))


def test_an_offset_frees_it():
    z = embeddings(offset=True)
    positive, negative = mean_scores(z)
    square = (z**2).sum(1).mean()
    assert abs(negative + (square / TAU + positive) / (2 * N - 2)) > 0.1
    released, offset = ProjectionHead(6, 10, 5), ProjectionHead(6, 10, 5, offset=True)
    assert sum(p.numel() for p in offset.parameters()) == 5 + sum(
        p.numel() for p in released.parameters()
    )


def alphas_pull(n, offset):
    """Norm of what alpha adds to the gradient of the loss for the head's last normalisation."""
    torch.manual_seed(0)
    head = ProjectionHead(6, 10, 5, offset=offset).double()
    last = list(head.layers[-1].parameters())
    if offset:
        nn.init.constant_(last[1], 0.5)
    x = torch.randn(2 * n, 6, dtype=torch.float64)
    found = []
    for alpha in (0.0, 1.0):
        loss = ContrastiveLoss(RPC(alpha, 0.005, 1.0), DotProduct(TAU), "two_view")
        gradients = torch.autograd.grad(loss(*head(x).chunk(2)), last)
        found.append(torch.cat([g.flatten() for g in gradients]))
    return float((found[1] - found[0]).norm())


def test_alpha_acts_only_through_an_offset():
    """Ten times the batch: a tenth of the pull without an offset, the same pull with one."""
    assert alphas_pull(40, False) / alphas_pull(400, False) == pytest.approx(10, rel=0.2)
    assert alphas_pull(40, True) / alphas_pull(400, True) == pytest.approx(1, rel=0.1)


def test_first_layers():
    head = ProjectionHead(6, 10, 5, layers=3).eval()
    for p in head.parameters():
        nn.init.normal_(p)
    x = torch.randn(4, 6)
    assert torch.equal(head.upto(0)(x), x)
    scale = 1 / (1 + 1e-5) ** 0.5  # running statistics are still (0, 1)
    by_hand = x
    for k, (dense, normal) in enumerate([(0, 1), (3, 4), (6, 7)]):
        layer, norm = head.layers[dense], head.layers[normal]
        by_hand = by_hand @ layer.weight.T * scale * norm.weight
        by_hand = by_hand.add(norm.bias).clamp(min=0) if k < 2 else by_hand
        torch.testing.assert_close(head.upto(k + 1)(x), by_hand)
        assert by_hand.shape[1] == head.widths[k + 1]
    torch.testing.assert_close(head(x), by_hand)
    assert head.upto(2)[0].weight is head.layers[0].weight
    with pytest.raises(ValueError, match="k must be from 0 to 3 layers, got 4"):
        head.upto(4)

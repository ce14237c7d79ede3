"""Exclusions, tiles and blocks against what they stand for."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from relatum import CPC, RPC, Bilinear, ContrastiveLoss, Cosine, DotProduct, JointMLP
from relatum.scores.exclusions import Exclusions

ids = st.lists(st.integers(0, 4), min_size=1, max_size=9)


def _equal(anchors, candidates):
    return torch.tensor(anchors)[:, None] == torch.tensor(candidates)[None]


@given(anchors=ids, candidates=ids, limit=st.integers(1, 12))
def test_exclusions_are_equal_ids(anchors, candidates, limit):
    excluded = Exclusions(torch.tensor(anchors), torch.tensor(candidates))
    equal = _equal(anchors, candidates)
    assert excluded.counts.tolist() == (~equal).sum(1).tolist()
    whole = excluded.mask(slice(0, len(anchors)), slice(0, len(candidates)))
    assert torch.equal(whole, equal)
    seen = torch.zeros_like(equal)
    start = 0
    for rows in excluded.chunks(limit):
        assert rows.start == start
        start = rows.stop
        i, j = excluded.pairs(rows)
        assert len(i) <= limit or rows.stop == rows.start + 1
        seen[i, j] = True
    assert start == len(anchors)
    assert torch.equal(seen, equal)


@given(anchors=ids, candidates=ids)
def test_groups_hold_every_excluded_pair(anchors, candidates):
    groups, a, c = Exclusions(torch.tensor(anchors), torch.tensor(candidates)).groups()
    for group, many, other in zip(groups.tolist(), a.tolist(), c.tolist(), strict=True):
        assert (many, other) == (anchors.count(group), candidates.count(group))
    assert int((a * c).sum()) == int(_equal(anchors, candidates).sum())


@pytest.mark.parametrize(
    ("n", "shifts"), [(5, (0,)), (10, (0, 5)), (1, (0,)), (2, (0, 1)), (6, ())]
)
@pytest.mark.parametrize("side", [1, 2, 3, 4, 16])
def test_the_pattern_says_what_the_ids_say(n, shifts, side):
    """A tile without excluded pairs may be None; one with some must show exactly those."""
    if shifts:
        own = torch.arange(n // len(shifts)).repeat(len(shifts))
        pattern, plain = Exclusions(own, own, shifts), Exclusions(own, own)
    else:
        pattern = Exclusions.none(n, n, torch.device("cpu"))
        plain = Exclusions(torch.zeros(n).long(), torch.ones(n).long())
    assert pattern.counts.tolist() == plain.counts.tolist()
    for i in range(0, n, side):
        for j in range(0, n, side):
            tile = slice(i, min(i + side, n)), slice(j, min(j + side, n))
            expected, found = plain.mask(*tile), pattern.mask(*tile)
            assert torch.equal(expected, torch.zeros_like(expected) if found is None else found)
        rows = slice(i, min(i + side, n))
        found, expected = pattern.pairs(rows), plain.pairs(rows)
        assert set(zip(*map(torch.Tensor.tolist, found), strict=True)) == set(
            zip(*map(torch.Tensor.tolist, expected), strict=True)
        )


@pytest.mark.parametrize("block_size", [1, 2, 3])
def test_tiles_of_large_scores(block_size):
    """Scores of 1e5 do not fit an exponential without a maximum: 0 matched, 1e5 swapped."""
    x = torch.diag(torch.tensor([100.0, 100.0]))
    loss = ContrastiveLoss(CPC(), DotProduct(0.1), "in_batch", block_size)
    assert loss(x, x).item() == 0.0
    assert abs(loss(x, x.flip(0)).item() - 1e5) < 1
    # The bound is of both sides: small anchors, large candidates.
    large = ContrastiveLoss(CPC(), DotProduct(), "in_batch", block_size)(x / 1e4, x.flip(0) * 1e3)
    assert abs(large.item() - 1e3) < 1e-2


@pytest.mark.parametrize("scale", [1.0, 100.0])
def test_tiles_that_are_all_excluded(scale):
    """The first tile of anchors 0 to 2 holds no negative of theirs: no −inf − (−inf)."""
    x, y = torch.randn(2, 7, 3, dtype=torch.float64)
    x = (scale * x).requires_grad_()
    ids = torch.tensor([5, 5, 5, 1, 2, 3, 3])
    for pairing in ("in_batch", "in_batch_symmetric"):
        tiled = ContrastiveLoss(CPC(), DotProduct(), pairing, 3)(x, y, ids=ids)
        dense = ContrastiveLoss(CPC(), DotProduct(), pairing)(x, y, ids=ids)
        torch.testing.assert_close(tiled, dense)
        torch.testing.assert_close(
            *(torch.autograd.grad(value, x, retain_graph=True)[0] for value in (tiled, dense))
        )


def test_an_id_made_for_nobody_meets_no_candidate():
    """Anchor ids −1 become unique: above the anchors' ids *and* the given negatives'."""
    x, bank = torch.randn(3, 2, dtype=torch.float64), torch.randn(4, 2, dtype=torch.float64)
    loss = ContrastiveLoss(RPC(), DotProduct())
    for ids in ([-1, -1, -1], [0, -1, -5]):
        made = loss.scores(x, x, negatives=bank, ids=ids, negative_ids=[1, 2, 3, 9])
        assert made.negatives.counts.tolist() == [4, 4, 4]
    own = bank[None].expand(3, 4, 2)
    made = loss.scores(x, x, negatives=own, ids=[1, 7, -1], negative_ids=[[1, -1, 8, 8]] * 3)
    assert made.negatives.counts.tolist() == [3, 4, 4]


@pytest.mark.parametrize("shape", [(5, 2), (3, 5, 2)])
@pytest.mark.parametrize("critic", [DotProduct(), JointMLP(2, 2, hidden=(4,))])
def test_ids_and_mask_together(shape, critic):
    """A given negative must be neither of the anchor's id nor padding."""
    x = torch.randn(3, 2)
    ids, other = torch.tensor([1, 2, 3]), torch.tensor([1, 1, 2, 4, 3])
    mask = torch.tensor([[1, 0, 1, 1, 0], [1, 1, 0, 1, 1], [0, 1, 1, 1, 1]]).bool()
    scores = ContrastiveLoss(CPC(), critic).scores(
        x,
        x,
        negatives=torch.randn(shape),
        ids=ids,
        negative_ids=other if len(shape) == 2 else other.expand(3, 5),
        negative_mask=mask,
    )
    assert scores.negatives.counts.tolist() == [2, 4, 3]


@pytest.mark.parametrize("block_size", [None, 1, 2, 5])
def test_two_views_of_a_symmetric_joint_critic(block_size):
    """A critic that is neither separable nor one-sided: blocks of two views equal its matrix."""

    class Sum(torch.nn.Module):
        symmetric = True

        def forward(self, x, y):
            return (x + y).square().sum(-1).sqrt()

    x, y = torch.randn(2, 3, 2, dtype=torch.float64)
    z = torch.cat([x, y])
    matrix = (z[:, None] + z[None]).norm(dim=-1)
    keep = torch.arange(3).repeat(2)[:, None] != torch.arange(3).repeat(2)[None]
    scores = ContrastiveLoss(CPC(), Sum(), "two_view", block_size).scores(x, y)
    torch.testing.assert_close(scores.positives, matrix[range(6), [3, 4, 5, 0, 1, 2]])
    torch.testing.assert_close(scores.negatives.moments().mean, matrix[keep].mean())
    expected = matrix.masked_fill(~keep, -torch.inf).logsumexp(1)
    torch.testing.assert_close(scores.negatives.logsumexp(), expected)


@given(n=st.integers(130, 140), d=st.integers(2, 6), seed=st.integers(0, 99))
@settings(max_examples=8, deadline=None)
def test_float32_gram_is_as_exact_as_dense(n, d, seed):
    generator = torch.Generator().manual_seed(seed)
    x, y = torch.randn(2, n, d, generator=generator)
    scores = ContrastiveLoss(RPC(), Cosine(0.5)).scores(x, y)
    assert "Gram" in repr(scores.negatives)
    exact = ContrastiveLoss(RPC(), Cosine(0.5)).scores(x.double(), y.double()).negatives.moments()
    found = scores.negatives.moments()
    assert abs(found.mean_square.item() - exact.mean_square.item()) < 1e-6 * exact.mean_square
    assert abs(found.mean.item() - exact.mean.item()) < 1e-5 * exact.mean_square.sqrt()


def test_the_choice_of_strategy_is_shown():
    x = torch.randn(300, 4)
    for loss, shown in (
        (ContrastiveLoss(RPC(), Cosine()), "Gram"),
        (ContrastiveLoss(RPC(), Bilinear(4, 4), "in_batch"), "Gram"),
        (ContrastiveLoss(RPC(), JointMLP(4, 4, (3,)), "in_batch", 7), "Checkpointed"),
    ):
        assert shown in repr(loss.scores(x, x).negatives)
    few = ContrastiveLoss(RPC(), Cosine(), block_size=8).scores(x[:20], x[:20])
    assert "Tiled(40 x 40 by 8, symmetric)" in repr(few.negatives)

"""Exclusions, tiles and blocks against what they stand for."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from relatum import CPC, OBJECTIVES, RPC, Bilinear, ContrastiveLoss, Cosine, DotProduct, JointMLP
from relatum.scores import from_matrix
from relatum.scores.exclusions import Exclusions

ids = st.lists(st.integers(0, 4), min_size=1, max_size=9)


def _equal(anchors, candidates):
    return torch.tensor(anchors)[:, None] == torch.tensor(candidates)[None]


@given(anchors=ids, candidates=ids)
def test_exclusions_are_equal_ids(anchors, candidates):
    excluded = Exclusions(torch.tensor(anchors), torch.tensor(candidates))
    equal = _equal(anchors, candidates)
    assert excluded.counts.tolist() == (~equal).sum(1).tolist()


@given(anchors=ids, candidates=ids)
def test_groups_hold_every_excluded_pair(anchors, candidates):
    groups = Exclusions(torch.tensor(anchors), torch.tensor(candidates)).groups()
    seen = torch.zeros(len(anchors), len(candidates), dtype=torch.bool)
    a = groups.anchors.split(groups.anchor_sizes.tolist()) if len(groups.anchor_sizes) else ()
    b = groups.candidates.split(groups.candidate_sizes.tolist()) if len(a) else ()
    for rows, columns in zip(a, b, strict=True):
        seen[rows[:, None], columns[None]] = True
    assert torch.equal(seen, _equal(anchors, candidates))


@given(anchors=ids, candidates=ids, side=st.integers(1, 10))
def test_a_tile_shows_its_excluded_pairs(anchors, candidates, side):
    """A tile without excluded pairs may be None; one with some must show exactly those."""
    exclusions = Exclusions(torch.tensor(anchors), torch.tensor(candidates))
    equal = _equal(anchors, candidates)
    for i in range(0, len(anchors), side):
        for j in range(0, len(candidates), side):
            tile = slice(i, min(i + side, len(anchors))), slice(j, min(j + side, len(candidates)))
            expected, found = equal[tile], exclusions.mask(*tile)
            assert torch.equal(expected, torch.zeros_like(expected) if found is None else found)


def test_numbered_pairs_meet_on_diagonal_tiles_alone():
    """What makes default ids cheap: all other tiles are None, with no comparison made."""
    own = torch.arange(8).repeat(2)
    exclusions = Exclusions(own, own)
    shown = [
        (i, j)
        for i in range(0, 16, 4)
        for j in range(0, 16, 4)
        if exclusions.mask(slice(i, i + 4), slice(j, j + 4)) is not None
    ]
    assert shown == [(i, j) for i in range(0, 16, 4) for j in range(0, 16, 4) if (i - j) % 8 == 0]
    none = Exclusions.none(3, 4, torch.device("cpu"))
    assert none.mask(slice(0, 3), slice(0, 4)) is None
    assert none.counts.tolist() == [4, 4, 4]


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
    assert abs(found.mean_square.item() - exact.mean_square.item()) < 3e-6 * exact.mean_square
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


def test_a_critic_of_ones_own_in_half_precision():
    """Scores of bfloat16 are summed in float32: 90,000 ones do not fit in half."""
    half = torch.ones(300, 300, dtype=torch.float16)
    assert abs(RPC()(from_matrix(half)).item() + 0.5025) < 1e-6

    class Half(torch.nn.Module):
        symmetric = False

        def forward(self, x, y):
            return (x * y).sum(-1).bfloat16()

    x = torch.ones(300, 1)
    loss = ContrastiveLoss(RPC(), Half(), "in_batch")(x, x)
    assert loss.dtype == torch.float32
    assert abs(loss.item() - 0.5025) < 1e-6


@pytest.mark.parametrize("rowwise", [False, True])
def test_factors_of_ones_own_in_half_precision(rowwise, monkeypatch):
    """Factors that autocast rounded are summed in float32, held in whatever way."""

    class Half(torch.nn.Module):
        symmetric = True

        def factors(self, x, y):
            return x.half(), y.half()

        def forward(self, x, y):
            u, v = self.factors(x, y)
            return (u * v).sum(-1)

    critic = Half()
    critic.rowwise = rowwise
    x, y, bank = 3 * torch.randn(3, 300, 4)
    exact = [t.half().double() for t in (x, y, bank)]
    for name, pairing, block_size, own in (
        ("rpc", "two_view", None, False),
        ("cpc", "in_batch", 100, False),
        ("dv", None, None, False),
        ("cpc", None, None, True),
    ):
        arguments = OBJECTIVES[name](), pairing, block_size
        given = [{}, {}]
        if pairing is None:
            given = [{"negatives": b[:, None] if own else b} for b in (bank, exact[2])]
        loss, truth = (
            ContrastiveLoss(arguments[0], c, *arguments[1:]) for c in (critic, DotProduct())
        )
        expected = truth(*exact[:2], **given[1])
        found = loss(x, y, **given[0])
        assert found.dtype == torch.float32
        torch.testing.assert_close(found.double(), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("critic", [DotProduct(), JointMLP(4, 4, hidden=(4,))])
@pytest.mark.parametrize("ids", [False, True])
def test_a_mask_of_a_bank_goes_with_blocks(critic, ids):
    x, bank = torch.randn(40, 4), torch.randn(70, 4)
    mask = torch.rand(40, 70) < 0.7
    given = {"negatives": bank, "negative_mask": mask}
    excluded = ~mask
    if ids:
        own, other = torch.arange(40) % 5, torch.arange(70) % 7
        given |= {"ids": own, "negative_ids": other}
        excluded = excluded | (own[:, None] == other[None])
    scores = ContrastiveLoss(CPC(), critic, block_size=16).scores(x, x, **given)
    assert "16" in repr(scores.negatives)
    matrix = critic(x[:, None], bank[None]).masked_fill(excluded, -torch.inf)
    torch.testing.assert_close(scores.negatives.logsumexp(), matrix.logsumexp(1))
    assert scores.negatives.counts.tolist() == (~excluded).sum(1).tolist()


def test_a_critic_that_sums_over_the_wrong_axis_is_named():
    class Wrong(torch.nn.Module):
        symmetric = False

        def forward(self, x, y):
            return (x * y).sum(1)

    with pytest.raises(ValueError, match="the critic must score"):
        ContrastiveLoss(CPC(), Wrong(), "in_batch")(torch.randn(4, 3), torch.randn(4, 3))


def test_float32_and_float64_meet_in_float64():
    x, y = torch.randn(4, 3), torch.randn(4, 3, dtype=torch.float64)
    for critic in (Cosine(), Bilinear(3, 3), Bilinear(3, 3).double()):
        mixed = ContrastiveLoss(CPC(), critic, "in_batch")(x, y)
        assert mixed.dtype == torch.float64
        torch.testing.assert_close(mixed, ContrastiveLoss(CPC(), critic, "in_batch")(x.double(), y))
    with pytest.raises(TypeError, match=r"critic\.double\(\)"):
        ContrastiveLoss(CPC(), JointMLP(3, 3, (4,)), "in_batch")(x, y)


def test_mistakes_are_named():
    x = torch.randn(4, 3)
    loss = ContrastiveLoss(CPC(), Cosine(), "in_batch")
    with pytest.raises(ValueError, match=r"below 2\*\*63"):
        loss(x, x, ids=np.array([2**63 + 5, 1, 2, 3], dtype=np.uint64))
    with pytest.raises(TypeError, match="ids cannot be read as integers"):
        loss(x, x, ids=["a", "b", "c", "d"])
    with pytest.raises(ValueError, match=r"one row per pair: x has shape \(\), y \(\)"):
        loss(torch.tensor(1.0), torch.tensor(1.0))
    statistics = ContrastiveLoss(RPC(), Cosine()).statistics(x, x)
    with pytest.raises(TypeError, match="CPC needs every score of its negatives"):
        loss.from_statistics(statistics)
    with pytest.raises(ValueError, match="hold nothing"):
        loss(x[:, :0], x[:, :0])
    with pytest.raises(ValueError, match="negatives hold no candidates"):
        loss(x, x, negatives=x[:0])
    with pytest.raises(ValueError, match="takes y of width 2"):
        ContrastiveLoss(CPC(), Bilinear(3, 2), "in_batch")(x, x)
    with pytest.raises(ValueError, match="takes x of width 5"):
        ContrastiveLoss(CPC(), JointMLP(5, 3), "in_batch")(x, x)
    with pytest.raises(TypeError):  # the two exchanged
        ContrastiveLoss(Cosine(), RPC())
    with pytest.raises(TypeError, match="objective must be an instance"):
        ContrastiveLoss(JointMLP(3, 3), Cosine())
    with pytest.raises(ValueError, match="block_size must be a whole number"):
        ContrastiveLoss(CPC(), Cosine(), block_size=True)
    mask = np.ones((4, 2), dtype=bool)[::-1, ::-1]
    assert loss(x, x, negatives=x[:2], negative_mask=mask).isfinite()


def test_large_ids():
    x = torch.randn(4, 3)
    top = 2**63 - 1
    loss = ContrastiveLoss(CPC(), Cosine(), "in_batch")
    expected = loss.scores(x, x, ids=[1, 1, 2, 3]).negatives.counts
    for ids in ([top, top, 0, -1], [top, top, -5, -1]):
        assert loss.scores(x, x, ids=ids).negatives.counts.tolist() == expected.tolist()
    with pytest.raises(ValueError, match="-1 will do"):
        loss(x, x, ids=[-(2**63), 1, 2, 3])

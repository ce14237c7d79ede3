"""Every strategy x pairing x objective equals double loops in float64, value and gradient."""

import itertools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from relatum import (
    OBJECTIVES,
    Bilinear,
    ContrastiveLoss,
    Cosine,
    DotProduct,
    JointMLP,
    TwoTower,
)
from relatum.scores import factors, gram, holding, reductions
from tests.laws import reference

# torch's forward derivatives come with a warning of torch's own about torch.
pytestmark = pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated")

D = 3


def _critics():
    return {
        "dot": DotProduct(1.3),
        "dot-learned": DotProduct(0.7, learn=True),
        "cosine": Cosine(0.4),
        "cosine-learned": Cosine(0.5, learn=True),
        "bilinear": Bilinear(D, D, temperature=0.8),
        "shared-tower": TwoTower(nn.Sequential(nn.Linear(D, 4), nn.Tanh()), temperature=0.6),
        "two-tower": TwoTower(nn.Linear(D, 4), nn.Linear(D, 4), normalize=True),
        "joint": JointMLP(D, D, hidden=(5,)),
    }


SYMMETRIC = {"dot", "dot-learned", "cosine", "cosine-learned", "shared-tower"}
IDS = {
    "none": None,
    "distinct": [4, 9, 2, 7, 5, 0, 3],
    "groups": [1, 1, 2, 3, 3, 3, -1],
    "nobody": [-1, -1, -1, 5, 5, -2, 8],
    "first tile": [5, 5, 5, 1, 2, 3, 3],
}
GIVEN = [f"{kind}{what}" for kind in ("bank", "own") for what in ("", "-ids", "-mask", "-mask-ids")]


def _given(kind, n, x):
    """(loss keywords, reference keywords, extra candidates) for pairings with given negatives."""
    generator = torch.Generator().manual_seed(5)
    shape = (4, D) if kind.startswith("bank") else (n, 4, D)
    extra = torch.randn(*shape, generator=generator).double().requires_grad_()
    keywords = {"negatives": extra}
    listed = {"bank": 4} if kind.startswith("bank") else {"k": 4}
    if "mask" in kind:
        mask = torch.rand(n, 4, generator=generator) < 0.6
        mask[0, 0] = True
        mask[2] = False
        keywords["negative_mask"] = listed["mask"] = mask
    if kind.endswith("ids"):
        ids = torch.arange(n)
        other = torch.randint(0, n + 2, shape[:-1], generator=generator)
        keywords |= {"ids": ids, "negative_ids": other}
        listed |= {"ids": ids, "negative_ids": other}
    return keywords, listed, extra


def _gradients(value, tensors):
    grads = torch.autograd.grad(value, tensors, allow_unused=True, retain_graph=True)
    return [torch.zeros_like(t) if g is None else g for g, t in zip(grads, tensors, strict=True)]


# Block size and what is patched: the cost rule would not choose Gram matrices for 7 pairs, whose
# scores are small enough to need no running maximum.
GRAM = (holding, "gram_pays", lambda *_: True)
MAXIMUM = (reductions, "LARGEST_BOUND", -1.0)
STRATEGIES = {
    "dense": (None, None),
    "tiled": (3, None),
    "tiled, running maximum": (3, MAXIMUM),
    "gram": (None, GRAM),
}
# Factors in parts of two rows, as large batches have them.
PARTS = [(factors, "_CACHED", 6), (factors, "_FEWEST", 2)]


def check_against_loops(critic_name, pairing, ids, strategies, monkeypatch, n=7):
    """Every objective under every strategy, value and all gradients, against one set of loops."""
    torch.manual_seed(1)
    critic = _critics()[critic_name].double()
    x = torch.randn(n, D).double().requires_grad_()
    y = torch.randn(n, D).double().requires_grad_()
    keywords, listed, extra = {}, {}, None
    name = pairing
    if pairing in GIVEN:
        keywords, listed, extra = _given(pairing, n, x)
        name = None
    elif IDS[ids] is not None:
        keywords = {"ids": torch.tensor(IDS[ids])[:n]}
        listed = {"ids": IDS[ids][:n]}
    tensors = [x, y, *critic.parameters(), *([extra] if extra is not None else [])]
    listed_pairs = reference.pairs(pairing, n, **listed)
    scores = reference.score_lists(critic, x, y, extra, *listed_pairs)
    for objective in OBJECTIVES:
        slow = reference.loss(objective, *scores)
        slow_gradients = _gradients(slow, tensors)
        for block_size, change in strategies:
            with monkeypatch.context() as patch:
                if change is not None:
                    patch.setattr(*change)
                loss = ContrastiveLoss(OBJECTIVES[objective](), critic, name, block_size)
                fast = loss(x, y, **keywords)
            what = f"{objective}, block_size {block_size}, {change and change[1]}"
            torch.testing.assert_close(fast, slow, rtol=1e-12, atol=1e-12, msg=what)
            for a, b in zip(_gradients(fast, tensors), slow_gradients, strict=True):
                torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-12, msg=what)


def _batch_cases():
    for critic, pairing in itertools.product(
        _critics(), ["two_view", "in_batch", "in_batch_symmetric"]
    ):
        if pairing == "two_view" and critic not in SYMMETRIC:
            continue
        yield critic, pairing


@pytest.mark.parametrize("ids", IDS)
@pytest.mark.parametrize(("critic", "pairing"), list(_batch_cases()))
def test_batch_pairings_equal_loops(critic, pairing, ids, monkeypatch):
    check_against_loops(critic, pairing, ids, STRATEGIES.values(), monkeypatch)


@pytest.mark.parametrize(
    ("critic", "pairing"), [("cosine", "two_view"), ("joint", "in_batch_symmetric")]
)
def test_every_block_size_equals_loops(critic, pairing, monkeypatch):
    check_against_loops(critic, pairing, "groups", [(b, None) for b in (1, 2, 5, 64)], monkeypatch)


@pytest.mark.parametrize("ids", ["none", "groups"])
@pytest.mark.parametrize(("critic", "pairing"), list(_batch_cases()))
def test_factors_in_parts_equal_loops(critic, pairing, ids, monkeypatch):
    """Seven pairs in parts of two: every strategy, the last part being short."""
    for change in PARTS:
        monkeypatch.setattr(*change)
    check_against_loops(critic, pairing, ids, STRATEGIES.values(), monkeypatch)


@pytest.mark.parametrize("pairing", GIVEN)
@pytest.mark.parametrize("critic", ["dot-learned", "bilinear", "two-tower", "joint"])
def test_given_negatives_equal_loops(critic, pairing, monkeypatch):
    check_against_loops(critic, pairing, "none", STRATEGIES.values(), monkeypatch)


@pytest.mark.parametrize("pairing", ["two_view", "in_batch", "in_batch_symmetric"])
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_side_with_itself(pairing, strategy, monkeypatch):
    """x is y: the same tensor twice must be what two equal tensors are, gradient included."""
    block_size, change = STRATEGIES[strategy]
    if change is not None:
        monkeypatch.setattr(*change)
    x = torch.randn(8, D, dtype=torch.float64, requires_grad=True)
    twin = x.detach().clone().requires_grad_()
    for objective in OBJECTIVES.values():
        same = ContrastiveLoss(objective(), DotProduct(0.7), pairing, block_size)(x, x)
        apart = ContrastiveLoss(objective(), DotProduct(0.7), pairing)(x, twin)
        torch.testing.assert_close(same, apart)
        (both,) = torch.autograd.grad(same, x)
        torch.testing.assert_close(both, sum(torch.autograd.grad(apart, [x, twin])))


@given(
    n=st.integers(2, 9),
    d=st.integers(1, 5),
    seed=st.integers(0, 10**6),
    block_size=st.integers(1, 12),
    groups=st.integers(2, 9),
)
@settings(max_examples=12, deadline=None)
def test_block_size_never_changes_a_result(n, d, seed, block_size, groups):
    generator = torch.Generator().manual_seed(seed)
    x, y = torch.randn(2, n, d, generator=generator, dtype=torch.float64)
    ids = torch.arange(n) % groups
    for objective in OBJECTIVES.values():
        for pairing in ("two_view", "in_batch", "in_batch_symmetric"):
            plain = ContrastiveLoss(objective(), Cosine(0.3), pairing)(x, y, ids=ids)
            tiled = ContrastiveLoss(objective(), Cosine(0.3), pairing, block_size)(x, y, ids=ids)
            torch.testing.assert_close(tiled, plain, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("objective", OBJECTIVES)
@pytest.mark.parametrize("block_size", [None, 3])
@pytest.mark.parametrize("pairing", ["two_view", "in_batch", "in_batch_symmetric"])
def test_gradcheck(objective, block_size, pairing):
    critic = Cosine(0.4) if pairing == "two_view" else Bilinear(D, D).double()
    loss = ContrastiveLoss(OBJECTIVES[objective](), critic, pairing, block_size)
    x, y = torch.randn(2, 5, D, dtype=torch.float64)
    assert torch.autograd.gradcheck(loss, (x.requires_grad_(), y.requires_grad_()))


@pytest.mark.parametrize("chunk", [1, 28, 1 << 16])
@pytest.mark.parametrize("alone", [1, 240, 4000, 10**6])
@pytest.mark.parametrize("sizes", [[60, 40, *[3] * 66, 2], [30] * 10, [1] * 300, [300 - 7, 7]])
def test_gram_subtracts_groups(sizes, alone, chunk, monkeypatch):
    """By Gram matrices of a group, by its scores, or pair by pair in chunks."""
    monkeypatch.setattr(gram, "_CHUNK", chunk)
    monkeypatch.setattr(gram, "_ALONE", alone)
    x, y = torch.randn(2, 300, 24 if alone == 240 else 4, dtype=torch.float64)
    x, y = x.requires_grad_(), y.requires_grad_()
    ids = torch.repeat_interleave(torch.arange(len(sizes)), torch.tensor(sizes))
    ids = ids[torch.randperm(300)]
    loss = ContrastiveLoss(OBJECTIVES["rpc"](), DotProduct(3.0), "in_batch")
    scores = loss.scores(x, y, ids=ids)
    assert "Gram" in repr(scores.negatives)
    dense = (x @ y.T / 3.0)[ids[:, None] != ids[None]]
    moments = scores.negatives.moments()
    torch.testing.assert_close(moments.mean, dense.mean())
    torch.testing.assert_close(moments.mean_square, dense.square().mean())
    for fast, slow in zip(moments, (dense.mean(), dense.square().mean()), strict=True):
        for a, b in zip(_gradients(fast, [x, y]), _gradients(slow, [x, y]), strict=True):
            torch.testing.assert_close(a, b)


def test_gram_repairs_cancellation(monkeypatch):
    """Positives of 1e6 beside nearly orthogonal negatives: float32 subtraction alone loses all."""
    n, d = 64, 256
    basis = torch.linalg.qr(torch.randn(d, n, dtype=torch.float64))[0].T
    x = (1000 * basis + 1e-3 * torch.randn(n, d, dtype=torch.float64)).float().requires_grad_()
    loss = ContrastiveLoss(OBJECTIVES["rpc"](), DotProduct(), "two_view")
    with monkeypatch.context() as patch:
        patch.setattr(*GRAM)
        summed = loss.scores(x, x).negatives.strategy
    assert "Gram" in repr(summed)
    double = torch.cat([x, x]).double()
    scores = double @ double.T
    keep = torch.arange(n).repeat(2)[:, None] != torch.arange(n).repeat(2)[None]
    exact = scores[keep].square().sum()
    torch.testing.assert_close(summed.sums().second.double(), exact, rtol=1e-4, atol=0)
    (fast,) = torch.autograd.grad(summed.sums().second, x)
    (slow,) = torch.autograd.grad(exact, x)
    assert (fast - slow).norm() <= 1e-4 * slow.norm()
    assert loss(x, x).isfinite()


@pytest.mark.parametrize("pairing", ["in_batch", "in_batch_symmetric"])
def test_gram_repairs_cancellation_between_cones(pairing):
    """Anchors near one direction, candidates near another, orthogonal to it: as with two encoders.

    Scores are then small beside ‖u‖ ‖v‖, and no excluded pair is to blame: the entries of the two
    matrices cancel among themselves.
    """
    n, d = 512, 16
    turn = torch.linalg.qr(torch.randn(d, d, dtype=torch.float64))[0]
    noise = 1e-2 * torch.randn(2, n, d, dtype=torch.float64)
    x, y = ((1000 * torch.eye(d)[i] + noise[i]) @ turn for i in range(2))
    x, y = x.float().requires_grad_(), y.float().requires_grad_()
    scores = ContrastiveLoss(OBJECTIVES["rpc"](), DotProduct(), pairing).scores(x, y)
    assert "Gram" in repr(scores.negatives)
    matrix = x.double() @ y.double().T
    exact = matrix[~torch.eye(n, dtype=torch.bool)]
    mean, square = scores.negatives.moments()
    rms = exact.square().mean().sqrt()
    assert abs(mean.double() - exact.mean()) <= 1e-5 * rms
    torch.testing.assert_close(square.double(), exact.square().mean(), rtol=1e-4, atol=0)
    fast, slow = (torch.autograd.grad(value, (x, y)) for value in (square, exact.square().mean()))
    for a, b in zip(fast, slow, strict=True):
        assert (a - b).norm() <= 1e-4 * b.norm()


@pytest.mark.parametrize("objective", OBJECTIVES)
@pytest.mark.parametrize("gram", [False, True])
def test_losses_under_function_transforms(objective, gram, monkeypatch):
    """torch.func's gradient and forward derivative are autograd's, where scores are not tiled."""
    if gram:
        monkeypatch.setattr(*GRAM)
    x, y, tangent = torch.randn(3, 6, D, dtype=torch.float64)
    for critic in (Cosine(0.4), Bilinear(D, D).double()):
        loss = ContrastiveLoss(OBJECTIVES[objective](), critic, "in_batch_symmetric")
        leaf = x.clone().requires_grad_()
        (expected,) = torch.autograd.grad(loss(leaf, y), leaf)
        torch.testing.assert_close(torch.func.grad(loss)(x, y), expected)
        _, forward = torch.func.jvp(lambda a, loss=loss: loss(a, y), (x,), (tangent,))
        torch.testing.assert_close(forward, (tangent * expected).sum())


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_tiles_refuse_second_derivatives(objective):
    """Dense scores have them; tiles say so instead of answering wrongly."""
    x, y = torch.randn(2, 6, D, dtype=torch.float64)
    x = x.requires_grad_()
    dense = ContrastiveLoss(OBJECTIVES[objective](), DotProduct(), "two_view")
    assert torch.autograd.gradgradcheck(lambda x: dense(x, y), (x,))
    tiled = ContrastiveLoss(OBJECTIVES[objective](), DotProduct(), "two_view", block_size=4)
    scores = tiled.scores(x, y).negatives
    with pytest.raises(RuntimeError, match="first derivatives only"):
        torch.autograd.grad(scores.mean(torch.exp), x, create_graph=True)
    if objective not in ("rpc", "chi2", "hinge"):  # their reductions are not tiled Functions here
        with pytest.raises(RuntimeError, match="first derivatives only"):
            torch.autograd.grad(tiled(x, y), x, create_graph=True)


def test_block_size_keeps_float32_precision():
    """A sum of squares over one large tile is as good as over many."""
    x, y = torch.randn(2, 1500, 1600)
    negatives = ContrastiveLoss(OBJECTIVES["rpc"](), DotProduct(40.0), "in_batch", 1500)
    found = negatives.scores(x, y).negatives.moments().mean_square.item()
    scores = x.double() @ y.double().T / 40
    exact = scores[~torch.eye(1500, dtype=torch.bool)].square().mean().item()
    assert abs(found / exact - 1) < 1e-6


def test_nothing_hides_a_nan():
    x, y, bank = torch.randn(4, 2), torch.randn(4, 2), torch.randn(5, 2)
    bank[2] = torch.nan
    for objective in OBJECTIVES.values():
        for block_size in (None, 2):
            loss = ContrastiveLoss(objective(), DotProduct(), block_size=block_size)
            assert loss(x, y, negatives=bank).isnan()


@pytest.mark.parametrize("block_size", [None, 2, 5])
def test_equal_negatives_share_no_gradient(block_size):
    """At a tie of the maximum one winner has the gradient, whatever the strategy."""
    x, y = torch.randn(2, 6, D, dtype=torch.float64)
    y[4] = y[1]
    y = y.requires_grad_()
    loss = ContrastiveLoss(OBJECTIVES["hinge"](), DotProduct(), "in_batch", block_size)
    scores = (x @ y.T).masked_fill(torch.eye(6, dtype=torch.bool), -torch.inf)
    winner = scores.detach().argmax(1)
    expected = (1 + (x * y[winner]).sum(1) - (x * y).sum(1)).clamp(min=0).mean()
    (fast,), (slow,) = (torch.autograd.grad(value, y) for value in (loss(x, y), expected))
    torch.testing.assert_close(fast, slow)


def test_a_phi_with_parameters_is_refused_by_tiles():
    shift = torch.zeros((), requires_grad=True)
    x = torch.randn(4, 2)
    scores = ContrastiveLoss(OBJECTIVES["js"](), DotProduct(), block_size=2).scores(x, x)
    with pytest.raises(ValueError, match="phi has parameters"):
        scores.negatives.mean(lambda f: (f + shift).exp())

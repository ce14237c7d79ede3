"""Block similarity (CURL) equals loops that average scores over the rows of each block."""

import pytest
import torch

from relatum import OBJECTIVES, RPC, ContrastiveLoss, Cosine, DotProduct, Logistic
from tests.laws import reference
from tests.laws.test_losses import IDS, PARTS, STRATEGIES, _critics, _gradients

N, B, D = 7, 3, 3


def looped(critic, x, y, ids=None, negatives=None):
    """Positives and negatives by anchor: one critic call for each row of each block."""

    def score(i, block):
        return sum(critic(x[i : i + 1], row[None])[0] for row in block) / len(block)

    own = range(len(x)) if ids is None else ids
    positives = [score(i, y[i]) for i in range(len(x))]
    if negatives is not None:
        each = negatives if negatives.ndim == 4 else [negatives] * len(x)
        return positives, [[score(i, block) for block in each[i]] for i in range(len(x))]
    return positives, [
        [score(i, y[j]) for j in range(len(x)) if j != i and (own[i] < 0 or own[j] != own[i])]
        for i in range(len(x))
    ]


def batch(shape=(N, B, D)):
    x = torch.randn(N, D, dtype=torch.float64, requires_grad=True)
    return x, torch.randn(*shape, dtype=torch.float64, requires_grad=True)


@pytest.mark.parametrize("ids", ["none", "groups"])
@pytest.mark.parametrize("critic", ["dot", "cosine-learned", "bilinear", "two-tower", "joint"])
def test_blocks_of_the_batch_equal_loops(critic, ids, monkeypatch):
    critic = _critics()[critic].double()
    x, y = batch()
    keywords = {} if IDS[ids] is None else {"ids": torch.tensor(IDS[ids])}
    scores = looped(critic, x, y, IDS[ids])
    tensors = [x, y, *critic.parameters()]
    for change in PARTS:
        monkeypatch.setattr(*change)
    for objective in OBJECTIVES:
        slow = reference.loss(objective, *scores)
        for block_size, change in STRATEGIES.values():
            with monkeypatch.context() as patch:
                if change is not None:
                    patch.setattr(*change)
                loss = ContrastiveLoss(OBJECTIVES[objective](), critic, "block", block_size)
                fast = loss(x, y, **keywords)
            torch.testing.assert_close(fast, slow, rtol=1e-12, atol=1e-12, msg=objective)
            for a, b in zip(_gradients(fast, tensors), _gradients(slow, tensors), strict=True):
                torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-12, msg=objective)


@pytest.mark.parametrize("shape", [(N, 4, B, D), (5, B, D)])
@pytest.mark.parametrize("critic", ["cosine", "two-tower", "joint"])
def test_given_blocks_equal_loops(critic, shape):
    critic = _critics()[critic].double()
    x, y = batch()
    negatives = torch.randn(*shape, dtype=torch.float64, requires_grad=True)
    tensors = [x, y, negatives, *critic.parameters()]
    for objective in OBJECTIVES:
        slow = reference.loss(objective, *looped(critic, x, y, negatives=negatives))
        for block_size in (None, 2):
            loss = ContrastiveLoss(OBJECTIVES[objective](), critic, "block", block_size)
            fast = loss(x, y, negatives=negatives)
            torch.testing.assert_close(fast, slow, rtol=1e-12, atol=1e-12, msg=objective)
            for a, b in zip(_gradients(fast, tensors), _gradients(slow, tensors), strict=True):
                torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-12, msg=objective)


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_one_row_a_block_is_the_batch(objective):
    x, y = batch((N, 1, D))
    one = ContrastiveLoss(OBJECTIVES[objective](), Cosine(0.3), "block")(x, y)
    plain = ContrastiveLoss(OBJECTIVES[objective](), Cosine(0.3), "in_batch")(x, y[:, 0])
    torch.testing.assert_close(one, plain, rtol=1e-13, atol=1e-13)


def test_statistics_of_parts_are_those_of_the_batch():
    x, y = batch()
    loss = ContrastiveLoss(RPC(), DotProduct(), "block")
    total = loss.statistics(x[:3], y[:3]).plus(loss.statistics(x[3:], y[3:]))
    torch.testing.assert_close(loss.from_statistics(total), loss(x, y))


def test_larger_blocks_have_smaller_losses_on_average():
    """Jensen (C6b): a convex loss of means is at most the mean of its losses of single rows."""
    x, y = batch()
    loss = ContrastiveLoss(Logistic(), DotProduct(), "block")
    negatives = torch.randn(N, 1, B, D, dtype=torch.float64)
    whole = loss(x, y, negatives=negatives)
    single = [
        loss(x, y[:, [s]], negatives=negatives[:, :, [t]]) for s in range(B) for t in range(B)
    ]
    assert whole < sum(single) / B**2


def test_mistakes_are_named():
    x, y = batch()
    block, plain = (ContrastiveLoss(RPC(), DotProduct(), p) for p in ("block", "in_batch"))
    with pytest.raises(ValueError, match=r"block.*x \(n, d\) and y \(n, b, d\)"):
        block(x, y[:, 0])
    with pytest.raises(ValueError, match=r"x and y must be \(n, d\).*pairing='block'"):
        plain(x, y)
    with pytest.raises(ValueError, match=r"\(m, b, d\), shared by all anchors, or \(n, k, b, d\)"):
        block(x, y, negatives=x)
    with pytest.raises(ValueError, match="no candidates"):
        block(x, y, negatives=y[:, :0])

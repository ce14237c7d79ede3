"""The released arithmetic against its own masked matrices, device by device, in float64 loops."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from relatum import (
    CPC,
    DV,
    JS,
    NWJ,
    OBJECTIVES,
    RPC,
    WPC,
    ContrastiveLoss,
    Cosine,
    DotProduct,
    Group,
    Hinge,
    Logistic,
)
from relatum.distributed import average_gradients
from relatum.objectives import Released
from relatum.scores import from_matrix
from tests.laws import processes

D = 3
WEIGHTS = (0.7, 0.3, 1.9)
OBJECTIVE = {"cpc": CPC(), "dv": DV(), "js": JS(), "nwj": NWJ(), "rpc": RPC(*WEIGHTS)}


def softplus(z):
    return torch.log1p(torch.exp(z))


def one_side(name, anchors, across, same, first):
    """The loss of one view's anchors on one device, from a matrix with pairs masked as released.

    Args:
        name: Of the objective.
        anchors: Embeddings on this device, (n, d).
        across: Of the other view on all devices, (N, d): column `first` + i is i's positive.
        same: Of the same view on all devices: column `first` + i is i itself.
        first: Rows of the devices before this one.
    """
    n, big = len(anchors), len(across)
    own = torch.zeros(n, big).double()
    for i in range(n):
        own[i, first + i] = 1
    alike = anchors @ same.T
    # Own rows: far below everything in CPC and DV, multiplied by zero in the others.
    alike = alike - own * 1e9 if name in ("cpc", "dv") else alike * (1 - own)
    matrix = torch.cat([anchors @ across.T, alike], 1)
    labels = torch.cat([own, torch.zeros(n, big)], 1)
    positive = (labels * matrix).sum(1)
    if name == "cpc":
        return -sum(matrix[i, first + i] - torch.log(matrix[i].exp().sum()) for i in range(n)) / n
    if name == "rpc":
        alpha, beta, gamma = WEIGHTS
        zeroed = (1 - labels) * matrix  # multiplied by zero: nothing is added, and not counted
        joint = (positive - beta / 2 * positive**2).sum() / n
        return -(joint - (alpha * zeroed + gamma / 2 * zeroed**2).sum() / (2 * n * (n - 1)))
    count = (2 * n - 1) * n
    if name == "dv":
        # Positives multiplied by zero: they stay as e^0.
        return -(positive.sum() / n - torch.log(((1 - labels) * matrix).exp().sum() / count))
    if name == "js":
        return softplus(-positive).sum() / n + ((1 - labels) * softplus(matrix)).sum() / count
    return -(positive.sum() / n - ((1 - labels) * torch.exp(matrix - 1)).sum() / count)


def released(name, x, y, devices):
    """The mean over devices of what each computes: sides are summed in CPC, else averaged."""
    n, total = len(x) // devices, 0.0
    for first in range(0, len(x), n):
        mine = slice(first, first + n)
        both = one_side(name, x[mine], y, x, first) + one_side(name, y[mine], x, y, first)
        total = total + (both if name == "cpc" else both / 2)
    return total / devices


@given(
    name=st.sampled_from(list(OBJECTIVE)),
    shape=st.sampled_from([(2, 1), (5, 1), (4, 2), (6, 3), (12, 4), (9, 3)]),
    block_size=st.sampled_from([None, 3]),
    scale=st.sampled_from([0.1, 1.0, 2.0]),
    seed=st.integers(0, 999),
)
@settings(max_examples=40, deadline=None)
def test_value_and_gradient_are_those_of_the_masked_matrices(name, shape, block_size, scale, seed):
    (n, devices), generator = shape, torch.Generator().manual_seed(seed)
    x, y = scale * torch.randn(2, n, D, generator=generator, dtype=torch.float64)
    x, y = x.requires_grad_(), y.requires_grad_()
    loss = ContrastiveLoss(Released(OBJECTIVE[name], devices), DotProduct(), None, block_size)
    found, expected = loss(x, y), released(name, x, y, devices)
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-10)
    for one, other in zip(
        *(torch.autograd.grad(v, (x, y)) for v in (found, expected)), strict=True
    ):
        torch.testing.assert_close(one, other, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("n", [256, 300])
def test_every_strategy(n):
    """Gram matrices, and tiles that are chosen by size."""
    x, y = torch.randn(2, n, D, dtype=torch.float64)
    for name in ("rpc", "dv", "js"):
        loss = ContrastiveLoss(Released(OBJECTIVE[name], 4), Cosine(0.5))
        u, v = (2**0.5 * torch.nn.functional.normalize(z) for z in (x, y))
        torch.testing.assert_close(loss(x, y), released(name, u, v, 4), rtol=1e-10, atol=1e-10)


@given(
    alpha=st.floats(0, 2),
    beta=st.floats(0.01, 1),
    gamma=st.floats(0.01, 2),
    devices=st.sampled_from([1, 2, 3, 4]),
)
@settings(max_examples=20, deadline=None)
def test_rpc_has_other_weights_and_nothing_else(alpha, beta, gamma, devices):
    x, y = torch.randn(2, 12, D, dtype=torch.float64)
    weight = (12 - 1) / (12 / devices - 1)
    plain = ContrastiveLoss(RPC(weight * alpha, beta, weight * gamma), DotProduct())
    found = ContrastiveLoss(Released(RPC(alpha, beta, gamma), devices), DotProduct())
    torch.testing.assert_close(found(x, y), plain(x, y))


def test_published_factors():
    """4,096 images on 32 and 128 devices, by the two moments of negatives that are all 1."""
    for devices, factor in ((32, 32.2), (128, 132.1)):
        n = 4096
        share = Released(RPC(), devices).share(n)
        assert (n - 1) / (share - 1) == pytest.approx(factor, abs=0.05)


def test_one_device_by_hand():
    """All scores 0 but for positives of 2: constants alone remain."""
    x = torch.eye(4, dtype=torch.float64)[:, :4]

    def value(objective, devices=1):
        return -ContrastiveLoss(Released(objective, devices), DotProduct(0.5))(x, x).item()

    up = math.log1p(math.exp(-2))
    assert value(NWJ()) == pytest.approx(2 - math.exp(-1))
    assert value(JS()) == pytest.approx(-up - math.log(2))
    assert value(DV()) == pytest.approx(2)
    assert value(RPC(1, 0.5, 1)) == pytest.approx(2 - 1)
    assert value(CPC()) == pytest.approx(-2 * math.log1p(6 * math.exp(-2)))
    # Two devices: 7 candidates a row, divided by 3.
    assert value(NWJ(), 2) == pytest.approx(2 - 7 / 3 * math.exp(-1))
    assert value(DV(), 2) == pytest.approx(2 - math.log(7 / 3))


def test_the_log_partition_of_dv_has_a_floor():
    """−log(2n − 1), however low the negatives: a simplex of four has them all at −100."""
    x = 20 * (torch.eye(4, dtype=torch.float64) - 1 / 4)
    assert ContrastiveLoss(DV(), DotProduct())(x, x).item() == pytest.approx(-300 - 100)
    for devices, share in ((1, 4), (2, 2)):
        loss = ContrastiveLoss(Released(DV(), devices), DotProduct())
        assert loss(x, x).item() == pytest.approx(-300 - math.log(2 * share - 1), rel=1e-12)


@pytest.mark.parametrize("name", ["dv", "js", "nwj"])
def test_one_device_differs_by_a_weight_and_a_constant(name):
    """(m E φ + φ(0)) / (m + 1) with m = 2N − 2, where DV's two logarithms see the same scores."""
    x = torch.randn(5, D, dtype=torch.float64)
    scores = ContrastiveLoss(OBJECTIVE[name], DotProduct()).scores(x, x)
    m, negatives = 8, scores.negatives
    pull = scores.average(scores.positives)
    expected = {
        "dv": pull - torch.log((m * negatives.log_mean_exp().exp() + 1) / (m + 1)),
        "nwj": pull - (m * negatives.mean(lambda f: (f - 1).exp()) + math.exp(-1)) / (m + 1),
        "js": -scores.average(softplus(-scores.positives))
        - (m * negatives.mean(softplus) + math.log(2)) / (m + 1),
    }
    torch.testing.assert_close(Released(OBJECTIVE[name])(scores), expected[name])


def test_nothing_overflows():
    x = torch.full((4, 1), 12.0).requires_grad_()
    for name in ("dv", "cpc", "js"):
        value = ContrastiveLoss(Released(OBJECTIVE[name], 2), DotProduct())(x, x)
        assert value.isfinite()
        (gradient,) = torch.autograd.grad(value, x)
        assert gradient.isfinite().all()


def test_the_vocabulary_of_negatives_is_whole():
    """What no formula asks for today agrees with a matrix that has the zeros as columns."""
    from relatum.objectives.released import _ZeroKept

    x = torch.randn(4, D, dtype=torch.float64)
    scores = ContrastiveLoss(JS(), DotProduct()).scores(x, x)
    kept = _ZeroKept(scores, 4, 4)
    z = torch.cat([x, x])
    negative = ~torch.eye(4, dtype=torch.bool).repeat(2, 2)
    rows = torch.cat([(z @ z.T)[negative].reshape(8, 6), torch.zeros(8, 1)], 1)
    assert kept.counts.tolist() == [7] * 8
    torch.testing.assert_close(kept.logsumexp(), rows.logsumexp(1))
    torch.testing.assert_close(kept.max(), rows.amax(1))
    torch.testing.assert_close(torch.stack([*kept.moments()])[0], rows.mean())
    torch.testing.assert_close(torch.stack([*kept.moments()])[1], rows.square().mean())


@pytest.mark.parametrize("objective", [WPC(), Hinge(), Logistic(), Released(RPC()), RPC])
def test_other_objectives_are_refused(objective):
    with pytest.raises(TypeError, match="computes CPC, DV, JS, NWJ and RPC alone"):
        Released(objective)


def test_devices_that_cannot_be():
    with pytest.raises(ValueError, match="devices must be a whole number of at least 1, got 0"):
        Released(RPC(), 0)
    x = torch.randn(6, D)
    for devices in (4, 6):
        loss = ContrastiveLoss(Released(NWJ(), devices), DotProduct())
        with pytest.raises(ValueError, match=f"at least 2 to each, got devices {devices} for 6"):
            loss(x, x)


def test_other_scores_are_refused():
    x, message = torch.randn(6, D), "the released arithmetic is that of pairing 'two_view'"
    for name in OBJECTIVE:
        loss = Released(OBJECTIVE[name])
        for pairing in ("in_batch", "in_batch_symmetric"):
            with pytest.raises(ValueError, match=message):
                ContrastiveLoss(loss, DotProduct(), pairing)(x, x)
        with pytest.raises(ValueError, match=message):
            ContrastiveLoss(loss, DotProduct())(x, x, ids=torch.arange(6) // 2)
        with pytest.raises(ValueError, match=message):
            ContrastiveLoss(loss, DotProduct())(x, x, negatives=torch.randn(3, D))
        with pytest.raises(ValueError, match=message):
            loss(from_matrix(torch.randn(4, 4)))
        with pytest.raises(ValueError, match=message):
            ContrastiveLoss(loss, Cosine(), positive_prior=0.1)
        with pytest.raises(TypeError, match="needs every score of its negatives"):
            ContrastiveLoss(loss, DotProduct()).statistics(x, x)


def test_the_spectral_loss_is_an_rpc():
    x = torch.randn(4, D)
    plain = ContrastiveLoss(OBJECTIVES["chi2"](), DotProduct())
    torch.testing.assert_close(
        ContrastiveLoss(Released(plain.objective), DotProduct())(x, x), plain(x, x)
    )


def losses_and_gradients(rank, size):
    """Eight images on four devices, shared evenly or, where no logarithm minds, unevenly."""
    torch.manual_seed(0)
    x, y = torch.randn(2, 8, D, dtype=torch.float64)
    group, found = Group.world(), {}
    for name, first in [(name, 4) for name in OBJECTIVE] + [("rpc", 3), ("nwj", 5), ("cpc", 3)]:
        mine = slice(None) if size == 1 else (slice(0, first), slice(first, 8))[rank]
        encoder = torch.nn.Parameter(torch.eye(D).double())
        loss = ContrastiveLoss(Released(OBJECTIVE[name], 4), DotProduct(), group=group)
        value = loss(x[mine] @ encoder, y[mine] @ encoder)
        value.backward()
        average_gradients([encoder], group)
        found[name, first] = value.detach(), encoder.grad
    mine = slice(None) if size == 1 else (slice(0, 3), slice(3, 8))[rank]
    if size > 1:
        with pytest.raises(ValueError, match="each process needs whole devices of 2 images"):
            ContrastiveLoss(Released(DV(), 4), DotProduct(), group=group)(x[mine], y[mine])
    return found


def test_two_processes_equal_one():
    truth = losses_and_gradients(0, 1)
    for found in processes.run(losses_and_gradients, 2):
        for case, values in found.items():
            for one, other in zip(values, truth[case], strict=True):
                torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-12, msg=str(case))

"""Faults that people reported in public, each with its right value (computed in float64)."""

import math

import numpy as np
import pytest
import torch

from relatum import (
    CPC,
    DV,
    JS,
    NWJ,
    OBJECTIVES,
    RPC,
    WPC,
    Bilinear,
    ContrastiveLoss,
    Cosine,
    DotProduct,
    Hinge,
    JointMLP,
    Logistic,
    gradient_penalty,
)
from relatum.scores import from_matrix

DOUBLE = torch.float64


def t(rows, dtype=DOUBLE):
    return torch.tensor(rows, dtype=dtype)


def assert_near(value, expected, tolerance=1e-9):
    assert abs(float(value.detach()) - expected) <= tolerance, (float(value.detach()), expected)


def nt_xent(temperature, pairing="two_view"):
    return ContrastiveLoss(CPC(), Cosine(temperature), pairing)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, DOUBLE])
def test_masks_fit_every_dtype(dtype):
    z = torch.eye(4, dtype=dtype).requires_grad_()
    loss = nt_xent(0.5)(z, z.detach())
    assert_near(loss, math.log1p(6 * math.exp(-2)), 1e-2 if dtype.itemsize == 2 else 1e-6)
    loss.backward()
    assert z.grad.isfinite().all()
    assert loss.dtype == (DOUBLE if dtype == DOUBLE else torch.float32)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, DOUBLE])
def test_zero_vector_is_similar_to_nothing(dtype):
    x, y = t([[0, 0], [1, 0]], dtype).requires_grad_(), t([[1, 0], [0, 1]], dtype)
    for pairing, expected in (("in_batch", 1.0032044340), ("two_view", 1.3250285013)):
        loss = nt_xent(1.0, pairing)(x, y)
        assert_near(loss, expected, 1e-9 if dtype == DOUBLE else 1e-6)
        (grad,) = torch.autograd.grad(loss, x)
        assert grad.isfinite().all()


def test_mean_of_logs_not_log_of_mean():
    x, y = t([[1, 0], [0, 1]]), t([[1, 0], [0.6, 0.8]])
    assert_near(nt_xent(1.0, "in_batch")(x, y), 0.4420579592)


def test_no_epsilon_inside_the_ratio():
    x, y = t([[1], [1]]), t([[-1], [-1]])
    assert_near(ContrastiveLoss(CPC(), DotProduct(0.05), "in_batch")(x, y), math.log(2), 1e-12)


def test_worked_example():
    z = t([[1, 0], [0, 1]])
    assert_near(nt_xent(0.5)(z, z), 0.2395447662218846, 1e-12)


@pytest.mark.parametrize(
    ("temperature", "values"),
    [
        (0.5, (0.2775007034, 0.3199716317, 0.2987361672, 0.5275868568)),
        (0.1, (0.0092426671, 0.0634867050, 0.0363646861, 0.0691511218)),
    ],
)
def test_directions(temperature, values):
    x, y = t([[1, 0], [0, 1]]), t([[1, 0], [0.6, 0.8]])
    forward, backward, both, views = values
    assert_near(nt_xent(temperature, "in_batch")(x, y), forward)
    assert_near(nt_xent(temperature, "in_batch")(y, x), backward)
    assert_near(nt_xent(temperature, "in_batch_symmetric")(x, y), both)
    assert_near(nt_xent(temperature, "in_batch_symmetric")(y, x), both)
    assert_near(nt_xent(temperature)(x, y), views)


def test_temperature_divides_positives_too():
    x, y, negative = t([[1, 0]]), t([[0.6, 0.8]]), t([[0, 1]])
    assert_near(nt_xent(0.1, None)(x, y, negatives=negative), 0.0024756851)


def test_shared_and_own_negatives():
    q = torch.eye(2, dtype=DOUBLE)
    negatives = t([[1, 0], [-1, 0], [0, 1], [0, -1]])
    loss = ContrastiveLoss(CPC(), DotProduct())
    assert_near(loss(q, q, negatives=negatives), 1.0546931995)
    assert_near(loss(q, q, negatives=negatives.reshape(2, 2, 2)), 0.7586236757)


@pytest.mark.parametrize(
    ("a", "b"),
    [((64, 320), (24, 320)), ((8, 20, 128), (8, 20, 128)), ((4, 8), (1, 8)), ((4,), (4,))],
)
def test_shapes_are_named(a, b):
    with pytest.raises(ValueError, match=r"x has shape \(.*\), y \(.*\)"):
        nt_xent(0.5)(torch.randn(a), torch.randn(b))


def test_stabiliser_is_per_row():
    """One row of negatives at 100, one at 0, no square to hide in: mean log-sum-exp 50.69."""
    scores = t([[0, 0, 0], [0, 100, 100]])
    x, negatives = torch.eye(2, dtype=DOUBLE), scores[:, 1:].T
    made = ContrastiveLoss(DV(), DotProduct()).scores(
        x, torch.zeros(2, 2, dtype=DOUBLE), negatives=negatives
    )
    assert_near(made.negatives.logsumexp().mean(), 50 + math.log(2))


def test_gradient_of_the_stabiliser():
    logits = t([[2, 1, 0]]).requires_grad_()
    candidates = torch.eye(3, dtype=DOUBLE)
    loss = ContrastiveLoss(CPC(), DotProduct())(logits, candidates[:1], negatives=candidates[1:])
    assert_near(loss, 0.4076059644)
    loss.backward()
    expected = t([[-0.3347590442, 0.2447284711, 0.0900305732]])
    torch.testing.assert_close(logits.grad, expected, rtol=0, atol=1e-9)


def test_padding_is_removed():
    x, y = t([[1.0], [1.0]]), t([[5.0], [3.0]])
    negatives = t([[[2], [1], [0]], [[0], [0], [0]]])
    mask = torch.tensor([[True, True, False], [True, False, False]])
    loss = ContrastiveLoss(CPC(), DotProduct())
    assert_near(loss(x, y, negatives=negatives, negative_mask=mask), 0.0572356277)


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_everything_masked_is_an_error(objective):
    loss = ContrastiveLoss(OBJECTIVES[objective](), Cosine(0.5), "in_batch")
    with pytest.raises(ValueError, match="no negatives: none of the 3 anchors"):
        loss(torch.randn(3, 2), torch.randn(3, 2), ids=[4, 4, 4])
    for pairing in ("in_batch", "in_batch_symmetric", "two_view"):
        with pytest.raises(ValueError, match="no negatives"):
            ContrastiveLoss(OBJECTIVES[objective](), Cosine(0.5), pairing)(
                torch.randn(1, 2), torch.randn(1, 2)
            )


def test_one_masked_row_leaves_the_others_alone():
    x, y = torch.randn(2, 3, 4, dtype=DOUBLE)
    x = x.requires_grad_()
    negatives = torch.randn(3, 2, 4, dtype=DOUBLE)
    mask = torch.tensor([[True, True], [True, True], [False, False]])
    loss = nt_xent(0.5, None)
    some = loss(x, y, negatives=negatives, negative_mask=mask)
    alone = loss(x[:2], y[:2], negatives=negatives[:2])
    torch.testing.assert_close(some, alone)
    scores = loss.scores(x, y, negatives=negatives, negative_mask=mask)
    assert scores.uncontrasted == 1
    (grad,) = torch.autograd.grad(some, x)
    (expected,) = torch.autograd.grad(alone, x)
    torch.testing.assert_close(grad, expected)


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
def test_tiny_temperatures(dtype):
    a = torch.diag(t([100, 100], dtype)).requires_grad_()
    loss = ContrastiveLoss(CPC(), DotProduct(0.1), "in_batch")
    assert_near(loss(a, a.detach()), 0.0, 1e-6)
    swapped = loss(a, a.detach().flip(0))
    assert_near(swapped, 100_000.0, 1.0)
    swapped.backward()
    assert a.grad.isfinite().all()


@pytest.mark.parametrize("n", [2, 64])
def test_collapse_floor(n):
    z = torch.ones(n, 3, dtype=DOUBLE)
    assert_near(nt_xent(0.5, "in_batch")(z, z), math.log(n))
    assert_near(nt_xent(0.5)(z, z), math.log(2 * n - 1))


def test_duplicates_by_id_not_by_value():
    x = t([[1, 0], [1, 0], [0, 1]])
    assert_near(nt_xent(0.1, "in_batch")(x, x), 0.4621435188)
    assert_near(nt_xent(0.1, "in_batch")(x, x, ids=[7, 7, 9]), 0.0000605312)
    same = torch.ones(2, 2, dtype=DOUBLE)
    assert_near(
        nt_xent(0.1, None)(same, same, negatives=torch.ones(2, 4, 2, dtype=DOUBLE)), math.log(5)
    )


L30 = torch.full((3, 3), -1.0, dtype=DOUBLE).fill_diagonal_(0) + torch.diag(t([1, 2, 3]))


@pytest.mark.parametrize(
    ("objective", "value"),
    [
        (DV(), 3.0),
        (NWJ(), 1.8646647168),
        (JS(), -0.4761873709),
        (RPC(1, 0.005, 1), 2.4883333333),
        (RPC(1, 1, 1), 0.1666666667),
        (RPC(0.3, 0.001, 0.1), 2.2476666667),
    ],
)
def test_values_of_one_matrix(objective, value):
    assert_near(objective(from_matrix(L30)), value)
    loss = ContrastiveLoss(objective, DotProduct(), "in_batch")(L30, torch.eye(3, dtype=DOUBLE))
    assert_near(loss, -value)


def test_constant_scores():
    zeros, ones = (from_matrix(torch.full((4, 4), c, dtype=DOUBLE)) for c in (0.0, 1.0))
    assert_near(JS()(zeros), -2 * math.log(2))
    assert_near(NWJ()(zeros), -0.3678794412)
    assert_near(NWJ()(ones), 0.0)


def test_saturated_softplus():
    assert_near(JS()(from_matrix(torch.full((2, 2), 40.0))), -40.0, 1e-5)
    x = torch.full((2, 1), math.sqrt(12), dtype=torch.bfloat16).requires_grad_()
    loss = ContrastiveLoss(JS(), DotProduct(), "in_batch")(x, x.detach())
    loss.backward()
    assert loss.isfinite()
    assert x.grad.isfinite().all()


def test_saturated_cpc_keeps_its_gradient():
    """f − logaddexp(f, lse) loses it: the gradient must be softmax to full relative precision."""
    x = t([[1.0, 0.0], [0.0, 1.0]], torch.float32).requires_grad_()
    nt_xent(0.02, "in_batch")(x, x.detach()).backward()
    double = x.detach().double().requires_grad_()
    nt_xent(0.02, "in_batch")(double, double.detach()).backward()
    # Of a gradient of 1e-21, to rounding; its part along the direction is 0 but for that.
    rounding = 1e-6 * float(double.grad.abs().max())
    torch.testing.assert_close(x.grad.double(), double.grad, rtol=1e-4, atol=rounding)
    assert (double.grad != 0).any()


def test_gradient_penalty_of_a_constant_critic():
    weight = torch.zeros(1, requires_grad=True)
    x = torch.randn(3, 2)

    def critic(a, b):
        return weight * (a * b).sum(1)

    for one_sided, expected in ((True, 0.0), (False, 1.0)):
        penalty = gradient_penalty(critic, x, x, one_sided=one_sided)
        assert_near(penalty, expected, 0)
        (grad,) = torch.autograd.grad(penalty, weight)
        assert grad.isfinite().all()


def test_gradient_penalty_of_a_linear_critic():
    """f = 3 a₁ + 4 b₁ has gradient norm 5 everywhere: (5 − target)², slope 2 (5 − target)."""
    scale = torch.tensor(1.0, requires_grad=True)
    x = torch.randn(4, 2)
    penalty = gradient_penalty(lambda a, b: scale * (3 * a[:, 0] + 4 * b[:, 0]), x, x, target=2.0)
    assert_near(penalty, 9.0, 1e-5)
    (grad,) = torch.autograd.grad(penalty, scale)
    assert_near(grad, 2 * 3 * 5, 1e-4)
    with pytest.raises(ValueError, match="one score per pair"):
        gradient_penalty(lambda a, b: a * b, x, x)
    with pytest.raises(ValueError, match="target must be at least 0"):
        gradient_penalty(lambda a, b: (a * b).sum(1), x, x, target=-1.0)


def test_gradient_penalty_of_one_number_per_pair():
    a, b = torch.randn(2, 4)
    assert_near(gradient_penalty(lambda a, b: 3 * a + 4 * b, a, b), (5 - 1) ** 2, 1e-5)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int32, torch.int16, torch.int64, torch.bool])
def test_ids_of_any_integer_type(dtype):
    x = torch.randn(2, 3)
    ids = torch.tensor([0, 1]).to(dtype)
    plain = nt_xent(0.5)(x, x.flip(0))
    torch.testing.assert_close(nt_xent(0.5)(x, x.flip(0), ids=ids), plain)
    torch.testing.assert_close(nt_xent(0.5)(x, x.flip(0), ids=ids.numpy()), plain)


def test_types_are_named():
    x = torch.randn(3, 2)
    with pytest.raises(TypeError, match="x must be floating point, got torch.int64"):
        nt_xent(0.5)(torch.ones(3, 2).long(), x)
    with pytest.raises(TypeError, match="ids must be integers, got torch.float32"):
        nt_xent(0.5)(x, x, ids=torch.ones(3))
    with pytest.raises(ValueError, match=r"ids must have shape \(3,\), got \(2,\)"):
        nt_xent(0.5)(x, x, ids=[1, 2])
    with pytest.raises(TypeError, match="negative_mask must be boolean"):
        nt_xent(0.5, None)(x, x, negatives=x, negative_mask=torch.ones(3, 3))
    with pytest.raises(ValueError, match="x is on cpu, y on meta"):
        nt_xent(0.5)(x, x.to("meta"))


def test_strided_inputs():
    big = torch.randn(6, 8, dtype=DOUBLE)
    for a, b in (
        (big[:, ::2], big[:, 1::2]),
        (big.t(), big.t().flip(1)),
        (big[:1].expand(6, 8), big),
    ):
        x, y = a.clone().requires_grad_(), b.clone()
        strided = a.detach().requires_grad_()
        torch.testing.assert_close(nt_xent(0.5)(strided, b), nt_xent(0.5)(x, y))
    array = big.numpy()[::-1, ::-1]
    reverse = torch.from_numpy(array.copy())
    torch.testing.assert_close(nt_xent(0.5)(array, array), nt_xent(0.5)(reverse, reverse))
    frozen = np.asfortranarray(array)
    frozen.setflags(write=False)
    torch.testing.assert_close(nt_xent(0.5)(frozen, frozen), nt_xent(0.5)(reverse, reverse))


@pytest.mark.parametrize("name", ["labels", "targets", "soft_targets"])
def test_supervised_forms_are_refused(name):
    x = torch.randn(3, 2)
    with pytest.raises(TypeError, match=f"{name}= is not supported"):
        nt_xent(0.5)(x, x, **{name: torch.arange(3)})
    with pytest.raises(TypeError, match="unknown argument 'idz'; the nearest is 'ids'"):
        nt_xent(0.5)(x, x, idz=torch.arange(3))


def test_pairings_that_do_not_fit_are_refused():
    x = torch.randn(3, 2)
    for critic in (Bilinear(2, 2), JointMLP(2, 2)):
        with pytest.raises(ValueError, match="two_view"):
            ContrastiveLoss(CPC(), critic, "two_view")
        with pytest.raises(ValueError, match="two_view"):
            ContrastiveLoss(CPC(), critic)(x, x)
        assert ContrastiveLoss(CPC(), critic)(x, x, negatives=x).isfinite()
    for pairing in ("two_view", "in_batch_symmetric"):
        with pytest.raises(ValueError, match="does not go with"):
            nt_xent(0.5, pairing)(x, x, negatives=x)
    with pytest.raises(ValueError, match="the nearest is 'in_batch'"):
        nt_xent(0.5, "inbatch")
    with pytest.raises(TypeError, match=r"such as RPC\(\)"):
        ContrastiveLoss(RPC, Cosine(0.5))
    with pytest.raises(ValueError, match="block_size must be a whole number of at least 1, got 0"):
        ContrastiveLoss(RPC(), Cosine(0.5), block_size=0)
    with pytest.raises(ValueError, match="one width"):
        ContrastiveLoss(RPC(), DotProduct(), "two_view")(torch.randn(3, 1), torch.randn(3, 2))
    with pytest.raises(ValueError, match="one width"):
        ContrastiveLoss(RPC(), DotProduct(), "in_batch")(torch.randn(3, 1), torch.randn(3, 2))


def test_sign_and_offset():
    """loss = −J, except log K − J for CPC and WPC, K being each anchor's own candidates."""
    x, y = torch.randn(2, 5, 3, dtype=DOUBLE)
    for pairing, k in (("in_batch", 5), ("in_batch_symmetric", 5), ("two_view", 9)):
        for name, make in OBJECTIVES.items():
            loss = ContrastiveLoss(make(), Cosine(0.5), pairing)
            offset = math.log(k) if name in ("cpc", "wpc") else 0.0
            torch.testing.assert_close(loss(x, y), offset - make()(loss.scores(x, y)))
    bank, own = torch.randn(6, 3, dtype=DOUBLE), torch.randn(5, 4, 3, dtype=DOUBLE)
    for negatives, k in ((bank, 7), (own, 5)):
        loss = nt_xent(0.5, None)
        j = CPC()(loss.scores(x, y, negatives=negatives))
        torch.testing.assert_close(loss(x, y, negatives=negatives), math.log(k) - j)


def test_logistic_is_nt_xent_in_bits_and_hinge_is_the_triplet_margin():
    x, y = torch.randn(2, 5, 3, dtype=DOUBLE)
    bits = ContrastiveLoss(Logistic(), Cosine(0.5))(x, y)
    torch.testing.assert_close(bits * math.log(2), nt_xent(0.5)(x, y))
    torch.testing.assert_close(ContrastiveLoss(WPC(), Cosine(0.5))(x, y), nt_xent(0.5)(x, y))
    negative = torch.randn(5, 1, 3, dtype=DOUBLE)
    hinge = ContrastiveLoss(Hinge(), DotProduct())(x, y, negatives=negative)
    margin = (1 + (x * negative[:, 0]).sum(1) - (x * y).sum(1)).clamp(min=0).mean()
    torch.testing.assert_close(hinge, margin)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("temperature", [0.5, 0.01])
@pytest.mark.parametrize("objective", ["cpc", "dv", "js", "rpc"])
def test_autocast_keeps_scores_wide(dtype, temperature, objective):
    x, y = torch.randn(2, 64, 16).to(dtype)
    for block_size in (None, 20):
        loss = ContrastiveLoss(OBJECTIVES[objective](), Cosine(temperature), "two_view", block_size)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            half = loss(x, y)
        exact = loss(x.double(), y.double())
        assert half.dtype == torch.float32
        torch.testing.assert_close(half.double(), exact, rtol=2e-5, atol=2e-5)

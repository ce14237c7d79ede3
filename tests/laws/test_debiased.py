"""Debiased negatives against loops, enumerated laws and the published formula."""

import itertools
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from relatum import (
    CPC,
    DV,
    JS,
    NWJ,
    OBJECTIVES,
    RPC,
    Bilinear,
    ContrastiveLoss,
    Cosine,
    DotProduct,
    Group,
    Hinge,
    JointMLP,
    TwoTower,
)
from relatum.distributed import average_gradients
from relatum.scores import checked_prior, debiased, from_matrix
from tests.laws import processes, reference
from tests.laws.test_losses import GIVEN, IDS, STRATEGIES, SYMMETRIC, _critics, _given, _gradients

D, N, PRIOR = 3, 5, 0.3
PAIRINGS = ["two_view", "in_batch", "in_batch_symmetric"]
ANY_CRITIC = ["rpc", "chi2", "js"]
EXPONENTIALS = [name for name in OBJECTIVES if name not in (*ANY_CRITIC, "hinge")]


def lowest_score(name, critic):
    """The lowest score, from the definition of the critic; None if there is none."""
    if name == "cosine-learned":
        return -critic.temperature.log_scale.exp()
    numbers = {"cosine": -1 / 0.4, "two-tower": -1.0}
    return torch.tensor(numbers[name], dtype=torch.float64) if name in numbers else None


def estimate(observed, positive, lowest=None):
    """(E_neg φ − τ E_pos φ) / (1 − τ), floored if there is a floor, and whether that held."""
    value = (observed - PRIOR * positive) / (1 - PRIOR)
    if lowest is None or value > torch.exp(lowest):
        return value, False
    return torch.exp(lowest), True


def debiased_loss(name, positives, negatives, lowest):
    """(the loss by the definitions, loop by loop; for each estimate whether its floor held)."""
    every = [f for row in negatives for f in row]

    def true_mean(phi, floor=None):
        return estimate(
            sum(map(phi, every)) / len(every), sum(map(phi, positives)) / len(positives), floor
        )

    def mean(values):
        return sum(values) / len(values)

    if name in ("cpc", "wpc", "logistic"):
        losses, floors = [], []
        for f, row in zip(positives, negatives, strict=True):
            if row:
                value, floored = estimate(mean([g.exp() for g in row]), f.exp(), lowest)
                losses.append(-torch.log(f.exp() / (f.exp() + len(row) * value)))
                floors.append(floored)
        return mean(losses) / (math.log(2) if name == "logistic" else 1), floors
    if name in ("dv", "nwj"):
        value, floored = true_mean(torch.exp, lowest)
        penalty = value.log() if name == "dv" else value / math.e
        return penalty - mean(positives), [floored]
    if name == "js":
        value, _ = true_mean(lambda f: (1 + f.exp()).log())
        return mean([(1 + (-f).exp()).log() for f in positives]) + value, []
    alpha, beta, gamma = (1.0, 0.005, 1.0) if name == "rpc" else (0.0, 0.0, 1.0)
    first, second = true_mean(lambda f: f)[0], true_mean(lambda f: f * f)[0]
    squares = mean([f * f for f in positives])
    return alpha * first + gamma / 2 * second + beta / 2 * squares - mean(positives), []


def check_against_loops(name, pairing, ids, monkeypatch, nearness=1.0):
    """Every objective and strategy, value and gradients; {objective: where the floor held}."""
    torch.manual_seed(1)
    critic = _critics()[name].double()
    x = torch.randn(N, D, dtype=torch.float64)
    # Some partners are near and some are far: estimates of both kinds.
    y = x * torch.linspace(0, 3, N)[:, None] * nearness + torch.randn(N, D, dtype=torch.float64)
    x, y = x.requires_grad_(), y.requires_grad_()
    keywords, listed, extra, given_as = {}, {}, None, pairing
    if pairing in GIVEN:
        keywords, listed, extra = _given(pairing, N, x)
        given_as = None
    elif IDS[ids] is not None:
        keywords, listed = {"ids": torch.tensor(IDS[ids])[:N]}, {"ids": IDS[ids][:N]}
    tensors = [x, y, *critic.parameters(), *([extra] if extra is not None else [])]
    scores = reference.score_lists(critic, x, y, extra, *reference.pairs(pairing, N, **listed))
    lowest, held = lowest_score(name, critic), {}
    for objective in [*ANY_CRITIC, *(EXPONENTIALS if lowest is not None else [])]:
        slow, held[objective] = debiased_loss(objective, *scores, lowest)
        slow_gradients = _gradients(slow, tensors)
        for block_size, change in STRATEGIES.values():
            with monkeypatch.context() as patch:
                if change is not None:
                    patch.setattr(*change)
                fast = ContrastiveLoss(
                    OBJECTIVES[objective](), critic, given_as, block_size, positive_prior=PRIOR
                )(x, y, **keywords)
            what = f"{objective}, block_size {block_size}, {change and change[1]}"
            torch.testing.assert_close(fast, slow, rtol=1e-12, atol=1e-12, msg=what)
            for a, b in zip(_gradients(fast, tensors), slow_gradients, strict=True):
                torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-12, msg=what)
    return held


def cases():
    for critic, pairing in itertools.product(_critics(), PAIRINGS):
        if pairing != "two_view" or critic in SYMMETRIC:
            yield critic, pairing


@pytest.mark.parametrize("ids", ["none", "groups", "nobody"])
@pytest.mark.parametrize(("critic", "pairing"), list(cases()))
def test_batch_pairings_equal_loops(critic, pairing, ids, monkeypatch):
    held = check_against_loops(critic, pairing, ids, monkeypatch)
    if ids == "none" and critic.startswith("cosine"):
        assert set(held["cpc"]) == {True, False}


@pytest.mark.parametrize("pairing", GIVEN)
@pytest.mark.parametrize("critic", ["cosine-learned", "two-tower", "joint"])
def test_given_negatives_equal_loops(critic, pairing, monkeypatch):
    check_against_loops(critic, pairing, "none", monkeypatch)


@pytest.mark.parametrize("pairing", PAIRINGS)
def test_the_floor_of_the_pooled_mean(pairing, monkeypatch):
    """Far partners leave something of the mean over all negatives, near ones only its floor."""
    for nearness, floored in ((-1.0, False), (100.0, True)):
        held = check_against_loops("cosine-learned", pairing, "none", monkeypatch, nearness)
        assert held["dv"] == held["nwj"] == [floored]


@pytest.mark.parametrize("objective", [*ANY_CRITIC, *EXPONENTIALS])
@pytest.mark.parametrize("block_size", [None, 3])
def test_gradcheck(objective, block_size):
    torch.manual_seed(2)
    critic = Cosine(0.4, learn=True).double()
    loss = ContrastiveLoss(
        OBJECTIVES[objective](), critic, "in_batch", block_size, positive_prior=PRIOR
    )
    x, noise = torch.randn(2, N, D, dtype=torch.float64)
    y = (x * torch.linspace(-1, 1, N)[:, None] + noise / 2).requires_grad_()

    def of_all(x, y, log_scale):
        return torch.func.functional_call(loss, {"critic.temperature.log_scale": log_scale}, (x, y))

    log_scale = critic.temperature.log_scale.detach().clone().requires_grad_()
    assert torch.autograd.gradcheck(of_all, (x.requires_grad_(), y, log_scale))
    if block_size is None:
        assert torch.autograd.gradgradcheck(loss, (x, y))


def latent_classes(classes=3, points=2):
    """All batches of two pairs with their probabilities, and scores f(a, b) of all points.

    A pair is two independent draws from one class, so the share of a negative's draws that come
    from the anchor's class is 1 / classes.
    """
    torch.manual_seed(4)
    table = torch.rand(classes * points, classes * points, dtype=torch.float64) - 0.5
    law = torch.rand(classes, points, dtype=torch.float64) + 0.2
    law = law / law.sum(1, keepdim=True)
    pairs = [
        (float(law[c, a] * law[c, b]) / classes, c * points + a, c * points + b)
        for c, a, b in itertools.product(range(classes), range(points), range(points))
    ]
    # x from one class, y from another: the law of true negatives.
    weight = law.flatten()[:, None] * law.flatten()[None] / (classes * (classes - 1))
    of = torch.arange(classes).repeat_interleave(points)
    weight = weight.masked_fill(of[:, None] == of[None], 0)
    return table, pairs, weight


@pytest.mark.parametrize("pairing", ["in_batch", "in_batch_symmetric"])
def test_expectations_are_those_of_true_negatives(pairing):
    """Over every batch that can be drawn; scores are so near that no floor holds in any."""
    table, pairs, weight = latent_classes()
    assert abs(weight.sum().item() - 1) < 1e-12
    assert sum(p for p, _, _ in pairs) == pytest.approx(1, abs=1e-12)
    critic = Bilinear(6, 6).double()
    critic.weight.data.copy_(table)
    loss = ContrastiveLoss(RPC(), critic, pairing)
    points, softplus = torch.eye(6, dtype=torch.float64), nn.functional.softplus
    found = 0
    for (p, a, b), (q, c, d) in itertools.product(pairs, repeat=2):
        scores = debiased(loss.scores(points[[a, c]], points[[b, d]]), 1 / 3, -50.0)
        negatives = scores.negatives
        found = found + p * q * torch.stack(
            [
                *negatives.moments(),
                negatives.mean(softplus),
                negatives.log_mean_exp().exp(),
                negatives.logsumexp().exp().mean(),
            ]
        )
    true = [table, table.square(), softplus(table), table.exp(), table.exp()]
    expected = torch.stack([(weight * values).sum() for values in true])
    torch.testing.assert_close(found.detach(), expected, rtol=1e-12, atol=1e-12)


# One anchor (1, 0), T = 1/2; its positive has cosine 0.6, its negatives 0 and −1. By hand:
# e^1.2 = 3.3201169, (e^0 + e^−2) / 2 = 0.5676676.
#   τ = 0.1: g = (0.5676676 − 0.3320117) / 0.9 = 0.2618399; −log(3.3201169 / (3.3201169 + 2 g))
#   τ = 0.17: g = (0.5676676 − 0.5644199) / 0.83 = 0.0039129 < e^−2 = 0.1353353, which stands for it
@pytest.mark.parametrize(("prior", "expected"), [(0.1, 0.1464606), (0.17, 0.0783715)])
def test_the_published_formula_by_hand(prior, expected):
    x, y = torch.tensor([[1.0, 0.0]]).double(), torch.tensor([[0.6, 0.8]]).double()
    negatives = torch.tensor([[[0.0, 1.0], [-1.0, 0.0]]]).double()
    loss = ContrastiveLoss(CPC(), Cosine(0.5), positive_prior=prior)(x, y, negatives=negatives)
    assert abs(loss.item() - expected) < 1e-7


@given(
    prior=st.floats(0.01, 0.9),
    alpha=st.floats(0, 2),
    beta=st.floats(0.01, 1),
    gamma=st.floats(0.01, 2),
    pairing=st.sampled_from(PAIRINGS),
)
@settings(max_examples=20, deadline=None)
def test_debiased_rpc_is_rpc_with_other_weights(prior, alpha, beta, gamma, pairing):
    """α and γ over 1 − τ, β less γτ/(1 − τ), E_P f times 1 + ατ/(1 − τ); statistics alike."""
    x, y = torch.randn(2, 6, D, dtype=torch.float64)
    loss = ContrastiveLoss(RPC(alpha, beta, gamma), DotProduct(), pairing, positive_prior=prior)
    scores, odds = loss.scores(x, y), prior / (1 - prior)
    (p, p2), (q, q2) = scores.positive_moments(), scores.negatives.moments()
    expected = (1 + alpha * odds) * p - alpha / (1 - prior) * q
    expected = expected - (beta - gamma * odds) / 2 * p2 - gamma / (1 - prior) / 2 * q2
    torch.testing.assert_close(loss(x, y), -expected)
    parts = [loss.statistics(x[at], y[at]) for at in (slice(0, 2), slice(2, 6))]
    torch.testing.assert_close(loss.from_statistics(parts[0].plus(parts[1])), -expected)


@given(
    objective=st.sampled_from(list(OBJECTIVES)),
    pairing=st.sampled_from(PAIRINGS),
    block_size=st.sampled_from([None, 2]),
    n=st.integers(2, 7),
    seed=st.integers(0, 999),
)
@settings(max_examples=40, deadline=None)
def test_a_prior_of_zero_is_the_plain_loss(objective, pairing, block_size, n, seed):
    x, y = torch.randn(2, n, D, generator=torch.Generator().manual_seed(seed)).double()
    arguments = OBJECTIVES[objective](), Cosine(0.5), pairing, block_size
    plain = ContrastiveLoss(*arguments)
    assert torch.equal(ContrastiveLoss(*arguments, positive_prior=0.0)(x, y), plain(x, y))
    if objective != "hinge":  # and nothing jumps there
        small = ContrastiveLoss(*arguments, positive_prior=1e-12)(x, y)
        torch.testing.assert_close(small, plain(x, y), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("top", [100.0, -100.0, 1e4, -1e4, 30.0])
@pytest.mark.parametrize("make", [CPC, DV])
def test_nothing_overflows(top, make):
    """One negative at a, the positive at a + s: log(e^a − τ e^(a + s)) = a + log(1 − τ e^s).

    With τ = ½ something is left for s = −1, and the floor stands for s = 1 and 200. Float32 holds
    no exponential beyond 88.
    """
    critic = DotProduct()
    critic.lowest = -2e4
    loss = ContrastiveLoss(make(), critic, "in_batch", positive_prior=0.5)
    left = top + math.log((1 - math.exp(-1) / 2) / 0.5)
    for step, log_true in ((-1.0, left), (1.0, -2e4), (200.0, -2e4)):
        scores = torch.full((2, 2), top).fill_diagonal_(top + step).requires_grad_()
        value = loss.from_scores(from_matrix(scores))
        gap = log_true - (top + step)
        # log(1 + e^gap); e^gap is nothing where the floor holds.
        expected = gap if make is DV else math.log1p(math.exp(gap))
        resolution = 2 * abs(top) * torch.finfo(torch.float32).eps
        assert value.item() == pytest.approx(expected, rel=1e-5, abs=1e-5 + resolution)
        (gradient,) = torch.autograd.grad(value, scores)
        assert gradient.isfinite().all()
        # Adding a number to all scores changes nothing unless the floor stays where it is.
        if step < 0:
            assert abs(gradient.sum().item()) < 1e-5 + resolution


def test_an_anchor_without_negatives_stays_uncontrasted():
    x = torch.randn(4, D, dtype=torch.float64).requires_grad_()
    mask = torch.tensor([[True, True], [False, False], [True, False], [True, True]])
    loss = ContrastiveLoss(CPC(), Cosine(0.5), positive_prior=PRIOR)
    scores = loss.scores(x, x.flip(0), negatives=torch.randn(4, 2, D), negative_mask=mask)
    true = debiased(scores, PRIOR, -2.0)
    assert true.negatives.logsumexp().isneginf().tolist() == [False, True, False, False]
    assert true.uncontrasted == 1
    assert true.negatives.counts.tolist() == [2, 0, 1, 2]
    (gradient,) = torch.autograd.grad(loss.from_scores(scores), x)
    assert gradient.isfinite().all()


@pytest.mark.parametrize("objective", [*ANY_CRITIC, *EXPONENTIALS])
def test_nothing_hides_a_nan(objective):
    x, bank = torch.randn(4, 2), torch.randn(5, 2)
    bank[2] = torch.nan
    loss = ContrastiveLoss(OBJECTIVES[objective](), Cosine(0.5), positive_prior=PRIOR)
    assert loss(x, x, negatives=bank).isnan()
    assert loss(torch.full((4, 2), torch.nan), x).isnan()


UNBOUNDED = {
    "dot": DotProduct(),
    "bilinear": Bilinear(D, D),
    "towers": TwoTower(nn.Linear(D, 4)),
    "joint": JointMLP(D, D, hidden=(4,)),
}


@pytest.mark.parametrize("critic", UNBOUNDED)
def test_what_has_no_debiased_form_is_refused_at_once(critic):
    for name in EXPONENTIALS:
        with pytest.raises(ValueError, match="needs a critic with a lowest score, such as Cosine"):
            ContrastiveLoss(OBJECTIVES[name](), UNBOUNDED[critic], positive_prior=0.1)
    for name in ANY_CRITIC:
        ContrastiveLoss(OBJECTIVES[name](), UNBOUNDED[critic], positive_prior=0.1)
    with pytest.raises(ValueError, match=r"Hinge with .*positive_prior=0\.1 .* maximum"):
        ContrastiveLoss(Hinge(), UNBOUNDED[critic], positive_prior=0.1)


@pytest.mark.parametrize("prior", [1, 1.0, -0.1, math.nan, math.inf, "0.1", None])
def test_a_prior_outside_its_range_is_refused(prior):
    message = r"positive_prior must be a number with 0 <= τ < 1, got "
    with pytest.raises(ValueError, match=message):
        checked_prior(prior)
    if isinstance(prior, float):
        with pytest.raises(ValueError, match=message):
            ContrastiveLoss(CPC(), Cosine(), positive_prior=prior)


def test_readings_of_plain_and_of_debiased_scores():
    """Scores stay as they are; whoever debiases them for a reading is told what that needs."""
    x = torch.randn(4, D)
    loss = ContrastiveLoss(JS(), DotProduct(), positive_prior=0.1)
    plain = ContrastiveLoss(JS(), DotProduct())
    scores = loss.scores(x, x)
    assert torch.equal(JS().mutual_information(scores), JS().mutual_information(plain.scores(x, x)))
    assert torch.equal(scores.negatives.max(), plain.scores(x, x).negatives.max())
    with pytest.raises(ValueError, match="needs a critic with a lowest score"):
        JS().mutual_information(debiased(scores, 0.1))
    assert "positive_prior=0.1" in repr(loss)
    assert "Debiased(τ=0.1, PooledNegatives(" in repr(debiased(scores, 0.1).negatives)


def test_lowest_scores():
    assert Cosine(0.5).lowest == pytest.approx(-2)
    assert TwoTower(nn.Identity(), temperature=0.1, normalize=True).lowest == pytest.approx(-10)
    assert TwoTower(nn.Identity()).lowest is None
    critic = Cosine(0.25, learn=True)
    x = torch.randn(1, D)
    torch.testing.assert_close(critic.lowest, critic(x, -x)[0])
    (gradient,) = torch.autograd.grad(critic.lowest, critic.temperature.log_scale)
    torch.testing.assert_close(gradient, torch.tensor(-4.0))


SHARES = {1: [9], 2: [5, 4]}
SHARED = [7, 7, 2, 3, 7, 5, 2, 8, -1]


def losses_and_gradients(rank, size):
    """Loss and averaged gradients of every objective, pairing and kind of ids."""
    torch.manual_seed(0)
    x, noise = torch.randn(2, 9, D, dtype=torch.float64)
    first = sum(SHARES[size][:rank])
    mine = slice(first, first + SHARES[size][rank])
    group, found = Group.world(), {}
    # Partners so near that every floor holds; some far; all far.
    for nearness, pairing, ids, name, block_size in itertools.product(
        (100, 1, 0), PAIRINGS, (None, SHARED), [*ANY_CRITIC, *EXPONENTIALS], (None, 2)
    ):
        y = x * nearness + noise
        critic, encoder = Cosine(0.5, learn=True).double(), nn.Parameter(torch.eye(D).double())
        loss = ContrastiveLoss(
            OBJECTIVES[name](), critic, pairing, block_size, group, positive_prior=PRIOR
        )
        given = {} if ids is None else {"ids": torch.tensor(ids)[mine]}
        value = loss(x[mine] @ encoder, y[mine] @ encoder, **given)
        value.backward()
        parameters = [encoder, *critic.parameters()]
        average_gradients(parameters, group)
        key = nearness, pairing, ids is None, name, block_size
        found[key] = [value.detach(), *(p.grad for p in parameters)]
    return found


def test_two_processes_equal_one():
    truth = losses_and_gradients(0, 1)
    for found in processes.run(losses_and_gradients, 2):
        assert found.keys() == truth.keys()
        for case, values in found.items():
            for a, b in zip(values, truth[case], strict=True):
                torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-12, msg=str(case))


def statistics_of_shares(rank, size):
    torch.manual_seed(0)
    x, y = torch.randn(2, 9, D, dtype=torch.float64)
    mine = slice(0, 5) if rank == 0 else slice(5, 9)
    mine = mine if size == 2 else slice(0, 9)
    loss = ContrastiveLoss(RPC(), DotProduct(), "in_batch", group=Group.world(), positive_prior=0.2)
    return loss.from_statistics(loss.statistics(x[mine], y[mine])), loss(x[mine], y[mine])


def test_statistics_of_two_processes():
    truth = statistics_of_shares(0, 1)[0]
    for values in processes.run(statistics_of_shares, 2):
        for value in values:
            torch.testing.assert_close(value, truth, rtol=1e-12, atol=1e-12)


def test_the_floor_of_nwj_is_a_known_number():
    """All positives perfect and all negatives orthogonal: J = 1/T − e^(−1/T − 1)."""
    x = torch.eye(4, dtype=torch.float64)
    loss = ContrastiveLoss(NWJ(), Cosine(0.5), "in_batch", positive_prior=0.4)
    assert loss(x, x).item() == pytest.approx(-2 + math.exp(-3), abs=1e-12)

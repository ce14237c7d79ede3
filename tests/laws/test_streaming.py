"""Moments of past steps: values by loops, expectations over every batch of a small population."""

import io
import itertools
import math

import pytest
import torch
from torch import nn

from relatum import RPC, ContrastiveLoss, Cosine, DotProduct
from relatum.distributed import ALONE, Group, average_gradients
from relatum.scores import MovingMoments
from tests.laws import processes, reference

PAIRINGS = ["two_view", "in_batch", "in_batch_symmetric"]
WEIGHTS = ALPHA, BETA, GAMMA = 0.7, 0.3, 1.3
OBJECTIVE = RPC(*WEIGHTS)
D, T = 3, 0.5


def normal(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def learned(critic=Cosine):
    return critic(T, learn=True).double()


def past_of(loss, decay, batches):
    """Moving moments that saw these batches."""
    past = MovingMoments(D, decay)
    for x, y in batches:
        past.update(loss.statistics(x, y))
    return past


# ---------------------------------------------------------------- nothing of the past


@pytest.mark.parametrize("pairing", PAIRINGS)
@pytest.mark.parametrize("case", ["decay 0", "empty past"])
def test_without_a_past_it_is_the_plain_loss(pairing, case):
    loss = ContrastiveLoss(OBJECTIVE, learned(), pairing)
    x, y = normal(2, 6, D).requires_grad_().unbind()
    past = MovingMoments(D, 0.9)
    if case == "decay 0":
        past = past_of(loss, 0.0, [normal(2, 4, D, seed=s) for s in (1, 2)])
    given = [x, y, *loss.parameters()]
    value = loss.from_statistics(loss.statistics(x, y), past)
    plain = loss(x, y)
    torch.testing.assert_close(value, plain, rtol=1e-13, atol=1e-13)
    for a, b in zip(*(torch.autograd.grad(v, given) for v in (value, plain)), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-13)


# ---------------------------------------------------------------- value and gradient by loops


def crossed(critic, pairing, x, y, batches, weights):
    """Moments over every row of the batch with every row of the past, for each role of the batch.

    A list of (E f, E f²): the batch's rows as anchors, then as candidates.
    """
    found = []
    for anchors_are_new in (True, False):
        sums = [0.0, 0.0]
        for (a, b), weight in zip(batches, weights, strict=True):
            new, old = [x, y], [a.detach(), b.detach()]
            if pairing == "two_view":
                new, old = [torch.cat(new)] * 2, [torch.cat(old)] * 2
            left, right = (new[0], old[1]) if anchors_are_new else (old[0], new[1])
            scores = [critic(u[None], v[None])[0] for u in left for v in right]
            sums[0] = sums[0] + weight * sum(scores) / len(scores)
            sums[1] = sums[1] + weight * sum(f * f for f in scores) / len(scores)
        found.append(sums)
    return found


@pytest.mark.parametrize("critic", [Cosine, DotProduct])
@pytest.mark.parametrize("pairing", PAIRINGS)
def test_value_and_gradient_by_loops(pairing, critic):
    """Weights (1 − λ)λ^k of the k-th last step over their sum; the gradient knows no half."""
    decay, loss = 0.6, ContrastiveLoss(OBJECTIVE, learned(critic), pairing)
    batches = [normal(2, n, D, seed=n) for n in (2, 5, 3)]  # sizes do not count, steps do
    weights = [(1 - decay) * decay**k / (1 - decay**3) for k in (2, 1, 0)]
    x, y = given = normal(2, 4, D).requires_grad_().unbind()
    past = past_of(loss, decay, batches)
    value = loss.from_statistics(loss.statistics(x, y), past)

    lists = reference.score_lists(loss.critic, x, y, None, *reference.pairs(pairing, 4))
    batch = reference.loss("rpc", *lists, alpha=ALPHA, beta=BETA, gamma=GAMMA)
    positives_alone = reference.loss("rpc", *lists, alpha=0.0, beta=BETA, gamma=0.0)
    crosses = crossed(loss.critic, pairing, x, y, batches, weights)
    negatives = [ALPHA * first + GAMMA / 2 * second for first, second in crosses]
    plain = (1 - decay) * batch + decay * positives_alone
    torch.testing.assert_close(value, plain + decay * sum(negatives) / 2, rtol=1e-12, atol=1e-12)
    expected = torch.autograd.grad(plain + decay * sum(negatives), given)
    for a, b in zip(torch.autograd.grad(value, given), expected, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("pairing", PAIRINGS)
def test_the_average_by_hand(pairing):
    decay, critic = 0.8, DotProduct(4.0)  # its factors are the rows over 2
    loss = ContrastiveLoss(OBJECTIVE, critic, pairing)
    batches = [normal(2, n, D, seed=n) for n in (3, 2, 4, 6)]
    for k in range(1, 5):
        past = past_of(loss, decay, batches[:k])
        assert float(past.weight) == pytest.approx(1 - decay**k, rel=1e-14)
        for side in (0, 1):
            mean, gram = torch.zeros(D).double(), torch.zeros(D, D).double()
            for age, batch in enumerate(reversed(batches[:k])):
                rows = torch.cat([*batch]) if pairing == "two_view" else batch[side]
                weight = (1 - decay) * decay**age / (1 - decay**k)
                for row in rows:
                    mean += weight * row / 2 / len(rows)
                    gram += weight * torch.outer(row, row) / 4 / len(rows)
            name = ("anchor", "candidate")[side]
            torch.testing.assert_close(getattr(past, f"{name}_mean") / past.weight, mean)
            torch.testing.assert_close(getattr(past, f"{name}_gram") / past.weight, gram)


# ---------------------------------------------------------------- expectations, all batches


P, N = 4, 2
"""Pairs of the population and of a batch: 6 batches without and 16 with replacement."""


class Encoders(nn.Module):
    """One for both sides if the pairing mixes them, else one each, from different widths."""

    def __init__(self, pairing):
        super().__init__()
        shared = pairing == "two_view"
        self.x = nn.Parameter(normal(4, D, seed=5))
        self.y = self.x if shared else nn.Parameter(normal(5, D, seed=6))
        self.population = normal(P, 4, seed=7), normal(P, 4 if shared else 5, seed=8)

    def forward(self, rows):
        x, y = self.population
        return torch.tanh(x[rows] @ self.x), torch.tanh(y[rows] @ self.y)


def population_objective(loss, pairing, encoders, own_pairs):
    """−J with E_P over the population and E_Q over pairs of its marginals, as tables.

    Without own pairs, Q is what a batch can see: no row with itself or its partner.
    """
    x, y = encoders(torch.arange(P))
    positives = loss.critic(x, y)
    if pairing == "two_view":
        x = y = torch.cat([x, y])
    table = loss.critic(x[:, None], y[None])
    if not own_pairs:
        image = torch.arange(len(x)) % P
        table = table[image[:, None] != image[None]]
    reward = positives.mean() - BETA / 2 * positives.square().mean()
    return -reward + ALPHA * table.mean() + GAMMA / 2 * table.square().mean()


def expected_gradient(loss, encoders, past, batches):
    """The mean gradient over equally likely batches."""
    values = [
        loss.from_statistics(loss.statistics(*encoders(torch.tensor(rows))), past)
        for rows in batches
    ]
    return torch.autograd.grad(sum(values) / len(values), parameters_of(loss, encoders))


def parameters_of(loss, encoders):
    return [*dict.fromkeys([*encoders.parameters(), *loss.parameters()])]


def past_of_population(loss, pairing, encoders, decay):
    """A past that is the population's moments, written into the buffers by loops."""
    past = MovingMoments(D, decay)
    with torch.no_grad():
        x, y = encoders(torch.arange(P))
        root = (loss.critic.temperature.log_scale / 2).exp()  # float32 rounded log T
        sides = [x, y] if pairing != "two_view" else [torch.cat([x, y])] * 2
        for name, rows in zip(("anchor", "candidate"), sides, strict=True):
            factor = [row / row.norm() * root for row in rows]
            getattr(past, f"{name}_mean").copy_(sum(factor) / len(factor))
            outer = sum(torch.outer(u, u) for u in factor) / len(factor)
            getattr(past, f"{name}_gram").copy_(outer)
        past.weight.fill_(1.0)
    return past


@pytest.mark.parametrize("pairing", PAIRINGS)
@pytest.mark.parametrize("decay", [0.0, 0.3, 0.9])
def test_the_expected_gradient_of_frozen_parameters(pairing, decay):
    r"""Over all batches, with the population as past.

    Drawn with replacement, a batch's negatives are pairs of independent rows, as are those with
    the past: exactly the gradient over the full product of marginals, for any decay. Drawn
    without, the batch's part excludes own pairs, and the past's does not: exactly (1 − λ) times
    the gradient without own pairs and λ times that with them.
    """
    loss, encoders = ContrastiveLoss(OBJECTIVE, learned(), pairing), Encoders(pairing)
    past = past_of_population(loss, pairing, encoders, decay)
    whole, without = (
        torch.autograd.grad(
            population_objective(loss, pairing, encoders, own), parameters_of(loss, encoders)
        )
        for own in (True, False)
    )
    tuples = list(itertools.product(range(P), repeat=N))
    subsets = list(itertools.combinations(range(P), N))
    independent = expected_gradient(loss, encoders, past, tuples)
    distinct = expected_gradient(loss, encoders, past, subsets)
    for a, b, c, d in zip(independent, distinct, whole, without, strict=True):
        assert (c - d).abs().max() > 1e-3  # the two targets do differ
        torch.testing.assert_close(a, c, rtol=1e-11, atol=1e-12)
        torch.testing.assert_close(b, (1 - decay) * d + decay * c, rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("pairing", PAIRINGS)
def test_a_past_of_independent_batches_has_no_bias(pairing):
    """Over all pasts of two batches too: moments are linear in each, so means go through."""
    loss, encoders = ContrastiveLoss(OBJECTIVE, learned(), pairing), Encoders(pairing)
    tuples = list(itertools.product(range(P), repeat=N))
    truth = torch.autograd.grad(
        population_objective(loss, pairing, encoders, True), parameters_of(loss, encoders)
    )
    total = [0.0] * len(truth)
    with torch.no_grad():
        seen = [loss.statistics(*encoders(torch.tensor(rows))) for rows in tuples]
    for first, second in itertools.product(seen, repeat=2):
        past = MovingMoments(D, 0.7)
        past.update(first)
        past.update(second)
        found = expected_gradient(loss, encoders, past, [tuples[6]])
        total = [t + g / len(seen) ** 2 for t, g in zip(total, found, strict=True)]
    # Of that one batch: its own part, and its part with the population.
    population = past_of_population(loss, pairing, encoders, 0.7)
    expected = expected_gradient(loss, encoders, population, [tuples[6]])
    for a, b, c in zip(total, expected, truth, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-11, atol=1e-12)
        assert (b - c).abs().max() > 1e-3  # a single batch is not the population


# ---------------------------------------------------------------- checkpoints, processes, errors


def steps(past, encoder, numbers, group=ALONE, mine=slice(None), pairing="in_batch"):
    """Values and gradients of SGD steps with moving moments."""
    loss, found = ContrastiveLoss(OBJECTIVE, DotProduct(T), pairing, group=group), []
    for number in numbers:
        x, y = (side[mine] @ encoder for side in normal(2, 9, D, seed=number))
        total = loss.statistics(x, y)
        value = loss.from_statistics(total, past)
        encoder.grad = None
        torch.autograd.backward(value)
        average_gradients([encoder], group)
        found += [value.detach(), encoder.grad.clone()]
        with torch.no_grad():
            encoder -= 0.01 * encoder.grad
        past.update(total, group)
    return found


@pytest.mark.parametrize("pairing", PAIRINGS)
def test_a_checkpoint_continues_exactly(pairing):
    encoder, past = nn.Parameter(torch.eye(D).double()), MovingMoments(D, 0.9)
    steps(past, encoder, range(3), pairing=pairing)
    file = io.BytesIO()
    torch.save({"encoder": encoder.detach(), "past": past.state_dict()}, file)
    file.seek(0)
    truth = steps(past, encoder, range(3, 6), pairing=pairing)

    saved = torch.load(file, weights_only=True)
    continued = MovingMoments(D, 0.9)
    continued.load_state_dict(saved["past"])
    again = steps(continued, nn.Parameter(saved["encoder"]), range(3, 6), pairing=pairing)
    assert all(torch.equal(a, b) for a, b in zip(truth, again, strict=True))
    forgotten = steps(
        MovingMoments(D, 0.9), nn.Parameter(saved["encoder"]), range(3, 6), pairing=pairing
    )
    assert not torch.equal(forgotten[0], truth[0])


SHARES = {1: [9], 2: [5, 4]}


def steps_of_processes(rank, size, group=None):
    """Values, averaged gradients and buffers after three steps, of every pairing."""
    group = Group.world() if group is None else group
    first = sum(SHARES[size][:rank])
    mine = slice(first, first + SHARES[size][rank])
    found = {}
    for pairing in PAIRINGS:
        encoder, past = nn.Parameter(torch.eye(D).double()), MovingMoments(D, 0.7)
        values = steps(past, encoder, range(3), group, mine, pairing)
        found[pairing] = [*values, *past.buffers(), encoder.detach()]
    return found


def test_two_processes_equal_one():
    truth = steps_of_processes(0, 1, ALONE)
    for found in processes.run(steps_of_processes, 2):
        for pairing, values in truth.items():
            for a, b in zip(found[pairing], values, strict=True):
                torch.testing.assert_close(a, b, rtol=1e-11, atol=1e-13, msg=pairing)


@pytest.mark.parametrize("decay", [1.0, 1, -0.1, 1.5, math.nan, math.inf])
def test_a_decay_outside_its_range_is_refused(decay):
    with pytest.raises(ValueError, match=rf"decay must be in \[0, 1\), got {decay}"):
        MovingMoments(D, decay)


@pytest.mark.parametrize("dim", [1, D + 1])
def test_a_past_of_another_width_is_refused(dim):
    """Also of width 1, which would broadcast."""
    loss, past = ContrastiveLoss(OBJECTIVE, Cosine()), MovingMoments(dim, 0.5)
    total = loss.statistics(*normal(2, 4, D))
    for attempt in (lambda: past.update(total), lambda: loss.from_statistics(total, past)):
        with pytest.raises(ValueError, match=rf"dim={dim}.* width {D}"):
            attempt()

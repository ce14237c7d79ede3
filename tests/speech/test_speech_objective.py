"""Scores of predictions and sampled negatives, and whole training steps, beside plain PyTorch."""

import numpy as np
import pytest
import torch

from relatum import CPC, DV, JS, NWJ, RPC, WPC, ContrastiveLoss, DotProduct, JointMLP
from relatum.models import SpeechNetwork, SpeechSizes
from relatum.objectives import Hinge, Logistic, chi_square
from relatum.recipes.speech import PredictionStep, SpeechNetworks
from relatum.scores import draw_negatives, look_ahead
from relatum.training import build_optimizer

from . import reference


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


# Draws


def places(drawn, frames):
    return drawn // frames, drawn % frames


def test_draws_are_uniform_over_sequences_and_other_places():
    b, frames, anchors, count = 3, 5, 4, 20_000
    drawn = draw_negatives(torch.zeros(b).long(), frames, anchors, count, "any", generator())
    assert drawn.shape == (b, anchors, count)
    sequence, place = places(drawn, frames)
    for t in range(anchors):
        assert not (place[:, t] == t).any()
        joint = torch.stack([
            ((sequence[:, t] == s) & (place[:, t] == p)).float().mean()
            for s in range(b) for p in range(frames) if p != t
        ])  # fmt: skip
        # 12 cells of 60,000 draws: standard deviation 0.0011.
        assert (joint - 1 / 12).abs().max() < 0.006


def test_scopes():
    speakers = torch.tensor([7, 3, 7, 3, 3])
    own = torch.arange(5)[:, None, None]
    sequence, _ = places(draw_negatives(speakers, 6, 4, 999, "same_sequence", generator()), 6)
    assert (sequence == own).all()
    sequence, place = places(draw_negatives(speakers, 6, 4, 999, "same_speaker", generator()), 6)
    assert (speakers[sequence] == speakers[own]).all()
    for i, mates in enumerate(([0, 2], [1, 3, 4], [0, 2], [1, 3, 4], [1, 3, 4])):
        share = torch.stack([(sequence[i] == mate).float().mean() for mate in mates])
        assert (share - 1 / len(mates)).abs().max() < 0.04
    assert not (place == torch.arange(4)[:, None]).any()
    sequence, _ = places(draw_negatives(speakers, 6, 4, 999, "any", generator()), 6)
    assert set(sequence[0].flatten().tolist()) == set(range(5))


def test_draws_of_one_seed_repeat():
    draws = [draw_negatives(torch.zeros(2).long(), 9, 5, 7, "any", generator(s)) for s in (0, 0, 1)]
    assert torch.equal(draws[0], draws[1])
    assert not torch.equal(draws[0], draws[2])


def test_draws_that_cannot_be():
    one = torch.zeros(2).long()
    for arguments in [(1, 1, 5, "any"), (9, 9, 5, "any"), (9, 5, 0, "any")]:
        with pytest.raises(ValueError, match="negatives need"):
            draw_negatives(one, *arguments, generator())
    with pytest.raises(ValueError, match="scope must be one of"):
        draw_negatives(one, 9, 5, 5, "all", generator())


# Scores


@pytest.mark.parametrize("critic", [DotProduct(3.0), JointMLP(4, 4)])
@pytest.mark.parametrize("exclude", [False, True])
def test_scores_are_those_of_a_double_loop(critic, exclude):
    b, t, a, n, k = 3, 9, 6, 50, 2
    ahead, frames = torch.randn(k, b, a, 4), torch.randn(b, t, 4)
    predictions = ahead[k - 1]
    drawn = draw_negatives(torch.zeros(b).long(), t, a, n, "any", generator())
    found = look_ahead(critic, [*ahead], frames, drawn, exclude_positive=exclude)[k - 1]
    kept, left_out = [], 0
    for i in range(b):
        for s in range(a):
            row = i * a + s
            x = predictions[i, s][None]
            assert torch.allclose(
                found.positives[row], critic(x, frames[i, s + k][None]), atol=1e-5
            )
            mine = []
            for number in drawn[i, s].tolist():
                same = number == i * t + s + k
                left_out += same
                if not (exclude and same):
                    mine.append(critic(x, frames[number // t, number % t][None]))
            assert int(found.negatives.counts[row]) == len(mine)
            want = torch.cat(mine).logsumexp(0)
            assert torch.allclose(found.negatives.logsumexp()[row], want, atol=1e-5)
            kept += mine
    assert left_out > 10  # the case is there
    moments = found.negatives.moments()
    assert torch.allclose(moments.mean, torch.cat(kept).mean(), atol=1e-5)
    assert torch.allclose(moments.mean_square, torch.cat(kept).square().mean(), atol=1e-5)


def test_equal_frames_elsewhere_stay_negatives():
    """A collapsed encoder must not be rewarded: exclusion goes by place, not by value."""
    frames = torch.ones(2, 6, 4)
    drawn = draw_negatives(torch.zeros(2).long(), 6, 4, 30, "same_sequence", generator())
    found = look_ahead(DotProduct(), [torch.ones(2, 4, 4)], frames, drawn, exclude_positive=True)[0]
    assert (found.negatives.counts > 15).all()
    assert torch.allclose(CPC()(found), torch.tensor(0.0), atol=1e-6)


@pytest.mark.parametrize(
    "objective", [CPC(), DV(), NWJ(), JS(), RPC(), chi_square(), Hinge(), Logistic()]
)
def test_every_objective_is_that_of_the_sampled_scores(objective):
    """Double loops over given negatives: the pairing that the loss laws know."""
    b, t, a, n, k = 2, 8, 5, 6, 3
    ahead = torch.randn(k, b, a, 4, dtype=torch.double, requires_grad=True)
    predictions = ahead[k - 1]
    frames = torch.randn(b, t, 4, dtype=torch.double, requires_grad=True)
    drawn = draw_negatives(torch.zeros(b).long(), t, a, n, "any", generator())
    loss = ContrastiveLoss(objective, DotProduct(2.0))
    mine = loss.from_scores(look_ahead(loss.critic, [*ahead], frames, drawn)[k - 1])
    pool = frames.reshape(-1, 4)
    given = loss(
        predictions.reshape(-1, 4),
        frames[:, k : k + a].reshape(-1, 4),
        negatives=pool[drawn].reshape(b * a, n, 4),
    )
    assert torch.allclose(mine, given, atol=1e-12)
    for one, two in zip(
        torch.autograd.grad(mine, [ahead, frames]),
        torch.autograd.grad(given, [ahead, frames]),
        strict=True,
    ):
        assert torch.allclose(one, two, atol=1e-12)


def test_frames_must_reach():
    drawn = torch.zeros(1, 4, 2).long()
    with pytest.raises(ValueError, match="6 frames are needed, got 5"):
        look_ahead(DotProduct(), [torch.ones(1, 4, 2)] * 2, torch.ones(1, 5, 2), drawn)


# Whole steps


@pytest.mark.parametrize(("objective", "scale"), [(CPC(), 1.0), (RPC(1.0, 0.25, 1.0), 4.0)])
def test_what_comes_is_told_from_what_does_not(objective, scale):
    """Codes that last four frames: one ahead is the same code three times in four."""
    draws = generator(3)
    codes = torch.randn(40, 16, generator=draws)
    frames = codes[torch.randint(40, (6, 10), generator=draws)].repeat_interleave(4, 1)
    predictors = torch.nn.ModuleList(torch.nn.Linear(16, 16, bias=False) for _ in range(4))
    optimizer = torch.optim.Adam(predictors.parameters(), 0.02)
    loss = ContrastiveLoss(objective, DotProduct(scale))
    for _ in range(120):
        drawn = draw_negatives(torch.zeros(6).long(), 40, 36, 16, "any", draws)
        found = look_ahead(loss.critic, [p(frames[:, :36]) for p in predictors], frames, drawn)
        optimizer.zero_grad()
        torch.stack([loss.from_scores(each) for each in found]).sum().backward()
        optimizer.step()
    wins = [float((each.positives > each.negatives.max()).double().mean()) for each in found]
    # A draw of the same code ties, which is no win; chance is 1 in 17.
    assert wins[0] > 0.3
    assert wins[0] > wins[3]


class Sounds:
    """Windows that are at hand: what the step asks of the real ones."""

    def __init__(self, samples):
        self.samples, self.speaker = samples, torch.zeros(len(samples)).long()

    def read(self, rows, generator, own=slice(None)):
        torch.rand(len(rows), generator=generator)  # the shifts, which are drawn first
        return self.samples[rows][own]


def weights_of(network):
    """The weights under the names of the reference, sharing memory with the network."""
    convolutions = [m for m in network.encoder.layers if isinstance(m, torch.nn.Conv1d)]
    norms = [m for m in network.encoder.layers if hasattr(m, "epsilon")]
    encoder = {}
    for i, (conv, norm) in enumerate(zip(convolutions, norms, strict=True)):
        encoder |= {f"conv{i}.weight": conv.weight, f"conv{i}.bias": conv.bias}
        encoder |= {f"norm{i}.weight": norm.weight, f"norm{i}.bias": norm.bias}
    c = network.context
    context = {
        "ih": c.weight_ih_l0, "hh": c.weight_hh_l0, "bih": c.bias_ih_l0, "bhh": c.bias_hh_l0,
    }  # fmt: skip
    predictors = []
    for p in network.predictors:
        if hasattr(p, "linear"):
            predictors.append({"w": p.linear.weight})
            continue
        named = {"q": p.queries, "k": p.keys, "v": p.values, "join": p.join,
                 "n1": p.first_norm, "n2": p.second_norm, "f1": p.feedforward[0],
                 "f2": p.feedforward[3]}  # fmt: skip
        predictors.append({"relative": p.relative})
        for name, module in named.items():
            predictors[-1] |= {name: module.weight, f"{name}b": module.bias}
    return [encoder, context, *predictors]


def copied(groups):
    return [
        {name: w.detach().clone().requires_grad_() for name, w in group.items()} for group in groups
    ]


def reference_loss(samples, groups, drawn, objective, scale, heads):
    encoder, context, *predictors = groups
    z = reference.encode(samples, encoder)
    c = reference.lstm(z, context)
    anchors = c[:, : c.shape[1] - len(predictors)]
    pairs = []
    for k, w in enumerate(predictors, 1):
        predicted = anchors @ w["w"].T if "w" in w else reference.transformer(anchors, w, heads)
        pairs.append(reference.candidates(predicted, z, k, drawn, scale))
    if objective == "cpc":
        return reference.cpc_loss(pairs)
    return reference.rpc_loss(pairs, 1.0, 0.25, 1.0)


@pytest.mark.parametrize(
    ("sizes", "batch"),
    [
        (SpeechSizes(channels=32, context=32, predictor="linear"), 4),
        (SpeechSizes(channels=16, context=16, heads=2, feedforward=32, dropout=0.0), 2),
        pytest.param(SpeechSizes(dropout=0.0), 2, marks=pytest.mark.slow),  # as published
    ],
    ids=["linear", "transformer", "published"],
)
@pytest.mark.parametrize("name", ["cpc", "rpc"])
def test_a_training_step_is_the_published_one(sizes, batch, name):
    """Loss, update and loss again, beside convolution, recurrence, softmax and Adam written out."""
    # 20480 samples, 128 frames, 116 anchors, 12 look-aheads, 128 negatives.
    samples = 0.1 * torch.randn(batch, 20480, generator=generator(1))
    network = SpeechNetwork(sizes, 20480)
    scale = float(sizes.channels) if name == "cpc" else sizes.channels**0.5
    objective = CPC() if name == "cpc" else RPC(1.0, 0.25, 1.0)
    networks = SpeechNetworks(network, ContrastiveLoss(objective, DotProduct(scale)))
    step = PredictionStep(networks, Sounds(samples))
    groups = copied(weights_of(network))
    flat = [w for group in groups for w in group.values()]
    theirs = reference.Adam(flat, 2e-4)
    mine = build_optimizer("adamw", networks, learning_rate=2e-4, weight_decay=0.0)
    rows = torch.arange(batch)
    losses = []
    for seed in (5, 6):
        draws = generator(seed)
        torch.rand(batch, generator=draws)
        drawn = draw_negatives(step.windows.speaker, 128, 116, 128, "any", draws)
        want = reference_loss(samples, groups, drawn, name, scale, sizes.heads)
        found = step(rows, seed).loss
        mine_now, theirs_now = found.item(), want.item()
        assert abs(mine_now - theirs_now) < 1e-5 * max(1.0, abs(theirs_now))
        losses.append(mine_now)
        if sizes.channels == 256:  # its loss alone: the updates of the small ones are the same code
            return
        mine.zero_grad()
        found.backward()
        mine.step()
        theirs.step(torch.autograd.grad(want, flat))
    assert losses[0] != losses[1]
    if name == "cpc":
        assert abs(losses[0] - 12 * np.log(129)) < 0.5  # nothing is told apart before training


def test_penalty_of_wpc_is_that_of_scores_in_the_loss():
    """Gradients in all samples of a window, of one positive each, beside the network written out;
    and the slope of the penalty beside a finite difference."""
    sizes = SpeechSizes(channels=4, context=4, steps=3, predictor="linear")
    network = SpeechNetwork(sizes, 1600).double()
    networks = SpeechNetworks(network, ContrastiveLoss(WPC(), DotProduct(0.003)))
    samples = torch.randn(3, 1600, generator=generator(1)).double()
    plain, held = (PredictionStep(networks, Sounds(samples), 5, penalty=p) for p in (None, 10.0))
    rows = torch.tensor([2, 0, 1])

    def penalty():
        return held(rows, 7).loss - plain(rows, 7).loss

    draws = generator(7)
    torch.rand(3, generator=draws)
    draw_negatives(torch.zeros(3).long(), 10, 7, 5, "any", draws)
    k = int(torch.randint(3, (), generator=draws))
    other = torch.randperm(3, generator=draws)
    share = torch.rand(3, 1, generator=draws).double()
    places = (torch.rand(2, 3, generator=draws).flatten() * 7).long()
    heard = samples[rows]
    encoder, context, *predictors = weights_of(network)
    squares, exceeding = [], 0
    for x, t in zip([*heard, *(heard + share * (heard[other] - heard))], places, strict=True):
        x = x.clone().requires_grad_()
        z = reference.encode(x[None], encoder)
        score = reference.lstm(z, context)[0, t] @ predictors[k]["w"].T @ z[0, t + k + 1] / 0.003
        (gradient,) = torch.autograd.grad(score, x)
        squares.append(float((gradient.norm() - 1).clamp(min=0).detach()) ** 2)
        exceeding += squares[-1] > 0
    assert exceeding > 1  # the case is there
    assert float(penalty().detach()) == pytest.approx(10 * sum(squares) / 6, rel=1e-5)
    for weight in (encoder["conv0.weight"], context["hh"], predictors[k]["w"]):
        slope = torch.autograd.grad(penalty(), weight)[0].flatten()
        at = int(slope.abs().argmax())
        values = []
        for move in (1e-6, -2e-6):
            weight.data.view(-1)[at] += move
            values.append(float(penalty().detach()))
        weight.data.view(-1)[at] += 1e-6
        assert float(slope[at]) == pytest.approx((values[0] - values[1]) / 2e-6, rel=1e-3)


def test_published_scale_is_the_mean_over_coordinates():
    """CPC's score is the mean of prediction times frame; RPC's the sum over sixteen."""
    x, y = torch.randn(3, 256), torch.randn(3, 256)
    assert torch.allclose(DotProduct(256.0)(x, y), (x * y).mean(1), atol=1e-6)
    assert torch.allclose(DotProduct(16.0)(x, y), (x * y).sum(1) / 256**0.5, atol=1e-5)

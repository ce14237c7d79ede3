"""Links, starts and training of critics."""

import math

import numpy as np
import pytest
import torch

from relatum import RPC
from relatum.mi import CRITICS, KernelRatio, NormalScores, Training, fit_critic
from relatum.mi import start as start_module
from relatum.mi.gaussian import GaussianRatio
from relatum.mi.links import link_of
from relatum.mi.methods import TRAINED
from relatum.mi.start import Start
from relatum.mi.training import Judge
from relatum.objectives import DV, NWJ, chi_square
from relatum.scores import from_matrix, sampled

TABLE = np.array([[4, 1, 1], [2, 3, 1], [1, 2, 5]])
P = TABLE / TABLE.sum()
Q = np.outer(P.sum(1), P.sum(0))
QUICK = {"steps": 40, "check_every": 10, "width": 16}


def dependent(n=200, seed=0):
    rng = np.random.default_rng(seed)
    x, noise = rng.normal(size=(2, n, 2))
    return x, 0.8 * x + 0.6 * noise


def all_pairs(critic, x, y):
    """Log r̂(x_i, y_j), one pair after another."""
    return np.stack([critic.log_ratio(x, np.broadcast_to(row, y.shape)) for row in y], axis=1)


def value_of_table(objective, u):
    """The objective under the law of the table: each pair with every y of the margin."""
    scores = link_of(objective)(u)
    x, y = np.repeat(np.argwhere(TABLE >= 0), TABLE.ravel(), axis=0).T
    positives = scores[x, y].repeat_interleave(len(y))
    negatives = scores[np.repeat(x, len(y)), np.tile(y, len(x))]
    return objective(sampled(positives, negatives[:, None]))


def rpc_at_optimum(alpha, beta, gamma):
    return ((P - alpha * Q) ** 2 / (beta * P + gamma * Q)).sum() / 2


INFORMATION = (P * np.log(P / Q)).sum()
HALF = (P + Q) / 2
JS_VALUE = (P * np.log(P / HALF) + Q * np.log(Q / HALF)).sum() - 2 * math.log(2)
# One negative y' for each pair: log 2r(x, y) / (r(x, y) + r(x, y')).
CPC_VALUE = sum(
    P[a, b] * P[:, c].sum() * math.log(2 / (1 + P[a, c] / Q[a, c] * Q[a, b] / P[a, b]))
    for a in range(3)
    for b in range(3)
    for c in range(3)
)
OPTIMUM = {
    "rpc": rpc_at_optimum(1.0, 0.05, 1.0),
    "cpc": CPC_VALUE,
    "nwj": INFORMATION,
    "dv": INFORMATION,
    "mine": INFORMATION,
    "js": JS_VALUE,
    "smile": JS_VALUE,
    "tuba": INFORMATION,
    "chi2": rpc_at_optimum(0, 0, 1),
}


@pytest.mark.parametrize("method", TRAINED)
def test_objectives_are_maximal_where_u_is_the_log_ratio(method):
    objective = TRAINED[method].objective()
    u = torch.from_numpy(np.log(P / Q)).requires_grad_()
    best = value_of_table(objective, u)
    assert float(best.detach()) == pytest.approx(OPTIMUM[method], abs=1e-9)
    (slope,) = torch.autograd.grad(best, u)
    torch.testing.assert_close(slope, torch.zeros_like(slope), atol=1e-9, rtol=0)
    rng = np.random.default_rng(0)
    for size in (0.1, 0.5, 2.0):
        moved = torch.from_numpy(np.log(P / Q) + size * rng.normal(size=(3, 3)))
        assert value_of_table(TRAINED[method].objective(), moved) < best


def test_every_relative_setting_has_a_link():
    for weights in [(0.5, 0.3, 0.7), (0.0, 0.5, 0.5), (2.0, 1.0, 0.1)]:
        u = torch.from_numpy(np.log(P / Q)).requires_grad_()
        value = value_of_table(RPC(*weights), u)
        assert float(value.detach()) == pytest.approx(rpc_at_optimum(*weights), abs=1e-9)
        (slope,) = torch.autograd.grad(value, u)
        torch.testing.assert_close(slope, torch.zeros_like(slope), atol=1e-9, rtol=0)
    with pytest.warns(UserWarning, match="gamma = 0"), pytest.raises(ValueError, match="gamma > 0"):
        link_of(RPC(1.0, 0.1, 0.0))


@pytest.mark.parametrize("objective", [RPC(1.0, 0.05, 1.0), NWJ()], ids=["rpc", "nwj"])
def test_residual_critic_is_its_start_before_training(objective):
    data, valid = dependent(), dependent(seed=1)
    # No look at the validation rows comes, so the network stays as it was at first.
    untrained = fit_critic(*data, valid=valid, objective=objective, steps=1, check_every=2)
    start = fit_critic(*data, valid=valid, objective=objective, critic="kernel")
    new = dependent(seed=2)
    assert untrained.best_step == 0 and start.network is None
    np.testing.assert_allclose(untrained.log_ratio(*new), start.log_ratio(*new), atol=1e-6)
    scores = NormalScores.fit(data[0])(new[0]), NormalScores.fit(data[1])(new[1])
    parts = [
        0.0 if part is None else share * part.log_ratio(*scores)
        for share, part in zip(
            start.start.shares, (start.start.gaussian, start.start.kernel), strict=True
        )
    ]
    np.testing.assert_allclose(start.log_ratio(*new), sum(parts), atol=1e-6)


def test_start_takes_the_mixture_that_new_rows_like_best():
    x, y = dependent(300)
    valid = dependent(100, seed=1)

    def value(logs):
        f = torch.from_numpy(np.exp(logs))
        return float(chi_square()(from_matrix(f)))

    start = Start.fit(x, y, valid, value=value, objective=RPC(1.0, 0.05, 1.0), seed=0)
    gaussian = GaussianRatio.fit(x, y).matrix(*valid)
    kernel = KernelRatio.fit(x, y, valid, objective=RPC(1.0, 0.05, 1.0)).matrix(*valid)
    values = {
        shares: value(shares[0] * gaussian + shares[1] * kernel)
        for shares in start_module._MIXTURES
    }
    assert start.shares == max(values, key=values.get)
    lost = Start.fit(x, y, valid, value=lambda logs: math.nan, objective=NWJ(), seed=0)
    assert lost.shares == (0.0, 0.0) and lost.kernel is None
    np.testing.assert_array_equal(lost.log_ratio(*valid), 0.0)


def test_independent_sides_start_from_nothing_or_little():
    rng = np.random.default_rng(0)
    sides = [rng.normal(size=(n, 10)) for n in (150, 150, 50, 50, 500, 500)]
    start = fit_critic(*sides[:2], valid=tuple(sides[2:4]), critic="kernel")
    assert -0.05 < start.log_ratio(*sides[4:]).mean() < 0.05


def test_pairs_in_parts_are_pairs(monkeypatch):
    x, y = dependent(60)
    critic = fit_critic(*dependent(), valid=dependent(seed=1), **QUICK)
    every = all_pairs(critic, x, y)
    shifts = np.array([0, 3, 17, 59])
    expected = np.stack([every[np.arange(60), (np.arange(60) + s) % 60] for s in shifts], axis=1)
    np.testing.assert_allclose(critic.shifted(x, y, shifts), expected, atol=1e-5)
    monkeypatch.setattr(start_module, "_PAIRS", 500)
    np.testing.assert_allclose(critic.shifted(x, y, shifts), expected, atol=1e-5)


@pytest.mark.parametrize("critic", CRITICS)
@pytest.mark.parametrize("method", ["rpc", "dv", "mine", "tuba"])
def test_every_critic_finds_something_of_the_dependence(critic, method):
    fitted = fit_critic(
        *dependent(), valid=dependent(100, 1), critic=critic, objective=TRAINED[method].objective(),
        width=32, steps=80,
    )  # fmt: skip
    x, y = dependent(500, seed=2)
    related = fitted.log_ratio(x, y).mean()
    unrelated = fitted.shifted(x, y, np.arange(1, 20)).mean()
    assert related > unrelated + 1.0
    assert np.isfinite(fitted.log_ratio(1e6 * x, y)).all()


def test_the_seed_is_all_that_is_random():
    data, valid, new = dependent(), dependent(100, 1), dependent(50, 2)
    torch.manual_seed(1)
    states = torch.get_rng_state(), np.random.get_state()[1].copy()  # noqa: NPY002
    logs = []
    for seed in (0, 0, 1):
        critic = fit_critic(*data, valid=valid, critic="joint", seed=seed, **QUICK)
        logs.append(critic.log_ratio(*new))
        assert torch.equal(states[0], torch.get_rng_state())
        torch.manual_seed(1)
    np.testing.assert_array_equal(states[1], np.random.get_state()[1])  # noqa: NPY002
    np.testing.assert_array_equal(logs[0], logs[1])
    assert np.abs(logs[0] - logs[2]).max() > 1e-3


def held_out_value(critic, valid):
    """J on all pairs of the validation rows, through the score matrix."""
    scores = critic.link(torch.from_numpy(all_pairs(critic, *valid)))
    return float(critic.objective(from_matrix(scores)))


@pytest.mark.parametrize("objective", [RPC(1.0, 0.05, 1.0), DV()], ids=["rpc", "dv"])
def test_early_stopping_leaves_the_best_state(objective):
    data, valid = dependent(60), dependent(40, 1)
    plan = {"check_every": 5, "patience": 3, "width": 16, "learning_rate": 0.01}
    critics = [
        fit_critic(*data, valid=valid, critic="joint", objective=objective, steps=steps, **plan)
        for steps in range(5, 80, 5)
    ]
    # With a seed, a shorter training is the beginning of a longer one.
    values = [held_out_value(critic, valid) for critic in critics]
    assert (np.diff(values) >= -1e-6).all()
    last = critics[-1]
    assert last.steps < 75 and last.steps == last.best_step + 3 * 5
    assert values[last.best_step // 5 - 1] == pytest.approx(values[-1], abs=1e-6)
    assert values[-1] > values[0] + 0.01
    assert last.notes == ()
    (note,) = critics[0].notes
    assert "not converged: the validation value still rose at the last of 5 steps" in note


def test_validation_value_of_many_rows():
    """Beyond 512 rows some shifts stand for all pairs: an estimate of the same number."""
    x, y = dependent(700)
    critic = fit_critic(*dependent(), valid=dependent(100, 1), critic="kernel")
    judge = Judge(critic.objective, critic.link, critic.prepared(x, y))
    logs = critic.start.matrix(judge.held.x, judge.held.y)
    exact = float(critic.objective(from_matrix(critic.link(torch.from_numpy(logs)))))
    assert judge.of_columns(judge.begun(critic.start)) == pytest.approx(exact, abs=0.02)
    few = critic.start.matrix(*judge.few)
    f = critic.link(torch.from_numpy(few)).numpy()
    own, others = np.diagonal(f), f[~np.eye(len(f), dtype=bool)]
    expected = np.mean(own - 0.025 * own**2) - np.mean(others + others**2 / 2)  # RPC(1, 0.05, 1)
    assert judge.of_matrix(few) == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("shares", [(1.0, 0.5), (1.0, 0.0), (0.0, 1.0)])
def test_a_start_learns_again_from_more_rows_what_has_a_share(shares):
    few, more, new = dependent(60), dependent(400, 2), dependent(30, 3)
    kernel = KernelRatio.fit(*few, dependent(40, 1), objective=RPC(1.0, 0.05, 1.0))
    start = Start(GaussianRatio.fit(*few), kernel, shares)
    again = start.refit(*more)
    expected = shares[0] * GaussianRatio.fit(*more).log_ratio(*new)
    expected += shares[1] * kernel.refit(*more).log_ratio(*new)
    assert again.log_ratio(*new) == pytest.approx(expected)
    assert abs(again.log_ratio(*new) - start.log_ratio(*new)).max() > 0.01
    assert (again.gaussian is start.gaussian) == (shares[0] == 0)
    assert (again.kernel is start.kernel) == (shares[1] == 0)


def test_lost_steps_are_counted(monkeypatch):
    class Broken(RPC):
        def __call__(self, scores):
            value = super().__call__(scores)
            return value * math.nan if value.requires_grad else value

    data = dependent(50)
    critic = fit_critic(*data, valid=dependent(40, 1), objective=Broken(1.0, 0.05, 1.0), **QUICK)
    assert critic.notes == ("40 of 40 steps had a gradient that was not finite and were left out",)
    assert np.isfinite(critic.log_ratio(*data)).all()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"critic": "deep"}, "critic must be one of residual, joint, .*, got 'deep'"),
        ({"depth": 3}, "unknown option 'depth'; known are critic, form, width"),
        ({"steps": 0}, "steps must be at least 1, got 0"),
        ({"batch_size": 1}, "batch_size must be at least 2, got 1"),
        ({"learning_rate": 0.0}, "learning_rate must be positive, got 0.0"),
        ({"weight_decay": -1.0}, "weight_decay must not be negative, got -1.0"),
    ],
)
def test_errors(settings, message):
    with pytest.raises(ValueError, match=message):
        fit_critic(*dependent(), valid=dependent(seed=1), **settings)


def test_defaults_are_allowed():
    assert Training().steps > Training().check_every

"""ContrastiveEncoder maximises the library's own objectives, exactly as they stand elsewhere."""

import copy
import itertools
import math

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from torch import nn

from relatum import (
    RPC,
    ContrastiveEncoder,
    ContrastiveLoss,
    Cosine,
    DotProduct,
    JointMLP,
    LinearRPC,
)
from relatum.estimators import contrastive_encoder as encoder_module
from relatum.estimators.fitting import batches
from relatum.estimators.pairs import Pair
from relatum.objectives import OBJECTIVES

QUICK = {
    "steps": 60, "check_every": 20, "hidden": (16,), "dimension": 4, "batch_size": 64,
    "learning_rate": 0.03,
}  # fmt: skip


SHORT = {**QUICK, "steps": 30, "batch_size": 32}


def sides(n=300, seed=0, noise=0.3):
    rng = np.random.default_rng(seed)
    z = rng.normal(size=(n, 3))
    x = z @ rng.normal(size=(3, 6)) + noise * rng.normal(size=(n, 6))
    return x, z @ rng.normal(size=(3, 5)) + noise * rng.normal(size=(n, 5))


@pytest.mark.filterwarnings("ignore:RPC with beta = 0:UserWarning")
def test_linear_towers_reach_the_exact_linear_solution():
    x, y = sides(2000)
    exact = LinearRPC(1.0, 0.0, 1.0).fit(x, y)
    model = ContrastiveEncoder(
        RPC(1.0, 0.0, 1.0), "linear", dimension=5, critic="dot", temperature=1.0, steps=300,
        batch_size=2000, learning_rate=0.05, weight_decay=0.0, valid_fraction=0,
    ).fit(x, y)  # fmt: skip
    reached = model.history_.train[-1]
    # The batch leaves own pairs out of Q, which moves J by O(1/n).
    assert exact.value_ * 0.98 < reached < exact.value_ * 1.02
    # Both say the same of every pair.
    ours, theirs = model.similarity(x, y).ravel(), exact.similarity(x, y).ravel()
    assert np.corrcoef(ours, theirs)[0, 1] > 0.99


@pytest.mark.parametrize("name", OBJECTIVES)
def test_every_objective_trains(name):
    x, y = sides()
    model = ContrastiveEncoder(name, **QUICK)
    fitted = clone(model).fit(x, y)
    untrained = clone(model).set_params(steps=1, learning_rate=0.0).fit(x, y)
    assert fitted.score(x, y) > untrained.score(x, y)
    found = fitted.measures(x, y)
    if name != "wpc":  # too flat a critic for so few steps
        assert found["recall@10"] > 2 * untrained.measures(x, y)["recall@10"]
    assert found["objective"] == fitted.score(x, y)
    assert ("mutual_information" in found) == hasattr(OBJECTIVES[name](), "mutual_information")


def slopes(model, x, y):
    """Norms of the gradient of f(x_i, y_i) by both standardised rows."""
    left, right = (model._scaled(s, n).float().requires_grad_() for s, n in ((x, "x"), (y, "y")))
    towers = model.networks_.towers
    model.networks_.loss.critic(towers[0](left), towers[1](right)).sum().backward()
    return torch.cat([left.grad, right.grad], 1).norm(dim=1)


def test_wpc_is_held_lipschitz():
    x, y = sides()
    free, held = (ContrastiveEncoder(name, **QUICK).fit(x, y) for name in ("cpc", "wpc"))
    assert float(slopes(free, x, y).mean()) > 2
    assert float(slopes(held, x, y).mean()) < 1.2


def test_the_score_is_the_loss_of_the_library():
    x, y = sides(64)
    model = ContrastiveEncoder(RPC(1.0, 0.1, 1.0), **QUICK, temperature=0.2).fit(x, y)
    u, v = (torch.from_numpy(model.transform(s, n)) for s, n in ((x, "x"), (y, "y")))
    loss = ContrastiveLoss(RPC(1.0, 0.1, 1.0), Cosine(0.2), pairing="in_batch_symmetric")
    assert model.score(x, y) == pytest.approx(-float(loss(u, v)), rel=1e-5)
    np.testing.assert_allclose(model.similarity(x, y), Cosine(0.2)(u[:, None], v), rtol=1e-6)
    reading = loss.objective.mutual_information(loss.scores(u, v))
    assert model.mutual_information(x, y) == pytest.approx(float(reading), rel=1e-4)


def test_sides_of_one_kind_are_contrasted_as_views():
    x, _ = sides(64)
    labels = np.repeat(np.arange(16), 4)
    for given in (
        {"y": None},
        {"y": None, "pairing": "time"},
        {"y": labels, "pairing": "classes"},
        {"y": None, "pairing": "groups", "groups": labels},
        {"y": None, "pairing": lambda rows, g: rows + 0.1 * torch.randn(rows.shape, generator=g)},
    ):
        data = {key: given[key] for key in ("y", "groups") if key in given}
        pairing = given.get("pairing", "rows")
        model = ContrastiveEncoder("cpc", **SHORT, pairing=pairing, valid_fraction=0.3).fit(
            x, **data
        )
        assert len(model.networks_.towers) == 1
        assert model.networks_.loss.pairing == "two_view"
        assert model.n_targets_ is None
        np.testing.assert_array_equal(model.transform(x), model.transform(x, side="y"))
        assert model.similarity(x).shape == (64, 64)
        assert math.isfinite(model.score(x, **data))


def test_rows_of_one_class_are_no_negatives():
    x, _ = sides(40)
    labels = np.arange(40) // 5
    settings = {**QUICK, "batch_size": 40, "valid_fraction": 0}
    model = ContrastiveEncoder("cpc", pairing="classes", **settings).fit(x, labels)
    [pair] = batches(model._new_pairs(x, labels, None), 40, model.seed)
    u, v = (model.networks_.embed(side, "x").detach() for side in (pair.x, pair.y))
    z, of = torch.cat([u, v]), np.tile(pair.ids, 2)
    z = z / z.norm(dim=1, keepdim=True) / math.sqrt(0.1)
    terms = []
    for i in range(80):  # SimCLR's sum, with rows of the anchor's class left out
        own = z[i] @ z[(i + 40) % 80]
        others = z[torch.from_numpy(of != of[i])] @ z[i]
        terms.append(own - torch.cat([own[None], others]).logsumexp(0) + math.log(1 + len(others)))
    assert model.score(x, labels) == pytest.approx(float(torch.stack(terms).mean()), rel=1e-4)


def test_classes_come_together():
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(4, 8))
    labels = rng.integers(0, 4, 400)
    x = centres[labels] + 0.5 * rng.normal(size=(400, 8))
    model = ContrastiveEncoder("cpc", pairing="classes", **QUICK).fit(x, labels)
    z = model.transform(x)
    z /= np.linalg.norm(z, axis=1, keepdims=True)
    same = labels[:, None] == labels
    assert (z @ z.T)[same].mean() > (z @ z.T)[~same].mean() + 0.3
    with pytest.warns(UserWarning, match="alone in their class or unlabelled"):
        ContrastiveEncoder(pairing="classes", valid_fraction=0, **QUICK).fit(
            x, np.where(np.arange(400) < 7, -1, labels)
        )


def test_micro_batches_have_the_gradient_of_the_batch():
    x, y = sides(50)
    settings = {**QUICK, "steps": 3, "batch_size": 50, "valid_fraction": 0}
    whole = ContrastiveEncoder("cpc", **settings).fit(x, y)
    parts = ContrastiveEncoder("cpc", micro_batch_size=7, **settings).fit(x, y)
    np.testing.assert_allclose(parts.transform(x), whole.transform(x), rtol=1e-3, atol=1e-5)
    pair = Pair(torch.randn(20, 6), torch.randn(20, 5))
    networks = copy.deepcopy(whole.networks_).double()
    pair = Pair(pair.x.double(), pair.y.double())
    slopes = []
    for micro in (None, 3):
        networks.zero_grad()
        networks.loss.from_scores(networks.scores(pair, micro)).backward()
        slopes.append([p.grad.clone() for p in networks.parameters()])
    for one, other in zip(*slopes, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-12)


def test_one_seed_one_result_and_nothing_else_is_touched():
    x, y = sides(100)
    state = torch.get_rng_state()
    first, again, other = (
        ContrastiveEncoder("rpc", seed=seed, **QUICK).fit(x, y).transform(x) for seed in (0, 0, 1)
    )
    assert torch.equal(state, torch.get_rng_state())
    np.testing.assert_array_equal(first, again)
    assert np.abs(first - other).max() > 0.1


def test_training_stops_and_keeps_the_best():
    x, _ = sides(60)
    noise = np.random.default_rng(1).normal(size=(60, 4))  # nothing to learn
    model = ContrastiveEncoder(
        "cpc", steps=3000, check_every=10, patience=3, valid_fraction=0.3, learning_rate=0.01
    ).fit(x, noise)
    steps, valid, best = (getattr(model.history_, name) for name in ("steps", "valid", "best"))
    assert steps[-1] < 3000
    assert best == steps[int(np.argmax(valid))]
    assert sum(step > best for step in steps) == 3


def test_groups_are_held_out_whole(monkeypatch):
    """The rows that say when to stop are of no group that was trained on."""
    x, y = sides(120)
    groups = np.arange(120) % 12
    x[:, 0] = groups
    seen, real = [], encoder_module.fit_networks

    def spied(networks, optimizer, train, valid, *rest):
        seen.append([set(pairs.x[:, 0].round().int().tolist()) for pairs in (train, valid)])
        return real(networks, optimizer, train, valid, *rest)

    monkeypatch.setattr(encoder_module, "fit_networks", spied)
    settings = {**SHORT, "valid_fraction": 0.25, "standardise": False}
    ContrastiveEncoder("cpc", **settings).fit(x, y, groups=groups)
    ContrastiveEncoder("cpc", **settings).fit(x, y)
    (trained, held), (all_trained, all_held) = seen
    assert len(held) == 3 and not trained & held and trained | held == set(range(12))
    assert all_trained & all_held


def test_modules_are_copied_and_at_rest_in_use():
    x, y = sides(100)
    shared = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3))
    before = copy.deepcopy(shared.state_dict())
    other = nn.Linear(5, 3)
    model = ContrastiveEncoder("cpc", encoder=(shared, other), **QUICK).fit(x, y)
    for key, value in shared.state_dict().items():
        torch.testing.assert_close(value, before[key])
    alone = np.concatenate([model.transform(row[None]) for row in x[:5]])
    np.testing.assert_allclose(alone, model.transform(x)[:5], rtol=1e-4, atol=1e-5)
    one = ContrastiveEncoder("rpc", encoder=nn.Linear(6, 3), **QUICK).fit(x)
    assert one.transform(x).shape == (100, 3)
    with pytest.raises(ValueError, match="rows do not meet; batch normalisation"):
        ContrastiveEncoder(encoder=(shared, other), micro_batch_size=8, **QUICK).fit(x, y)
    with pytest.raises(ValueError, match="one module cannot serve sides of 6 and 5 columns"):
        ContrastiveEncoder(encoder=nn.Linear(6, 3), **QUICK).fit(x, y)


def test_any_critic_of_embeddings():
    x, y = sides(80)
    for critic in (DotProduct(4.0), JointMLP(4, 4, hidden=(8,))):
        model = ContrastiveEncoder("js", critic=critic, **QUICK).fit(x, y)
        u, v = (torch.from_numpy(model.transform(s, n)) for s, n in ((x, "x"), (y, "y")))
        expected = model.networks_.loss.critic(u.float()[:, None], v.float())
        np.testing.assert_allclose(model.similarity(x, y), expected.detach(), rtol=1e-3, atol=1e-4)
        assert not any(p.grad is not None for p in critic.parameters())


def test_retrieval_agrees_with_similarity():
    x, y = sides(80)
    model = ContrastiveEncoder("cpc", **QUICK).fit(x, y)
    matrix = model.similarity(x, y)
    found = model.retrieve(x[:9], y, k=4)
    np.testing.assert_array_equal(found.indices, np.argsort(-matrix[:9], 1, kind="stable")[:, :4])
    back = model.retrieve(y[:9], x, k=1, side="y")
    np.testing.assert_array_equal(back.indices[:, 0], matrix[:, :9].argmax(0))


def test_partial_fit_goes_on():
    x, y = sides(400)
    model = ContrastiveEncoder("cpc", **{**QUICK, "batch_size": 100})
    values = []
    for _ in range(12):
        for part in np.split(np.arange(400), 2):
            model.partial_fit(x[part], y[part])
        values.append(model.score(x, y))
    assert values[-1] > values[0] + 0.3
    assert model.history_.steps == [2]
    resumed = copy.deepcopy(model)
    np.testing.assert_array_equal(
        model.partial_fit(x, y).transform(x), resumed.partial_fit(x, y).transform(x)
    )


def class_means_without(z, labels, i):
    """Means of the directions by class, row i left out."""
    kept = np.arange(len(z)) != i
    return np.stack([z[kept & (labels == c)].mean(0) for c in np.unique(labels)])


def test_classes_are_measured_and_certified():
    rng = np.random.default_rng(0)
    of = rng.integers(0, 3, 1100)
    x = 3 * rng.normal(size=(3, 5))[of] + rng.normal(size=(1100, 5))
    y = x + 0.3 * rng.normal(size=x.shape)
    model = LinearRPC(rank=2).fit(x[:500], y[:500])
    x, y, of = x[500:], y[500:], of[500:]
    z = model.transform(x)
    z /= np.linalg.norm(z, axis=1, keepdims=True)
    # Scores of each row by the class means without it: the own class's less another's.
    gaps = np.array(
        [
            m[c] @ r - m @ r
            for m, c, r in zip(
                [class_means_without(z, of, i) for i in range(600)], of, z, strict=True
            )
        ]
    )
    found = model.measures(x, y, labels=of)
    assert found["class_error"] == pytest.approx((gaps < -1e-9).any(1).mean(), abs=0.01)
    shares, total, risk, error = np.bincount(of) / 600, 0.0, 0.0, 0.0
    for a, b in itertools.permutations(range(3), 2):  # two classes drawn, and found different
        weight, gap = shares[a] * shares[b], gaps[of == a][:, b]
        total += weight
        risk += weight * np.maximum(0, 1 - gap).mean()
        error += weight * (gap < 0).mean()
    assert found["class_pair_error"] == pytest.approx(error / total, abs=0.005)
    assert error / total < risk / total < found["certified_risk"] < 1
    named = np.array(["ant", "bee", "cat"])[rng.permutation(of)]  # nothing to tell apart
    named[0] = "one alone"
    mixed = model.measures(x, y, labels=named)
    assert mixed["class_pair_error"] > 0.4
    assert mixed["certified_risk"] > 1
    assert set(found) - set(model.measures(x, y)) == {
        "class_error", "class_pair_error", "certified_risk",
    }  # fmt: skip
    with pytest.raises(ValueError, match="labels must be one label for each of the 600 rows"):
        model.measures(x, y, labels=of[1:])


def test_classes_that_pair_rows_are_certified_unasked():
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 3, 200)
    x = 3 * rng.normal(size=(3, 4))[labels] + rng.normal(size=(200, 4))
    model = ContrastiveEncoder("cpc", pairing="classes", **QUICK).fit(x[:100], labels[:100])
    found = model.measures(x[100:], labels[100:])
    assert found["class_error"] < 0.2
    assert found["certified_risk"] > 0
    # Five groups leave no two triplets apart.
    few = model.measures(x[100:], labels[100:], groups=np.arange(100) % 5)
    assert "class_error" in few
    assert "certified_risk" not in few


def test_saved_and_loaded(tmp_path):
    x, y = sides(80)
    table = pd.DataFrame(x, columns=list("abcdef"))
    model = ContrastiveEncoder(RPC(0.5, 0.1, 2.0), **QUICK).fit(table, y)
    model.save(tmp_path / "model.pt")
    again = ContrastiveEncoder.load(tmp_path / "model.pt")
    assert again.get_params() == model.get_params()
    np.testing.assert_array_equal(again.transform(table), model.transform(table))
    np.testing.assert_array_equal(again.transform(y, "y"), model.transform(y, "y"))
    assert again.score(table, y) == model.score(table, y)
    assert again.history_ == model.history_
    assert list(again.feature_names_in_) == list("abcdef")
    assert again.partial_fit(table, y).history_.steps == [1]


def test_what_a_file_cannot_hold(tmp_path):
    x, _ = sides(80)
    path = tmp_path / "model.pt"
    model = ContrastiveEncoder("cpc", encoder=nn.Linear(6, 3), **QUICK).fit(x)
    model.save(path)
    with pytest.raises(ValueError, match="cannot hold encoder: pass the same as load"):
        ContrastiveEncoder.load(path)
    again = ContrastiveEncoder.load(path, encoder=nn.Linear(6, 3))
    np.testing.assert_array_equal(again.transform(x), model.transform(x))
    path.write_bytes(b"nothing")
    with pytest.raises(ValueError, match="damaged or no saved estimator"):
        ContrastiveEncoder.load(path)
    with pytest.raises(FileNotFoundError):
        ContrastiveEncoder.load(tmp_path / "none.pt")


def test_pipeline_search_and_containers():
    x, y = sides(120)
    labels = (x[:, 0] > 0).astype(int)
    encoder = ContrastiveEncoder("rpc", pairing="classes", **SHORT)
    pipe = make_pipeline(StandardScaler(), encoder, LogisticRegression()).fit(x, labels)
    assert pipe.score(x, labels) > 0.9
    search = GridSearchCV(
        ContrastiveEncoder("cpc", **SHORT),
        {"encoder": ["linear", "mlp"], "temperature": [0.1, 9.0]},
        cv=2,
    ).fit(x, y)  # fmt: skip
    assert search.best_params_["temperature"] == 0.1
    expected = ContrastiveEncoder("cpc", **SHORT).fit(x, y).transform(x)
    for left, right in [
        (torch.tensor(x), torch.tensor(y)),
        (pd.DataFrame(x), pd.DataFrame(y)),
        (x.tolist(), y.tolist()),
    ]:
        found = ContrastiveEncoder("cpc", **SHORT).fit(left, right).transform(left)
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
    column = ContrastiveEncoder("cpc", **SHORT).fit(x, y[:, 0])
    assert column.n_targets_ == 1 and column.transform(y[:, 0], "y").shape == (120, 4)


def test_scales_and_offsets_of_columns_do_not_matter():
    x, y = sides(100)
    far = x * np.array([1e-6, 1e6, 1, 1, 1, 1]) + np.array([0, 1e7, 0, 0, 0, 5])
    one = ContrastiveEncoder("cpc", **QUICK).fit(x, y).transform(x)
    np.testing.assert_allclose(
        ContrastiveEncoder("cpc", **QUICK).fit(far, y).transform(far), one, rtol=1e-2, atol=1e-3
    )


def test_progress_is_printed_when_asked_for(capsys):
    x, y = sides(60)
    ContrastiveEncoder("cpc", **QUICK).fit(x, y)
    assert capsys.readouterr().out == ""
    ContrastiveEncoder("cpc", verbose=True, **QUICK).fit(x, y)
    assert "step 20 of 60: J" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"objective": "rcp"}, "unknown objective 'rcp'; did you mean 'rpc'"),
        ({"encoder": "mpl"}, "unknown encoder 'mpl'; did you mean 'mlp'"),
        ({"critic": "cosin"}, "unknown critic 'cosin'; did you mean 'cosine'"),
        ({"pairing": "row"}, "pairing must be one of rows, time, classes, groups or a callable"),
        ({"pairing": "groups"}, "pairing='groups' needs groups="),
        ({"batch_size": 1}, "batch_size must be at least 2, got 1"),
        ({"steps": 0}, "steps must be at least 1, got 0"),
        ({"valid_fraction": 1.0}, "valid_fraction must be in"),
        ({"noise": -1}, "noise must be a finite number >= 0"),
        ({"micro_batch_size": 0}, "micro_batch_size must be at least 1"),
        ({"dimension": 0}, "dimension and hidden must be positive"),
        ({"encoder": ("mlp",)}, "encoder must be one or a pair"),
    ],
)
def test_wrong_settings_are_named(settings, message):
    x, y = sides(40)
    with pytest.raises(ValueError, match=message):
        ContrastiveEncoder(**{**QUICK, **settings}).fit(x, None if "noise" in settings else y)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"ridge": 5.0}, "ridge belongs to start='exact': ridge=5.0 has no effect"),
        ({"lag": 2}, "lag belongs to pairing='time'"),
        ({"noise": 1.0}, "noise belongs to pairing='rows' without a second side"),
    ],
)
def test_settings_without_effect_are_named(settings, message):
    """And change nothing: a search over several starts may hold the setting of one."""
    x, y = sides(40)
    plain = ContrastiveEncoder(**QUICK).fit(x, y)
    with pytest.warns(UserWarning, match=message):
        found = ContrastiveEncoder(**{**QUICK, **settings}).fit(x, y)
    np.testing.assert_array_equal(found.transform(x), plain.transform(x))


def test_wrong_data_are_named():
    x, y = sides(40)
    with pytest.raises(ValueError, match="held out: 4 rows hold .* Raise valid_fraction"):
        ContrastiveEncoder(pairing="classes", **QUICK).fit(x, np.r_[:4, :36] // 18)
    with pytest.raises(ValueError, match="pairs of one class alone"):
        ContrastiveEncoder(pairing="classes", **QUICK).fit(x, np.zeros(40, int))
    with pytest.raises(ValueError, match="pairing='classes' requires y to be passed"):
        ContrastiveEncoder(pairing="classes", **QUICK).fit(x)
    with pytest.raises(ValueError, match="one row for each pair, got 40 and 39 rows"):
        ContrastiveEncoder(**QUICK).fit(x, y[1:])
    model = ContrastiveEncoder(**QUICK).fit(x, y)
    with pytest.raises(ValueError, match="requires y to be passed"):
        model.score(x)
    with pytest.raises(ValueError, match="Y is missing: this encoder knows two sides"):
        model.similarity(x)
    with pytest.raises(TypeError, match="Hinge has no reading"):
        ContrastiveEncoder("hinge", **QUICK).fit(x, y).mutual_information(x, y)
    x[7, 2] = np.nan
    with pytest.raises(ValueError, match="X has NaN, a missing value, at row 7, column 2"):
        model.transform(x)


def test_a_loss_that_is_not_finite_ends_training():
    x, y = sides(100)
    model = ContrastiveEncoder("nwj", critic="dot", temperature=1e-3, **QUICK)
    with pytest.raises(FloatingPointError, match="the loss became .* at step"):
        model.fit(x, y)

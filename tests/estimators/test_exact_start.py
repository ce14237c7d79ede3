"""Linear towers that begin at LinearRPC's optimum say of every pair what it says."""

import numpy as np
import pytest
from torch import nn

from relatum import RPC, ContrastiveEncoder, DotProduct, LinearRPC
from relatum.estimators import split_rows

pytestmark = pytest.mark.filterwarnings("ignore:RPC with beta = 0:UserWarning")

# One look before and one after an update of size zero: what is kept is the start.
STILL = {"encoder": "linear", "critic": "dot", "start": "exact", "steps": 1, "learning_rate": 0.0}


def related(n=400, seed=0, dx=6, dy=4):
    """Two sides that share two directions, in units and origins of their own, not Gaussian."""
    rng = np.random.default_rng(seed)
    z = rng.normal(size=(n, 2)) + 0.3 * rng.exponential(size=(n, 2))
    x = z @ rng.normal(size=(2, dx)) + rng.normal(size=(n, dx))
    y = z @ rng.normal(size=(2, dy)) + rng.normal(size=(n, dy))
    return 50 * x + 300, 0.01 * y - 7


def over_all_pairs(matrix, relative):
    """J with own pairs among the negatives, as LinearRPC has it."""
    alpha, beta, gamma = relative
    own = np.diag(matrix)
    positives = own.mean() - beta / 2 * (own**2).mean()
    return positives - alpha * matrix.mean() - gamma / 2 * (matrix**2).mean()


@pytest.mark.parametrize("temperature", [1.0, 7.0])
@pytest.mark.parametrize(
    ("relative", "dimension", "rank"),
    [
        ((1.0, 0.0, 1.0), 4, 4),
        ((1.0, 0.0, 1.0), 2, 2),
        ((1.0, 0.0, 1.0), 9, None),  # more dimensions than directions
        ((0.3, 0.0, 2.0), 3, 2),  # a constant takes one
        ((0.0, 0.0, 1.0), 5, 4),
        ((1.0, 0.2, 1.0), 4, 2),  # affine terms take two
        ((0.5, 0.7, 0.5), 6, 4),
    ],
)
def test_held_out_objective_is_that_of_the_exact_solution(relative, dimension, rank, temperature):
    x, y = related()
    train, held = split_rows(400, 0.25, None, 3, ordered=False)
    exact = LinearRPC(*relative, rank=rank).fit(x[train], y[train])
    model = ContrastiveEncoder(
        RPC(*relative), dimension=dimension, temperature=temperature, valid_fraction=0.25, seed=3,
        **STILL,
    ).fit(x, y)  # fmt: skip
    scores, truth = model.similarity(x[held], y[held]), exact.similarity(x[held], y[held])
    np.testing.assert_allclose(scores, truth, rtol=1e-5, atol=1e-5)
    value = exact.score(x[held], y[held])
    assert over_all_pairs(scores, relative) == pytest.approx(value, rel=1e-5, abs=1e-6)
    # The encoder's J leaves own pairs out of the negatives.
    off = truth[~np.eye(len(held), dtype=bool)]
    alpha, beta, gamma = relative
    own = np.diag(truth)
    loops = own.mean() - beta / 2 * (own**2).mean()
    loops -= alpha * off.mean() + gamma / 2 * (off**2).mean()
    assert model.history_.start == pytest.approx(loops, rel=1e-5, abs=1e-6)
    assert model.history_.best == 0


def test_chi2_and_a_ridge_and_wide_sides():
    x, y = related(n=40, dx=60, dy=50)
    exact = LinearRPC(0.0, 0.0, 1.0, ridge=0.5, rank=3)
    model = ContrastiveEncoder(
        "chi2", dimension=4, ridge=0.5, valid_fraction=0, **STILL
    ).fit(x, y)  # fmt: skip
    scaled = [(side - side.mean(0)) / side.std(0) for side in (x, y)]
    truth = exact.fit(*scaled).similarity(*scaled)
    np.testing.assert_allclose(model.similarity(x, y), truth, rtol=1e-4, atol=1e-4)


def test_columns_as_they_are():
    x, y = related()
    exact = LinearRPC(1.0, 0.3, 1.0).fit(x, y)
    model = ContrastiveEncoder(
        RPC(1.0, 0.3, 1.0), dimension=6, standardise=False, valid_fraction=0, **STILL
    ).fit(x, y)
    np.testing.assert_allclose(model.similarity(x, y), exact.similarity(x, y), rtol=1e-3, atol=1e-3)


def test_training_goes_on_from_there_and_never_ends_lower():
    """Low rank with beta > 0: the nearest to the optimum is not yet the best of that rank."""
    x, y = related(n=1200)
    objective, settings = RPC(1.0, 0.5, 1.0), {"dimension": 3, "valid_fraction": 0.25}
    model = ContrastiveEncoder(
        objective, "linear", critic="dot", start="exact", steps=300, learning_rate=3e-3, **settings
    ).fit(x, y)
    assert max(model.history_.valid) > model.history_.start
    assert model.history_.best > 0
    again = ContrastiveEncoder(
        objective, "linear", critic="dot", start="exact", steps=60, check_every=20,
        learning_rate=3.0, **settings,
    ).fit(x, y)  # fmt: skip
    assert max(again.history_.valid) < again.history_.start  # so large a rate only harms
    still = ContrastiveEncoder(objective, **STILL, **settings).fit(x, y)
    np.testing.assert_array_equal(again.transform(x), still.transform(x))


def test_parts_begin_there_too_and_it_is_saved(tmp_path):
    x, y = related()
    model = ContrastiveEncoder("chi2", dimension=5, **STILL)
    model.partial_fit(x, y)
    exact = LinearRPC(0.0, 0.0, 1.0).fit(x, y)
    np.testing.assert_allclose(model.similarity(x, y), exact.similarity(x, y), rtol=1e-4, atol=1e-5)
    model.save(tmp_path / "model.pt")
    again = ContrastiveEncoder.load(tmp_path / "model.pt")
    np.testing.assert_array_equal(again.transform(x), model.transform(x))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"objective": "cpc"}, "got objective CPC"),
        ({"critic": "cosine"}, "got critic Cosine"),
        ({"encoder": "mlp"}, "got other encoders"),
        ({"encoder": ("linear", nn.Sequential(nn.Linear(4, 4), nn.ReLU()))}, "other encoders"),
        ({"encoder": nn.Linear(4, 4)}, "sides that share one encoder"),
        ({"pairing": "time"}, "got pairing 'time'"),
        ({"y": None}, "sides that share one encoder"),
        ({"dimension": 2}, "needs dimension >= 3, got 2: the affine terms of RPC.*take 2"),
        ({"start": "exakt"}, "start must be one of random, exact, got 'exakt'"),
        ({"ridge": -1.0}, "ridge must be a finite number >= 0, got -1.0"),
    ],
)
def test_where_there_is_no_exact_solution_one_sentence_says_so(changes, message):
    x, y = related(dx=4)
    given = {"objective": "rpc", "dimension": 4, **STILL, **changes}
    y = given.pop("y", y)
    with pytest.raises(ValueError, match=message):
        ContrastiveEncoder(**given).fit(x, y)


def test_a_critic_of_ones_own_with_a_learned_temperature():
    x, y = related()
    critic = DotProduct(3.0, learn=True)
    model = ContrastiveEncoder("chi2", dimension=5, **{**STILL, "critic": critic}).fit(x, y)
    train = split_rows(400, 0.1, None, 0, ordered=False)[0]
    exact = LinearRPC(0.0, 0.0, 1.0).fit(x[train], y[train])
    np.testing.assert_allclose(model.similarity(x, y), exact.similarity(x, y), rtol=1e-4, atol=1e-4)

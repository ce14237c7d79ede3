"""The exact variational law: on a contingency table each objective attains its divergence at f*.

An integer table of counts is expanded to samples, and all pairs are negatives, so that P and Q are
exactly the empirical joint law and the product of its marginals. No training, no tolerance games.
"""

import inspect

import numpy as np
import pytest
import torch

from relatum import OBJECTIVES, RPC, chi_square
from relatum.base import DensityRatioObjective, InformationObjective, MomentObjective, Scores
from relatum.objectives.table import table_rows
from relatum.relative import check_relative_parameters
from relatum.scores import PooledNegatives, from_matrix
from relatum.scores.strategies import Dense

COUNTS = np.array([[6, 1, 2], [1, 5, 1], [3, 1, 4]])


def _law():
    """(P, Q, r) on the cells of the table, and the cell of every sample pair (i, j)."""
    p = COUNTS / COUNTS.sum()
    q = p.sum(1, keepdims=True) * p.sum(0, keepdims=True)
    rows = np.repeat(np.repeat(np.arange(3), 3), COUNTS.ravel())
    columns = np.repeat(np.tile(np.arange(3), 3), COUNTS.ravel())
    return p, q, p / q, rows, columns


P, Q, R, ROWS, COLUMNS = _law()
KL = float((P * np.log(R)).sum())
JSD = float(0.5 * (P * np.log(2 * P / (P + Q))).sum() + 0.5 * (Q * np.log(2 * Q / (P + Q))).sum())


def _rpc_value(alpha, beta, gamma):
    return float(0.5 * ((P - alpha * Q) ** 2 / (beta * P + gamma * Q)).sum())


# One row per objective: the optimal critic on the table and the value there.
OPTIMA = {
    "dv": (np.log(R) + 0.7, KL),
    "nwj": (1 + np.log(R), KL),
    "cpc": (np.log(R) + np.array([[0.3], [-1.0], [2.0]]), KL),
    "js": (np.log(R), 2 * JSD - np.log(4)),
    "rpc": ((R - 1.0) / (0.005 * R + 1.0), _rpc_value(1.0, 0.005, 1.0)),
    "chi2": (R, _rpc_value(0.0, 0.0, 1.0)),
}
# No closed-form optimum: WPC's is over 1-Lipschitz critics; the surrogates' depend on the classes.
WITHOUT_OPTIMUM = {"wpc", "hinge", "logistic"}


def _scores(table, own_positive_removed):
    """All N x N pairs as negatives; for CPC all but the own positive, which it puts back."""
    matrix = torch.as_tensor(table)[ROWS][:, COLUMNS]
    diagonal = torch.eye(len(matrix), dtype=torch.bool)
    excluded = diagonal if own_positive_removed else None
    return Scores(matrix.diagonal(), PooledNegatives(Dense(matrix, excluded)))


def _value(name, table, objective=None):
    objective = objective or OBJECTIVES[name]()
    return float(objective(_scores(table, name == "cpc")))


def test_every_objective_has_a_row():
    assert set(OPTIMA) | WITHOUT_OPTIMUM == set(OBJECTIVES)


@pytest.mark.parametrize("name", OPTIMA)
def test_value_at_the_optimum(name):
    critic, value = OPTIMA[name]
    assert abs(_value(name, critic) - value) < 1e-12


@pytest.mark.parametrize("name", OPTIMA)
def test_no_perturbation_is_better(name):
    critic, value = OPTIMA[name]
    generator = np.random.default_rng(0)
    for size in (1e-3, 1e-1, 1.0):
        for _ in range(50):
            assert (
                _value(name, critic + size * generator.normal(size=critic.shape)) <= value + 1e-12
            )


@pytest.mark.parametrize(
    ("alpha", "beta", "gamma"),
    [(1, 0.005, 1), (0.3, 0.01, 0.1), (0, 0.25, 1), (1, 1, 1), (2, 1e-4, 1)],
)
def test_rpc_optimum_for_any_weights(alpha, beta, gamma):
    critic = (R - alpha) / (beta * R + gamma)
    found = _value("rpc", critic, RPC(alpha, beta, gamma))
    assert abs(found - _rpc_value(alpha, beta, gamma)) < 1e-10


@pytest.mark.parametrize("name", [n for n in OPTIMA if n not in ("cpc", "dv")])
def test_density_ratio_is_revealed(name):
    critic, _ = OPTIMA[name]
    objective = OBJECTIVES[name]()
    assert isinstance(objective, DensityRatioObjective)
    found = objective.log_density_ratio(torch.as_tensor(critic))
    np.testing.assert_allclose(found.numpy(), np.log(R), atol=1e-12)


@pytest.mark.parametrize("name", OPTIMA)
def test_information_is_read_at_the_optimum(name):
    critic, _ = OPTIMA[name]
    objective = OBJECTIVES[name]()
    assert isinstance(objective, InformationObjective)
    found = float(objective.mutual_information(_scores(critic, name == "cpc")))
    assert abs(found - KL) < 1e-12


def test_what_is_absent_is_absent():
    for name in WITHOUT_OPTIMUM:
        assert not isinstance(OBJECTIVES[name](), DensityRatioObjective)
    assert not isinstance(OBJECTIVES["wpc"](), InformationObjective)
    assert [n for n in OBJECTIVES if isinstance(OBJECTIVES[n](), MomentObjective)] == [
        "rpc",
        "chi2",
    ]


def test_information_outside_the_range_is_nan():
    scores = from_matrix(torch.tensor([[300.0, 0.0], [0.0, 1.0]]))  # 1/beta = 200
    assert RPC(1.0, 0.005, 1.0).mutual_information(scores).isnan()


@pytest.mark.parametrize("name", ["alpha", "beta", "gamma"])
@pytest.mark.parametrize("value", [-0.1, float("nan"), float("inf")])
def test_weights_outside_their_range_are_named(name, value):
    with pytest.raises(ValueError, match=rf"{name} must be a finite number >= 0, got"):
        RPC(**{name: value})


@pytest.mark.parametrize("value", ["a", None])
def test_a_weight_that_is_no_number_is_named(value):
    unchecked = inspect.unwrap(check_relative_parameters)  # tests check types before
    with pytest.raises(ValueError, match=f"alpha must be a finite number >= 0, got {value!r}"):
        unchecked(value, 0.1, 1.0)


def test_unbounded_corners_warn():
    for weights, named in (
        ((1, 0, 1), "beta"),
        ((1, 1, 0), "gamma"),
        ((1, 0, 0), "beta and gamma"),
    ):
        with pytest.warns(UserWarning, match=f"RPC with {named} = 0 is unbounded"):
            RPC(*weights)
    assert chi_square() == chi_square()  # by name it does not warn: warnings are errors here


def test_the_table_has_a_row_for_each():
    assert [row["name"] for row in table_rows()] == list(OBJECTIVES)

"""Influence terms: their mean is the objective's reading, their variance the jackknife's."""

import math

import numpy as np
import pytest
import torch

from relatum import CPC, DV, JS, NWJ
from relatum.mi import influence
from relatum.mi.objectives import SMILE, TUBA
from relatum.scores import from_matrix

READ = {
    "nwj": (influence.influence_nwj, NWJ()),
    "dv": (influence.influence_dv, DV()),
    "js": (influence.influence_js, JS()),
    "tuba": (influence.influence_tuba, TUBA()),
    "smile": (influence.influence_smile, SMILE()),
    "cpc": (influence.influence_cpc, CPC()),
}


def _matrix(n, seed=0):
    """Exact log ratios of a bivariate normal law with correlation 0.8, plus a little."""
    x, e = np.random.default_rng(seed).standard_normal((2, n))
    y = 0.8 * x + 0.6 * e
    residual = (y[None] - 0.8 * x[:, None]) ** 2 / 0.36
    return -math.log(0.6) - residual / 2 + y[None] ** 2 / 2 + 0.1 * np.sin(3 * x)[:, None]


@pytest.mark.parametrize("name", READ)
def test_the_mean_of_the_terms_is_the_objective_reading(name):
    read, objective = READ[name]
    matrix = _matrix(30)
    reading = read(matrix.diagonal(), torch.from_numpy(matrix))
    truth = float(objective.mutual_information(from_matrix(torch.from_numpy(matrix))))
    assert reading.value == pytest.approx(truth, rel=1e-10)
    assert reading.terms.mean() == pytest.approx(truth, rel=1e-10)
    assert reading.terms.shape == (30,)


@pytest.mark.parametrize("name", READ)
def test_leaving_rows_out_moves_the_value_as_the_terms_say(name):
    """Row by row: n (value − value without l) is the centred term, to first order."""
    read, _ = READ[name]
    n = 300
    matrix = _matrix(n)
    reading = read(matrix.diagonal(), matrix)
    left = np.empty(n)
    for row in range(n):
        keep = np.delete(np.arange(n), row)
        part = matrix[np.ix_(keep, keep)]
        left[row] = read(part.diagonal(), part).value
    moves = (n - 1) * (left.mean() - left)
    centred = reading.terms - reading.value
    assert np.corrcoef(moves, centred)[0, 1] > 0.999
    assert abs(moves.std() / centred.std() - 1) < 0.02


@pytest.mark.parametrize("name", [name for name in READ if name != "cpc"])
def test_sampled_shifts(name):
    """A deleted row takes with it every pair it is anchor or candidate of."""
    read, _ = READ[name]
    n, shifts = 400, np.array([1, 5, 17, 40, 90, 133])
    matrix = _matrix(n)
    candidates = (np.arange(n)[:, None] + shifts) % n
    sampled = np.take_along_axis(matrix, candidates, 1)
    reading = read(matrix.diagonal(), sampled, candidates)
    left = np.empty(n)
    for row in range(n):
        keep = (np.arange(n)[:, None] != row) & (candidates != row)
        left[row] = _value(name, np.delete(matrix.diagonal(), row), sampled[keep])
    moves = (n - 1) * (left.mean() - left)
    centred = reading.terms - reading.value
    assert np.corrcoef(moves, centred)[0, 1] > 0.999
    assert abs(moves.std() / centred.std() - 1) < 0.02


def _value(name, f, pairs):
    if name == "nwj":
        return f.mean() - np.exp(pairs - 1).mean()
    if name in ("js", "tuba"):
        return 1 + f.mean() - np.exp(pairs).mean()
    if name == "smile":
        pairs = pairs.clip(-5, 5)
    return f.mean() - math.log(np.exp(pairs).mean())


def test_cpc_with_sampled_candidates_counts_them():
    matrix = _matrix(50)
    candidates = (np.arange(50)[:, None] + [1, 7, 9]) % 50
    sampled = np.take_along_axis(matrix, candidates, 1)
    reading = influence.influence_cpc(matrix.diagonal(), sampled, candidates)
    loops = [
        f - math.log((math.exp(f) + np.exp(row).sum()) / 4)
        for f, row in zip(matrix.diagonal(), sampled, strict=True)
    ]
    assert reading.value == pytest.approx(np.mean(loops), rel=1e-12)
    assert reading.ceiling == math.log(4)


@pytest.mark.parametrize(
    ("correlation", "dim", "n", "ceiling"),
    [(0.999, 1, 8, 2.0794415417), (0.99, 10, 64, 4.1588830834)],
)
def test_cpc_never_passes_its_ceiling_and_says_when_it_is_there(correlation, dim, n, ceiling):
    x, e = np.random.default_rng(1).standard_normal((2, n, dim))
    y = correlation * x + math.sqrt(1 - correlation**2) * e
    residual = (y[None] - correlation * x[:, None]) ** 2 / (1 - correlation**2)
    matrix = ((y[None] ** 2 - residual) / 2).sum(2) - dim / 2 * math.log(1 - correlation**2)
    reading = influence.influence_cpc(matrix.diagonal(), matrix)
    assert reading.ceiling == pytest.approx(ceiling, abs=1e-9)
    assert reading.value <= reading.ceiling
    assert bool(reading.notes) == (reading.value > ceiling - 0.1)
    assert bool(reading.notes) == (dim == 10)
    # The truth is 3.1 and 19.6 nats: more than n rows can certify, and NWJ says so, too.
    assert f"above log {n}" in influence.influence_nwj(1 + matrix.diagonal(), 1 + matrix).notes[0]


def test_overflow_is_said():
    matrix = np.full((4, 4), 1000.0)
    reading = influence.influence_nwj(matrix.diagonal(), matrix)
    assert reading.value == -math.inf
    assert "overflows" in reading.notes[0]
    assert math.isfinite(influence.influence_dv(matrix.diagonal(), matrix).value)


def test_plug_in():
    reading = influence.influence_plug_in([1.0, 2.0, 6.0])
    assert (reading.value, reading.terms.tolist()) == (3.0, [1.0, 2.0, 6.0])


def test_errors():
    f = np.zeros(4)
    with pytest.raises(ValueError, match="row 2 is among its own candidates"):
        influence.influence_dv(f, np.zeros((4, 1)), np.array([[1], [0], [2], [0]]))
    with pytest.raises(ValueError, match="at least 2 rows"):
        influence.influence_dv(np.zeros(1), np.zeros((1, 1)))
    with pytest.raises(ValueError, match=r"the \(4, 4\) matrix of all pairs.*got shape \(4, 3\)"):
        influence.influence_dv(f, np.zeros((4, 3)))
    with pytest.raises(ValueError, match=r"both have shape \(4, k\), got \(4, 3\) and \(4, 2\)"):
        influence.influence_dv(f, np.zeros((4, 3)), np.ones((4, 2)))
    with pytest.raises(ValueError, match="positives must not be empty"):
        influence.influence_dv([], np.zeros((4, 3)))

"""The matrix and the ranking: known tables, symmetry, false discoveries."""

import math

import numpy as np
import pandas as pd
import pytest

from relatum.mi.matrix import MIMatrix, mutual_information_matrix


@pytest.fixture(scope="module")
def table():
    """Two bits with their exclusive or, each combination equally often; a number and its copy."""
    rng = np.random.default_rng(0)
    a, b = np.repeat([0, 1], 100), np.tile([0, 1], 100)
    z = rng.normal(size=200)
    return pd.DataFrame({"a": a, "b": b, "xor": a ^ b, "z": z, "twice": 2 * z, "one": np.ones(200)})


def test_exact_table(table):
    """Independent bits: I = 0 and H = log 2, exactly in this sample but for bias corrections."""
    found = mutual_information_matrix(table)
    assert found.names == tuple(table)
    bits = np.asarray(found)[:3, :3]
    np.testing.assert_allclose(bits, np.eye(3) * math.log(2), atol=0.02)
    np.testing.assert_array_equal(found.values, found.values.T)
    assert found.values[3, 3] == math.inf
    np.testing.assert_array_equal(found.values[5], 0)


def test_gaussian_off_diagonal_is_the_closed_form():
    rng = np.random.default_rng(1)
    x = rng.normal(size=(20_000, 1))
    y = 0.6 * x + 0.8 * rng.normal(size=(20_000, 1))
    found = mutual_information_matrix(np.hstack([x, y]), "gaussian")
    assert found.values[0, 1] == pytest.approx(-0.5 * math.log(1 - 0.36), abs=0.02)


def test_notes(table):
    notes = " ".join(mutual_information_matrix(table).notes)
    assert "column 'one' is constant" in notes
    assert "diagonal" in notes
    assert "'z' and 'twice' are affine functions of each other" in notes
    clean = mutual_information_matrix(table[["a", "b"]])
    assert clean.notes == ()


def test_frames(table):
    frame = mutual_information_matrix(table[["a", "z"]]).to_frame()
    assert list(frame.columns) == list(frame.index) == ["a", "z"]
    assert isinstance(mutual_information_matrix(table[["a"]].to_numpy()), MIMatrix)


def test_progress(table):
    seen = []
    mutual_information_matrix(table[["a", "b", "z"]], progress=lambda *done: seen.append(done))
    assert seen == [(i, 6) for i in range(1, 7)]


def test_ranking_finds_what_is_there(table):
    rng = np.random.default_rng(2)
    target = table["z"] + 0.5 * rng.normal(size=200)
    found = mutual_information_matrix(table, target=target, permutations=119)
    frame = found.to_frame()
    assert set(frame.index[:2]) == {"z", "twice"}
    assert found.p_values[3] == pytest.approx(1 / 120)
    assert (found.values[5], found.p_values[5]) == (0, 1)
    assert (frame["q_value"][:2] <= 0.05).all()
    assert (frame["q_value"][2:] > 0.05).all()


def test_q_values_are_benjamini_hochberg():
    """q of the i-th smallest p is the least d p_(j) / j over j >= i."""
    rng = np.random.default_rng(3)
    x = rng.normal(size=(60, 8))
    found = mutual_information_matrix(x, target=x[:, 0] + rng.normal(size=60), permutations=39)
    order = np.argsort(found.p_values)
    scaled = 8 * found.p_values[order] / np.arange(1, 9)
    expected = [min(scaled[i:].min(), 1) for i in range(8)]
    np.testing.assert_allclose(found.q_values[order], expected, rtol=1e-12)
    assert "take at least 159 permutations" in " ".join(found.notes)


def test_p_values_are_uniform_on_independent_columns():
    """P(p <= a) <= a for every independent column; 60 columns, five binomial deviations."""
    rng = np.random.default_rng(4)
    found = mutual_information_matrix(
        rng.normal(size=(80, 60)), "gaussian", target=rng.normal(size=80), permutations=19
    )
    share = (found.p_values <= 0.25).mean()
    assert abs(share - 0.25) < 5 * math.sqrt(0.25 * 0.75 / 60)
    assert found.p_values.min() >= 1 / 20


def test_no_permutations(table):
    found = mutual_information_matrix(table[["a", "z"]], target=table["b"], permutations=0)
    assert np.isnan(found.p_values).all()
    assert np.isnan(found.q_values).all()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"method": "kgs"}, "unknown method 'kgs'"),
        ({"target": np.zeros((200, 2))}, "target must be one column, got 2"),
        ({"target": np.zeros(200), "permutations": -1}, "permutations must not be negative"),
    ],
)
def test_errors(table, options, message):
    with pytest.raises(ValueError, match=message):
        mutual_information_matrix(table, **options)


def test_an_error_names_the_columns(table):
    names = table.assign(name=[f"row {i}" for i in range(200)])
    with pytest.raises(ValueError, match="columns 'a' and 'name': discrete found 200 classes"):
        mutual_information_matrix(names[["a", "name"]])

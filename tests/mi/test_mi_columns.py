"""Reading two sides: every container, one error for each mistake, and what is remarked."""

import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
import torch

from relatum.mi.columns import read_sides

RNG = np.random.default_rng(0)
X = RNG.normal(size=(40, 2))
Y = RNG.normal(size=40)


def fails(x, y, *fragments):
    with pytest.raises(ValueError) as caught:
        read_sides(x, y)
    for fragment in fragments:
        assert fragment in str(caught.value), str(caught.value)


def noted(x, y, fragment):
    notes = read_sides(x, y).notes
    return [note for note in notes if fragment in note]


@pytest.mark.parametrize(
    "container",
    [np.asarray, torch.from_numpy, np.ndarray.tolist, pd.DataFrame, np.asfortranarray],
    ids=["numpy", "torch", "list", "pandas", "fortran"],
)
def test_every_container_gives_the_same_columns(container):
    sides = read_sides(container(X), container(Y[:, None]))
    assert sides.x.dtype == sides.y.dtype == np.float64
    np.testing.assert_array_equal(sides.x, X)
    np.testing.assert_array_equal(sides.y, Y[:, None])
    assert sides.x_discrete == (False, False) and sides.y_discrete == (False,)
    assert sides.notes == ()


def test_names():
    sides = read_sides(X, Y)
    assert sides.x_names == ("x0", "x1") and sides.y_names == ("y",)
    sides = read_sides(pd.DataFrame(X, columns=["a", 7]), pd.Series(Y, name="target"))
    assert sides.x_names == ("a", "7") and sides.y_names == ("target",)
    assert read_sides(pd.Series(Y), X[:, 0]).x_names == ("x",)


def test_tensors_with_gradient_and_of_half_width():
    x = torch.from_numpy(X).to(torch.bfloat16).requires_grad_()
    np.testing.assert_array_equal(read_sides(x, Y).x, x.detach().double().numpy())


def test_integers_become_float64_and_keep_their_values():  # M03
    p = np.array([*range(100), 1000])
    sides = read_sides(p, np.sqrt(p + 1))
    assert sides.x.dtype == np.float64 and sides.x_discrete == (False,)
    np.testing.assert_array_equal(sides.x[:, 0], p)
    assert noted(np.arange(40) + 2**60, Y, "above 2**53")


def test_string_labels_of_one_class():  # M04
    x = np.c_[[0, 1, 0, 1, 1, 0], RNG.normal(size=(6, 2))]
    sides = read_sides(x, ["Label"] * 6)
    np.testing.assert_array_equal(sides.y, np.zeros((6, 1)))
    assert sides.y_discrete == (True,) and sides.x_discrete == (True, False, False)
    assert any("y column 'y' is constant" in note for note in sides.notes)


@pytest.mark.parametrize(
    "labels",
    [
        ["b", "a"] * 20,
        np.array(["b", "a"] * 20, object),
        pd.Series(["b", "a"] * 20),
        pd.Series(["b", "a"] * 20, dtype="category"),
        pd.Series([2, 1] * 20, dtype="category"),
        [True, False] * 20,
        torch.tensor([True, False] * 20),
        pd.Series([True, False] * 20, dtype="boolean"),
    ],
    ids=["list", "object", "series", "category", "numbers", "bool", "torch", "nullable"],
)
def test_classes_become_codes(labels):
    sides = read_sides(X, labels)
    np.testing.assert_array_equal(sides.y[:, 0], [1.0, 0.0] * 20)
    assert sides.y_discrete == (True,)


def test_which_numbers_are_discrete():  # M13
    rng = np.random.default_rng(1)
    digits = rng.integers(0, 10, 100)
    for column, discrete in [
        (digits, True),
        (digits.astype(float), True),
        (digits / 7, True),
        (rng.normal(size=100), False),
        (rng.normal(size=100).astype(np.float32), False),
        (np.arange(100), False),
        (rng.integers(0, 60, 100), False),
    ]:
        assert read_sides(column, rng.normal(size=100)).x_discrete == (discrete,)
    assert read_sides(rng.integers(0, 60, 3600), np.arange(3600)).x_discrete == (True,)
    assert read_sides(pd.Series([1, 2] * 20, dtype="Int64"), Y).x_discrete == (True,)


def test_tables_are_matched_by_index():
    x, y = pd.DataFrame(X), pd.Series(Y)
    sides = read_sides(x, y.iloc[::-1])
    np.testing.assert_array_equal(sides.y[:, 0], Y)
    assert sides.notes == ("the rows of y were put in the order of x's index",)
    # An array has no labels: its rows are where they are.
    np.testing.assert_array_equal(read_sides(x, Y[::-1]).y[:, 0], Y[::-1])
    shifted = y.set_axis(np.arange(1, 41))
    fails(x, shifted, "1 labels only in x, such as 0", "1 labels only in y, such as 40")
    fails(x, y[:-1], "(40, 2)", "(39,)", "only in x, such as 39", "reset_index")
    repeated = np.arange(40) // 2
    fails(x.set_axis(repeated), y.set_axis(repeated[::-1]), "some labels repeat")
    assert read_sides(x.set_axis(repeated), y.set_axis(repeated)).notes == ()


def test_lengths_and_shapes():  # M17
    fails(np.zeros(100), np.zeros(99), "(100,)", "(99,)")
    fails(np.zeros((100, 1)), np.zeros((1, 100)), "(100, 1)", "(1, 100)", "y.T")
    fails(np.zeros((1, 100)), np.zeros((1, 100)), "at least 2 rows", "x.T", "y.T")
    fails(np.zeros((0, 3)), np.zeros(0), "at least 2 rows", "(0, 3)", "(0,)")
    fails([1.0], [1.0], "at least 2 rows")
    fails(np.zeros((4, 2, 2)), np.zeros(4), "x must have shape (n,) or (n, d)", "(4, 2, 2)")
    fails(3.0, np.zeros(4), "x must have shape", "()")
    fails(np.zeros((4, 0)), np.zeros(4), "x has no columns")
    fails([[1.0, 2.0], [3.0]], [1.0, 2.0], "x is no table")


def test_kinds_of_values():  # M17
    fails(X + 1j, Y, "x column 'x0'", "complex128")
    fails(X, np.array([*Y[:-1], None], object), "y column 'y'", "dtype object", "row 0")
    fails(X, [*Y[:-1], "a"], "dtype object")
    fails(X, Y.astype("datetime64[s]"), "datetime64")
    fails(X, pd.Series(pd.date_range("2020", periods=40)), "datetime64")
    fails(X, np.ma.masked_less(Y, 0), "y is masked, first at row")


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_values_that_are_not_finite(bad):  # M17
    x = X.copy()
    x[[17, 30], 1] = bad
    fails(x, Y, "x column 'x1'", str(bad), "row 17", "2 in all")
    fails(Y, torch.from_numpy(x), "y column 'y1'", "row 17")
    table = pd.DataFrame(x, columns=["a", "b"])
    fails(table, Y, "x column 'b'", "row 17")


@pytest.mark.parametrize("dtype", ["str", "category", "Int64", "boolean"])
def test_missing_values_of_tables(dtype):
    values = pd.Series([1, 0] * 20).astype(dtype)
    values[3] = None
    fails(X, values.rename("c"), "y column 'c' has a missing value, first at row 3")


def test_repeated_rows():
    x, y = np.r_[X, X[:5]], np.r_[Y, Y[:5]]
    assert noted(x, y, "5 of 45 rows repeat")
    assert not noted(x, np.r_[Y, Y[5:10]], "repeat")
    x[0], x[40] = 0.0, -0.0
    assert noted(x, y, "5 of 45 rows repeat")
    classes = RNG.integers(0, 2, 40)
    assert not noted(classes, classes, "repeat")


def test_deterministic_relations():  # M06
    assert noted(Y, Y, "y column 'y' is an affine function of x")
    assert len(noted(Y, Y, "affine")) == 1
    assert noted(Y, 3 - 2 * Y.astype(np.float32), "affine")
    assert noted(X, np.c_[Y, 1e6 + X @ [1.0, -2.0]], "y column 'y1' is an affine")
    assert noted(np.c_[Y, X], X[:, 0], "y column 'y' is an affine")
    assert noted(np.c_[Y, X[:, 0]], X, "y column 'y0' is an affine")
    assert noted(X, X[:, 0] + 1e6, "affine")
    assert not noted(X, X[:, 0] + 1e-3 * Y, "affine")
    assert not noted(X, X[:, 0] ** 2, "affine")
    # With as many columns as rows everything is fitted.
    assert not noted(RNG.normal(size=(10, 9)), RNG.normal(size=10), "affine")
    # Only the first rows agree.
    late = np.r_[X[:, 0], Y]
    assert not noted(np.r_[X[:, 0], X[:, 1]], late, "affine")
    long = RNG.normal(size=(200, 2))
    assert not noted(long[:, 0], np.r_[long[:100, 0], long[100:, 1]], "affine")


def test_mixed_sides_are_remarked():
    assert noted(np.c_[X, [0, 1] * 20], Y, "x mixes continuous columns with discrete ones ('x2')")


def test_pandas_is_not_imported():
    code = "import sys, relatum.mi.columns; assert 'pandas' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)

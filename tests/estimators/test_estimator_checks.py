"""The estimators are scikit-learn's: its own checks, pipelines, clones, searches."""

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from relatum import ContrastiveEncoder, LinearRPC


@parametrize_with_checks(
    [
        LinearRPC(),
        LinearRPC(beta=0.5, ridge=0.1),
        ContrastiveEncoder(steps=4, hidden=(8,), dimension=3),
        ContrastiveEncoder("cpc", "linear", pairing="time", steps=4, dimension=3),
    ]
)
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.SkipTestWarning")
def test_scikit_learns_checks(estimator, check):
    check(estimator)


def sides(n=80, seed=0):
    rng = np.random.default_rng(seed)
    z = rng.normal(size=(n, 2))
    x = z @ rng.normal(size=(2, 5)) + 0.5 * rng.normal(size=(n, 5))
    return x, z @ rng.normal(size=(2, 3)) + 0.5 * rng.normal(size=(n, 3))


@pytest.mark.parametrize("model", [LinearRPC(), LinearRPC(beta=0.2)])
def test_any_container(model):
    x, y = sides()
    expected = clone(model).fit(x, y).transform(x)
    table = pd.DataFrame(x, columns=list("abcde")), pd.DataFrame(y)
    for left, right in [
        table,
        (torch.tensor(x), torch.tensor(y)),
        (x.tolist(), y.tolist()),
        (np.asfortranarray(x), y[::-1][::-1]),
    ]:
        found = clone(model).fit(left, right).transform(left)
        np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-9)
    assert list(clone(model).fit(*table).get_feature_names_out()) == [
        "linearrpc0", "linearrpc1", "linearrpc2",
    ]  # fmt: skip
    half = torch.tensor(x).bfloat16()
    assert clone(model).fit(half, y).transform(half).dtype == np.float32
    column = clone(model).fit(x, y[:, 0]).transform(x)
    np.testing.assert_allclose(column, clone(model).fit(x, y[:, :1]).transform(x))


def test_saved_and_loaded(tmp_path):
    x, y = sides()
    table = pd.DataFrame(x, columns=list("abcde"))
    model = LinearRPC(0.5, rank=2).fit(table, pd.DataFrame(y, columns=list("uvw")))
    model.save(tmp_path / "model.pt")
    again = LinearRPC.load(tmp_path / "model.pt")
    assert again.get_params() == model.get_params() and again.value_ == model.value_
    np.testing.assert_array_equal(again.transform(table), model.transform(table))
    assert list(again.feature_names_in_) == list("abcde")
    assert list(again.target_names_in_) == list("uvw")
    np.testing.assert_array_equal(
        again.partial_fit(table, y).weight_, model.partial_fit(table, y).weight_
    )
    with pytest.raises(ValueError, match="holds no ContrastiveEncoder"):
        ContrastiveEncoder.load(tmp_path / "model.pt")


@pytest.mark.parametrize("model", [LinearRPC(), ContrastiveEncoder(steps=20, dimension=2)])
def test_tables_are_matched_by_their_index(model):
    x, y = (pd.DataFrame(side, index=[f"r{i}" for i in range(80)]) for side in sides())
    expected = clone(model).fit(x.to_numpy(), y).score(x.to_numpy(), y)
    with pytest.warns(UserWarning, match="rows of y were put in the order of x's index"):
        fitted = clone(model).fit(x, y[::-1])
    with pytest.warns(UserWarning, match="put in the order"):
        assert fitted.score(x, y.sample(frac=1, random_state=0)) == pytest.approx(expected)
    with pytest.raises(ValueError, match="different indexes: 80 labels only in x"):
        clone(model).fit(x, y.reset_index(drop=True))


def test_missing_values_are_refused_by_name():
    x, y = sides()
    x[3, 1] = np.nan
    for left, name in [(x, "1"), (pd.DataFrame(x, columns=list("abcde")), "'b'")]:
        with pytest.raises(ValueError, match=f"X has NaN.* at row 3, column {name} .1 such row"):
            LinearRPC().fit(left, y)
    x[3, 1], y[5, 2] = 0, np.inf
    with pytest.raises(ValueError, match="y has inf at row 5, column 'w'"):
        LinearRPC().fit(x, pd.DataFrame(y, columns=list("uvw")))
    with pytest.raises(ValueError, match="X is masked, first at row 2"):
        LinearRPC().fit(np.ma.masked_array(x, np.arange(400).reshape(80, 5) == 11), y)


def test_mistakes_have_one_sentence():
    x, y = sides()
    with pytest.raises(ValueError, match="one row for each pair, got 80 and 79"):
        LinearRPC().fit(x, y[1:])
    with pytest.raises(ValueError, match="requires y to be passed"):
        LinearRPC().fit(x)
    with pytest.raises(NotFittedError):
        LinearRPC().transform(x)
    model = LinearRPC().fit(x, y)
    with pytest.raises(ValueError, match="y has 2 columns; fit saw 3"):
        model.score(x, y[:, :2])
    with pytest.raises(ValueError, match="side must be 'x' or 'y', got 'z'"):
        model.transform(x, side="z")
    for wrong, message in [
        ({"gamma": 0}, "gamma must be > 0"),
        ({"alpha": -1}, "alpha must be a finite number >= 0"),
        ({"ridge": -0.1}, "ridge must be a finite number >= 0"),
        ({"rank": 0}, "rank must be at least 1"),
    ]:
        with pytest.raises(ValueError, match=message):
            LinearRPC(**wrong).fit(x, y)


def test_pipeline_and_search():
    x, y = sides(200)
    pipe = make_pipeline(StandardScaler(), LinearRPC())
    search = GridSearchCV(pipe, {"linearrpc__ridge": [0.0, 0.1, 100.0]}, cv=3).fit(x, y)
    values = search.cv_results_["mean_test_score"]
    assert search.best_params_["linearrpc__ridge"] < 100 and values[2] == values.min()
    assert search.best_estimator_.transform(x).shape == (200, 3)
    assert pipe.fit(x, y).score(x, y) == pytest.approx(LinearRPC().fit(x, y).value_)


def test_a_plain_import_needs_no_scikit_learn():
    import subprocess
    import sys

    code = "import relatum, sys; assert 'sklearn' not in sys.modules; relatum.LinearRPC"
    subprocess.run([sys.executable, "-c", code], check=True)
    assert "LinearRPC" in dir(__import__("relatum"))

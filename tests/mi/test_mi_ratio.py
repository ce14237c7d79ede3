"""DensityRatio keeps scikit-learn's conventions and tells related pairs from unrelated ones."""

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.validation import check_is_fitted

from relatum import RPC
from relatum.mi.ratio import DensityRatio

RHO = 0.8


def pairs(n, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, 1))
    return x, RHO * x + np.sqrt(1 - RHO**2) * rng.normal(size=(n, 1))


def log_ratio(x, y):
    """Of two standard normal variables with correlation RHO."""
    quadratic = (RHO**2 * (x**2 + y**2) - 2 * RHO * x * y) / (2 * (1 - RHO**2))
    return (-0.5 * np.log(1 - RHO**2) - quadratic).ravel()


@pytest.fixture(scope="module")
def fitted():
    return DensityRatio(seed=3).fit(*pairs(2000))


def test_near_the_true_ratio(fitted):
    x, y = pairs(1000, seed=1)
    error = fitted.log_ratio(x, y) - log_ratio(x, y)
    assert np.sqrt((error**2).mean()) < 0.35
    assert fitted.score(x, y) == pytest.approx(log_ratio(x, y).mean(), abs=0.1)
    assert fitted.score(x, y) == pytest.approx(fitted.log_ratio(x, y).mean(), rel=1e-12)
    np.testing.assert_allclose(fitted.ratio(x, y), np.exp(fitted.log_ratio(x, y)))


def test_one_pair_and_any_container(fitted):
    x, y = pairs(5, seed=2)
    expected = fitted.log_ratio(x, y)
    assert expected.shape == (5,)
    for other in (
        (x.ravel(), y.ravel()),
        (torch.tensor(x), torch.tensor(y)),
        (pd.DataFrame(x), pd.Series(y.ravel())),
        (x.tolist(), y.tolist()),
    ):
        np.testing.assert_allclose(fitted.log_ratio(*other), expected, rtol=1e-6)
    np.testing.assert_allclose(fitted.log_ratio(x[:1], y[:1]), expected[:1], rtol=1e-5)


def test_same_seed_same_ratio():
    x, y = pairs(300)
    one, two = (DensityRatio(seed=7, options={"steps": 20}).fit(x, y) for _ in range(2))
    np.testing.assert_array_equal(one.log_ratio(x, y), two.log_ratio(x, y))


def test_constructor_stores_arguments_untouched():
    objective, options = RPC(0.0, 0.05, 1.0), {"steps": 20}
    ratio = DensityRatio(objective, "joint", valid_fraction=7, options=options)
    assert ratio.objective is objective
    assert ratio.options is options
    assert ratio.get_params() == {
        "objective": objective, "critic": "joint", "valid_fraction": 7, "seed": 0,
        "options": options,
    }  # fmt: skip


def test_set_params_and_repr():
    ratio = DensityRatio()
    assert ratio.set_params(seed=4) is ratio
    assert repr(ratio) == "DensityRatio(seed=4)"
    with pytest.raises(ValueError, match="no parameter 'sed'; it has objective, critic"):
        ratio.set_params(sed=4)
    with pytest.raises(ValueError, match=r"objective__beta: objective is RPC.* new one with"):
        ratio.set_params(objective__beta=0.1)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_tensors_of_any_float(fitted, dtype):
    x, y = torch.tensor([[0.5], [-1.0]], dtype=dtype), torch.tensor([0.5, 1.0], dtype=dtype)
    plain = fitted.log_ratio([[0.5], [-1.0]], [0.5, 1.0])  # numbers that half precision has
    assert fitted.log_ratio(x, y) == pytest.approx(plain)


def test_clone_is_unfitted_and_equal(fitted):
    copy = clone(fitted)
    assert copy.get_params() == fitted.get_params()
    assert not hasattr(copy, "critic_")
    check_is_fitted(fitted)
    with pytest.raises(NotFittedError):
        check_is_fitted(copy)
    with pytest.raises(ValueError, match=r"call fit\(x, y\) first"):
        copy.log_ratio([[1.0]], [[1.0]])


def test_at_the_end_of_a_pipeline():
    x, y = pairs(400)
    pipe = make_pipeline(StandardScaler(), DensityRatio(options={"steps": 50}))
    pipe.set_params(densityratio__seed=5)
    assert pipe.fit(100 * x, y) is pipe
    assert pipe[-1].seed == 5
    scaled = pipe[:-1].transform(100 * x)
    assert pipe.score(100 * x, y) == pytest.approx(pipe[-1].score(scaled, y))
    assert len(cross_val_score(clone(pipe), 100 * x, y.ravel(), cv=2)) == 2
    assert repr(pipe)
    assert pipe._repr_html_()


def test_attributes_of_the_fit():
    x, y = pairs(100)
    table = pd.DataFrame({"a": x[:, 0], "b": x[:, 0] ** 2})
    ratio = DensityRatio(options={"steps": 5}).fit(table, y)
    assert (ratio.n_features_in_, ratio.n_targets_) == (2, 1)
    assert ratio.feature_names_in_.tolist() == ["a", "b"]
    assert not hasattr(ratio.fit(table.to_numpy(), y), "feature_names_in_")


@pytest.mark.parametrize(
    ("x", "y", "params", "message"),
    [
        (np.zeros((10, 2)), np.zeros(9), {}, r"got shapes \(10, 2\) and \(9, 1\)"),
        (np.array(["a"] * 10), np.zeros(10), {}, "encode classes as columns of 0 and 1"),
        (np.zeros((10, 2, 2)), np.zeros(10), {}, "x must be numbers of shape"),
        (np.zeros(10), np.r_[np.zeros(9), np.nan], {}, "y has nan at row 9, column 0"),
        (np.zeros(3), np.zeros(3), {}, "3 rows cannot be split into 1 to stop by and 2"),
        (np.zeros(9), np.zeros(9), {"valid_fraction": 0.0}, "valid_fraction must be between"),
    ],
)
def test_errors_of_fit(x, y, params, message):
    with pytest.raises(ValueError, match=message):
        DensityRatio(**params).fit(x, y)


def test_wrong_width(fitted):
    with pytest.raises(ValueError, match="x has 2 columns; fit saw 1"):
        fitted.log_ratio(np.zeros((4, 2)), np.zeros(4))

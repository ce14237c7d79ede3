"""Options that would do nothing, and readings that must not depend on what is asked beside them."""

import numpy as np
import pytest

from relatum.mi import Training, estimate_mi, fit_critic
from relatum.mi.doe import fit_doe
from relatum.mi.training import _notes

FAST = {"critic": "kernel", "folds": 2, "resamples": 2}


def normal(n, d=1, noise=1.0, seed=0):
    x, e = np.random.default_rng(seed).normal(size=(2, n, d))
    return x, x + noise * e


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"outside": "clip"}, "outside must be one of .*got 'clip'"),
        ({"objective": 1}, "'objective' is no option of method 'rpc'"),
        ({"valid": 1}, "'valid' is no option of method 'rpc'"),
        (
            {"method": "ksg", "neighbors": 3},
            "'neighbors' of method 'ksg'; known are k, standardise",
        ),
        ({"method": "doe", "family": "logistic"}, "'family' is no option of method 'doe'"),
    ],
)
def test_options_that_a_method_has_not(settings, message):
    with pytest.raises(ValueError, match=message):
        estimate_mi(*normal(60), **settings)


def test_saturation_is_not_taken_for_a_critic_that_fits_noise():
    """At its ceiling CPC reads log K on all rows, so the rows trained on must be as many."""
    found = estimate_mi(*normal(150, 8, 0.01), "cpc", permutations=0, **FAST | {"folds": 5})
    assert any("saturated" in warning for warning in found.warnings)
    assert found.train_value <= found.ceiling + 1e-9
    assert not any("fits noise" in warning for warning in found.warnings)


def test_the_p_value_does_not_move_the_value(monkeypatch):
    monkeypatch.setattr("relatum.mi.trained._SHIFTS", 8)
    few, many = (estimate_mi(*normal(60), "cpc", permutations=p, **FAST) for p in (0, 20))
    assert few.value == many.value and few.ceiling == many.ceiling == pytest.approx(np.log(9))
    assert many.permutations == 20


def test_the_last_step_is_looked_at():
    """Fewer steps than lie between two looks are training too, and 0 steps gained are no rise."""
    (x, y), valid = normal(100, 1, 0.3), normal(100, 1, 0.3, seed=1)
    critic = fit_critic(x, y, valid=valid, critic="joint", steps=7, check_every=20, width=8)
    assert critic.best_step == critic.steps == 7 and "not converged" in critic.notes[0]
    assert _notes(0.0, 0, 7, 0, Training(steps=7)) == ()
    assert "not converged" in fit_doe(x, y, valid=valid, steps=7, width=8).notes[0]


def test_groups_are_matched_by_index():
    pandas = pytest.importorskip("pandas")
    x, y = (pandas.Series(side[:, 0]) for side in normal(60))
    groups = pandas.Series(np.arange(60) // 3)
    shuffled = groups.sample(frac=1, random_state=0)
    plain, found = (
        estimate_mi(x, y, "gaussian", groups=g, resamples=50) for g in (groups, shuffled)
    )
    assert found.interval == plain.interval
    assert "the rows of groups were put in the order of x's index" in found.warnings
    with pytest.raises(ValueError, match="x and groups .* 1 labels only in x"):
        estimate_mi(x, y, "gaussian", groups=groups[:59])

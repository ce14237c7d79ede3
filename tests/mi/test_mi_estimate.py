"""The front door: truths, invariances, errors, and honesty on independent sides."""

import math

import numpy as np
import pytest
import torch
from scipy.signal import lfilter
from scipy.special import digamma

from relatum.mi import METHODS, estimate_mi
from relatum.mi.doe import _UNIT, DoE
from relatum.mi.methods import DOE, READERS, TRAINED
from relatum.mi.tasks import TASKS

FITTED = [*TRAINED, *DOE]
FAST = {"critic": "kernel"}  # no training: the start in closed form
QUICK = {"steps": 40, "folds": 2, "width": 16}


def normal(n, d=1, rho=0.0, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, d))
    return x, rho * x + math.sqrt(1 - rho**2) * rng.normal(size=(n, d))


def information(d, rho):
    return -d / 2 * math.log1p(-(rho**2))


def suitable(method, n, rho, seed=0):
    """Data for the method, and the truth."""
    if method == "discrete":
        task = TASKS["table-2x2"]
    elif method == "mixed":
        task = TASKS["bit-gaussian-1"]
    else:
        return *normal(n, 1, rho, seed), information(1, rho)
    return *task.sample(n, seed), task.mutual_information


# Truth


@pytest.mark.parametrize("method", METHODS)
def test_every_method_finds_the_truth(method):
    """Within four standard errors, 0.08 for training that is cut short, 0.2 lost by bins."""
    x, y, truth = suitable(method, 500, 0.75, seed=1)
    options = {"steps": 60, "folds": 2, "width": 32} if method in FITTED else {}
    found = estimate_mi(x, y, method, permutations=9, **options)
    allowed = 4 * found.standard_error + (0.08 if method in FITTED else 0.0)
    low = 0.2 if method == "histogram" else 0.0
    assert truth - low - allowed <= found.value <= truth + allowed
    assert found.interval[0] <= found.value <= found.interval[1]
    assert found.method == method and found.rows == found.held_out == 500
    assert found.p_value == 0.1 and found.permutations == 9
    assert (found.train_value is None) == (method not in FITTED)
    assert found.unit == "nats" and found.settings["seed"] == 0


@pytest.mark.parametrize("method", ["rpc", "nwj", "doe"])
def test_classes_in_trained_methods(method):
    task = TASKS["table-2x2"]
    found = estimate_mi(*task.sample(600, 0), method, permutations=0, steps=60, folds=2)
    assert abs(found.value - task.mutual_information) < 4 * found.standard_error + 0.05


@pytest.mark.parametrize("method", DOE)
def test_columns_that_depend_on_each_other_in_doe(method):
    """Densities are products, but columns are turned until that loses nothing."""
    x, y = normal(600, 3, 0.7)
    mixing = np.array([[1.0, 0.9, 0.0], [0.0, 0.5, 0.8], [0.3, 0.0, 1.0]])
    found = estimate_mi(x, y @ mixing, method, permutations=0, folds=2)
    assert abs(found.value - information(3, 0.7)) < 4 * found.standard_error + 0.15


def test_pointwise_values_are_those_of_the_rows():
    x, y = normal(600, 1, 0.8)
    exact = ((0.8 * x * y - 0.32 * (x**2 + y**2)) / 0.36 - math.log(0.36) / 2)[:, 0]
    found = estimate_mi(x, y, permutations=0, **FAST)
    assert np.corrcoef(found.pointwise, exact)[0, 1] > 0.9
    found = estimate_mi(x, y, "doe", permutations=0, steps=60)
    assert np.corrcoef(found.pointwise, exact)[0, 1] > 0.8


# Honesty on independent sides


@pytest.mark.parametrize("method", FITTED)
@pytest.mark.parametrize("d", [1, 20])
def test_independent_sides_are_not_read_as_dependent(method, d):
    found = estimate_mi(
        *normal(200, d, seed=5), method, permutations=0, steps=30, folds=2, width=32
    )
    assert found.interval[0] <= 0.05 or found.warnings


@pytest.mark.parametrize("method", ["ksg", "gaussian", "histogram"])
def test_independent_sides_without_training(method):
    for n, d in [(200, 1), (200, 10), (200, 50), (1000, 50)]:
        try:
            found = estimate_mi(*normal(n, d, seed=5), method, permutations=0)
        except ValueError:  # refused
            continue
        assert found.interval[0] <= 0.05 or found.warnings


def test_p_values_are_uniform_under_independence_and_small_under_dependence():
    def p_values(method, n, repeats, **options):
        options |= {"permutations": 19}
        found = [
            estimate_mi(*normal(n, seed=seed), method, seed=seed, **options)
            for seed in range(repeats)
        ]
        return np.array([one.p_value for one in found])

    for found in (p_values("gaussian", 30, 80), p_values("rpc", 100, 30, folds=2, **FAST)):
        np.testing.assert_allclose(found * 20, np.round(found * 20))  # (1 + k) / 20
        assert found.min() >= 0.05
        error = 0.29 / math.sqrt(len(found))
        assert abs(found.mean() - 0.525) < 4 * error
        assert (found <= 0.1).mean() < 0.1 + 4 * 0.3 / math.sqrt(len(found))
    assert estimate_mi(*normal(100, rho=0.6), "ksg", permutations=99).p_value == 0.01
    found = estimate_mi(*normal(300, rho=0.6), permutations=99, folds=2, **FAST)
    assert found.p_value == 0.01
    # Folds of 20 rows have 19 shifts.
    found = estimate_mi(*normal(100, rho=0.6), permutations=99, **FAST)
    assert found.permutations == 19 and found.p_value == 0.05


def test_a_value_of_exactly_zero_and_one_far_below_are_explained():
    x, y = normal(60, 10, seed=1)
    found = estimate_mi(x, y, "doe", permutations=0, steps=20)
    assert found.value == 0 and found.interval == (0, 0)
    assert any("exactly 0" in warning for warning in found.warnings)
    # A balanced table, where the correction alone is left.
    found = estimate_mi(np.arange(400) % 4, np.arange(400) // 4 % 4, "discrete", permutations=0)
    assert found.value == pytest.approx(-9 / 800)
    assert any("negative, as estimates near 0" in warning for warning in found.warnings)


# Invariance


@pytest.mark.parametrize("method", FITTED)
def test_rising_maps_of_columns_change_nothing(method):
    x, y = normal(120, 2, 0.7)
    options = {"permutations": 9, "steps": 10, "folds": 2}
    plain = estimate_mi(x, y, method, **options)
    for bent in (8 * x - 3, np.exp(x), x**3):
        found = estimate_mi(bent, np.arctan(y), method, **options)
        assert (found.value, found.interval) == (plain.value, plain.interval)
        assert found.p_value == plain.p_value


@pytest.mark.parametrize("method", READERS)
def test_untrained_methods_are_symmetric_and_blind_to_order(method):
    x, y, _ = suitable(method, 200, 0.7)
    options = {"permutations": 0}
    plain = estimate_mi(x, y, method, **options).value
    order = np.random.default_rng(0).permutation(200)
    assert estimate_mi(y, x, method, **options).value == pytest.approx(plain, abs=1e-10)
    found = estimate_mi(x[order], y[order], method, **options).value
    assert found == pytest.approx(plain, abs=1e-10)
    found = estimate_mi(1000 * x - 5, y / 8, method, **options).value
    assert found == pytest.approx(plain, abs=1e-10)


@pytest.mark.parametrize("method", ["rpc", "cpc", "dv", "doe"])
def test_trained_methods_are_nearly_symmetric_and_blind_to_order(method):
    x, y = normal(300, 2, 0.7)
    options = {"permutations": 0, **QUICK}
    plain = estimate_mi(x, y, method, **options)
    order = np.random.default_rng(0).permutation(300)
    for sides in ((y, x), (x[order], y[order])):
        found = estimate_mi(*sides, method, **options)
        assert found.interval[0] < plain.interval[1] and plain.interval[0] < found.interval[1]
        assert abs(found.value - plain.value) < 3 * plain.standard_error


@pytest.mark.parametrize("method", ["rpc", "nwj", "ksg"])
def test_processing_adds_no_information(method):
    x, y = normal(500, 1, 0.8)
    noisy = y + 0.7 * np.random.default_rng(9).normal(size=y.shape)
    options = {"permutations": 0, **(FAST if method in TRAINED else {})}
    whole = estimate_mi(x, y, method, **options)
    part = estimate_mi(x, noisy, method, **options)
    assert part.interval[0] <= whole.interval[1] and part.value < whole.value
    # cov(x, noisy) = 0.8, var = 1.49.
    truth = information(1, 0.8 / math.sqrt(1.49))
    assert abs(part.value - truth) < 4 * part.standard_error + 0.05


# What is random


@pytest.mark.parametrize("method", ["rpc", "mine", "doe", "ksg"])
def test_the_seed_is_all_that_is_random(method):
    x, y = normal(120, 1, 0.6)
    kept = x.copy(), y.copy()
    options = {
        "permutations": 9,
        **({"steps": 40, "folds": 2, "width": 16} if method in FITTED else {}),
    }
    torch.manual_seed(1)
    states = torch.get_rng_state(), np.random.get_state()[1].copy()  # noqa: NPY002
    first = estimate_mi(x, y, method, seed=3, **options)
    assert torch.equal(states[0], torch.get_rng_state())
    np.testing.assert_array_equal(states[1], np.random.get_state()[1])  # noqa: NPY002
    torch.manual_seed(2)
    again = estimate_mi(x, y, method, seed=3, **options)
    assert (first.value, first.interval, first.p_value) == (
        again.value, again.interval, again.p_value,
    )  # fmt: skip
    assert estimate_mi(x, y, method, seed=4, **options).interval != first.interval
    np.testing.assert_array_equal(kept, (x, y))


def test_seeds_are_averaged_and_their_spread_is_reported():  # M19
    x, y = normal(150, 20, 0.5)
    assert estimate_mi(x, y, permutations=0, **FAST).seed_spread is None
    both = estimate_mi(x, y, permutations=19, seeds=2, seed=7, **FAST)
    single = [estimate_mi(x, y, permutations=0, seed=s, **FAST).value for s in (7, 1_000_010)]
    assert both.value == pytest.approx(np.mean(single))
    assert both.seed_spread == pytest.approx(np.std(single, ddof=1))
    assert both.standard_error >= both.seed_spread / math.sqrt(2)
    assert both.pointwise.shape == (150,) and np.isfinite(both.pointwise).all()
    assert both.settings["seeds"] == 2 and 0 < both.p_value <= 1


def test_unfinished_training_is_flagged():  # M19
    found = estimate_mi(*normal(200, 1, 0.9), permutations=0, critic="joint", steps=20)
    assert any("not converged" in warning for warning in found.warnings)


# Groups and series


def test_groups_keep_copies_together():
    """Three copies of each row: without groups critics meet rows that they were trained on."""
    x, y = (np.repeat(side, 3, axis=0) for side in normal(100, 10, seed=2))
    groups = np.repeat(np.arange(100), 3)
    found = estimate_mi(x, y, groups=groups, steps=40, folds=3, width=32)
    assert found.interval[0] <= 0.05
    assert found.p_value is None and any("no p-value" in w for w in found.warnings)
    assert found.settings["groups"] == 100
    assert any("copies" in w for w in found.warnings)
    rows, whole = (estimate_mi(x, y, "gaussian", permutations=0, groups=g) for g in (None, groups))
    assert whole.standard_error > 1.5 * rows.standard_error  # √3, as 100 rows are


def series(n, rho, seed):
    """Two AR(1) series, a = 0.9, whose simultaneous values have correlation rho."""
    noise = np.random.default_rng(seed).normal(size=(n + 200, 2))
    noise[:, 1] = rho * noise[:, 0] + math.sqrt(1 - rho**2) * noise[:, 1]
    return lfilter([1.0], [1.0, -0.9], noise, axis=0)[200:].T


@pytest.mark.parametrize("method", ["rpc", "dv", "gaussian"])
def test_series(method):
    options = FAST if method in TRAINED else {}
    independent = [
        estimate_mi(*series(400, 0.0, s), method, block_length=20, permutations=19, **options)
        for s in range(6)
    ]
    assert sum(found.interval[0] > 0.05 for found in independent) <= 1
    assert sum(found.p_value <= 0.05 for found in independent) <= 2
    x, y = series(800, 0.9, 0)
    found = estimate_mi(x, y, method, block_length=20, permutations=19, **options)
    assert abs(found.value - information(1, 0.9)) < 4 * found.standard_error
    assert found.p_value == 0.05
    rows = estimate_mi(x, y, method, permutations=0, **options)
    assert found.standard_error > 1.5 * rows.standard_error


def test_near_rows_of_a_series_are_no_negatives():
    """Of a stretch of 80 rows, shifts by 20 to 60 are no nearer than 20 around."""
    found = estimate_mi(*series(400, 0.5, 0), block_length=20, permutations=199, **FAST)
    assert found.permutations == 41


# Reports


def test_bits():
    x, y = normal(100, 1, 0.6)
    nats, bits = (estimate_mi(x, y, permutations=9, unit=u, **FAST) for u in ("nats", "bits"))
    assert bits.unit == "bits"
    for name in ("value", "standard_error", "train_value"):
        assert getattr(bits, name) == pytest.approx(getattr(nats, name) / math.log(2))
    np.testing.assert_allclose(bits.interval, np.divide(nats.interval, math.log(2)))
    assert bits.p_value == nats.p_value


@pytest.mark.parametrize("method", ["rpc", "doe", "ksg"])
def test_progress_is_told(method):
    told = []
    options = {"steps": 2, "folds": 3, "seeds": 2} if method in FITTED else {}
    estimate_mi(
        *normal(80), method, permutations=4, progress=lambda *at: told.append(at), **options
    )
    total = 6 if method in FITTED else 4
    assert told[0] == (0, total) and told[-1] == (total, total)
    done = [at for at, _ in told]
    assert done == sorted(done) and {of for _, of in told} == {total}


def test_kernels_that_hardly_meet_are_no_error():
    """In 100 columns no two rows are near: the form of chi2 is a difference of equal numbers."""
    found = estimate_mi(*normal(200, 50, seed=7), "chi2", permutations=0, folds=2)
    assert found.interval[0] <= 0.05


def test_what_does_nothing_is_said():
    x, y = normal(60, 1, 0.6)
    said = estimate_mi(x, y, "ksg", permutations=0, folds=3, seeds=2).warnings
    assert [text.split()[:4] for text in said] == [
        ["folds", "does", "nothing", "for"], ["seeds", "does", "nothing", "for"]
    ]  # fmt: skip
    assert not estimate_mi(x, y, "ksg", permutations=0).warnings


def test_settings_say_what_was_done():
    x, y = normal(100, 1, 0.6)
    options = {"alpha": 0.5, "beta": 0.1, "gamma": 0.9, "critic": "kernel"}
    found = estimate_mi(x, y, permutations=0, folds=3, seeds=2, **options)
    assert options.items() <= dict(found.settings).items()
    assert found.settings["folds"] == 3
    # The weights reach the objective: another optimum, another critic.
    assert found.value != estimate_mi(x, y, permutations=0, folds=3, seeds=2, **FAST).value
    assert options == {"alpha": 0.5, "beta": 0.1, "gamma": 0.9, "critic": "kernel"}


def test_smile_at_large_tau_reads_as_dv_at_the_same_critic():
    x, y = normal(200, 1, 0.8)
    options = {"permutations": 0, **FAST}
    low, high = (estimate_mi(x, y, "smile", tau=tau, **options) for tau in (0.01, 1e9))
    # Clipped near 0 the partition is near 1, and the reading is the mean of u.
    assert low.value == pytest.approx(low.pointwise.mean(), abs=0.02)
    assert high.value != low.value
    assert estimate_mi(x, y, "smile", **options).settings["tau"] == 5.0


# Ceilings


def test_ceiling_of_cpc():  # M15
    for n, d, rho in [(40, 1, 0.999), (320, 10, 0.99)]:
        found = estimate_mi(*normal(n, d, rho), "cpc", permutations=0, **FAST)
        assert found.ceiling == pytest.approx(math.log(n / 5))  # five folds
        assert found.value <= found.ceiling
        if d == 10:
            assert any("saturated" in warning for warning in found.warnings)


def test_ceiling_of_folds_of_unlike_size():
    found = estimate_mi(*normal(52, 10, 0.9999), "cpc", permutations=0, **FAST)
    # Two folds of 11 rows, three of 10.
    assert found.ceiling == pytest.approx((22 * math.log(11) + 30 * math.log(10)) / 52)
    assert math.log(10) < found.value <= found.ceiling + 1e-9


# Field reports, M01 to M20


def test_small_negative_values_are_returned_and_explained():  # M01
    values = []
    for seed in range(6):
        found = estimate_mi(*normal(1000, seed=seed), "ksg", k=3, permutations=0)
        values.append(found.value)
        assert abs(found.value) < 0.1
        assert (found.value < 0) == any("negative" in warning for warning in found.warnings)
    assert min(values) < 0


def test_integers_keep_their_values():  # M03
    whole = np.array([*range(100), 1000])
    root = np.sqrt(whole + 1)
    for sides in ((whole, root), (whole.astype(float), root), (root, whole)):
        found = estimate_mi(*sides, "ksg", k=3, permutations=0)
        assert found.value == pytest.approx(2.4560022587, abs=1e-9)


def test_one_label():  # M04
    for column in ([0, 1, 0, 1, 1, 0], [0.1, 0.5, 0.2, 0.9, 0.7, 0.3]):
        found = estimate_mi(column, ["Label"] * 6, "mixed", permutations=0)
        assert found.value == pytest.approx(0.0, abs=1e-12)
        assert any("constant" in warning for warning in found.warnings)
    assert estimate_mi([0, 1, 0, 1, 1, 0], ["Label"] * 6, "discrete", permutations=0).value == 0


@pytest.mark.parametrize("method", FITTED)
def test_constant_columns_in_trained_methods(method):
    x, y = normal(100, 2, 0.7)
    constant = np.full((100, 1), 3.0)
    options = {"permutations": 9, "folds": 2, "steps": 10}
    for sides in ((x, constant), (constant, y)):
        found = estimate_mi(*sides, method, **options)
        assert abs(found.value) < 0.02
        assert any("constant" in warning for warning in found.warnings)
    found = estimate_mi(np.c_[x, constant], np.c_[y, constant], method, **options)
    assert np.isfinite(found.value)


def test_wide_numbers_against_digits_are_symmetric():  # M05
    rng = np.random.default_rng(0)
    digits, wide = rng.integers(0, 10, 100), 1000 * rng.normal(size=100)
    one, other = (
        estimate_mi(*sides, "ksg", permutations=19) for sides in ((wide, digits), (digits, wide))
    )
    assert one.value == pytest.approx(other.value, abs=1e-12)


@pytest.mark.parametrize("n", [10, 100, 1000])
def test_self_information_is_flagged(n):  # M06
    x = np.random.default_rng(0).normal(size=n)
    found = estimate_mi(x, x, "ksg", k=3, permutations=0)
    assert found.value == pytest.approx(digamma(n) - digamma(3), abs=1e-9)
    assert any("a function of the number of rows" in warning for warning in found.warnings)


def test_units_of_measurement_do_not_matter():  # M07
    rng = np.random.default_rng(0)
    x, y = rng.uniform(size=(2, 1000))
    values = [
        estimate_mi(scale * x, (x + y) / 2, "ksg", k=3, permutations=0).value
        for scale in (1e-3, 1, 100, 1e6)
    ]
    np.testing.assert_allclose(values, 0.4913, atol=5e-5)


@pytest.mark.parametrize(("mean", "truth"), [(2, 0.6327201937), (1, 0.3368308203)])
def test_bit_against_number(mean, truth):  # M09
    rng = np.random.default_rng(0)
    bit = rng.integers(0, 2, 2000)
    found = estimate_mi(bit == 1, rng.normal(mean * (2 * bit - 1)), "mixed", permutations=0)
    assert abs(found.value - truth) < 4 * found.standard_error
    assert found.value < math.log(2) + 0.01
    trained = estimate_mi(bit, rng.normal(mean * (2 * bit - 1)), permutations=0, **FAST)
    assert abs(trained.value - truth) < 4 * trained.standard_error + 0.05


def test_many_columns():  # M10
    x, y = normal(1500, 16, 0.5)
    found = estimate_mi(x, y, "ksg", permutations=0)
    assert found.value < 1.0 and found.warnings
    truth = 2.3014565796
    for method in ("gaussian", "rpc"):
        options = FAST if method == "rpc" else {}
        found = estimate_mi(x, y, method, permutations=0, **options)
        assert abs(found.value - truth) < 4 * found.standard_error + 0.05


def test_too_few_rows():  # M11
    with pytest.raises(ValueError, match="n=2, k=3"):
        estimate_mi([[1, 0, 1], [0, 1, 1]], [0, 1], "mixed")
    with pytest.raises(ValueError, match="k=3 with n=3 rows"):
        estimate_mi([0.1, 0.2, 0.3], [1.0, 5.0, 2.0], "ksg")
    x, y = normal(30, 2)
    for method in FITTED:
        for n in (2, 5, 7, 14):
            with pytest.raises(ValueError, match=r"rows"):
                estimate_mi(x[:n], y[:n], method)
    with pytest.raises(ValueError, match="rpc trains on 9 of 14 rows in a fold, and needs 10"):
        estimate_mi(x[:14], y[:14])
    for n in (16, 30):
        found = estimate_mi(x[:n], y[:n], permutations=0, steps=10)
        assert np.isfinite(found.interval).all()


def test_table_of_five_rows():  # M12
    found = estimate_mi(
        [0, 0, 1, 1, 2], [0, 0, 1, 1, 1], "discrete", correction="none", permutations=0
    )
    assert found.value == pytest.approx(0.6730116670, abs=1e-9)


def test_measurements_are_no_classes():  # M13
    x, y = normal(100)
    with pytest.raises(ValueError, match="almost every row is a class of its own"):
        estimate_mi(x, y, "discrete")
    assert abs(estimate_mi(x, y, "histogram", permutations=0).value) < 0.15


def test_shapes():  # M17
    x, y = normal(100)
    for sides, message in [
        ((x, y[:99]), r"\(100, 1\) and \(99, 1\)"),
        ((x, y.T), r"\(100, 1\) and \(1, 100\)"),
        ((x[:0], y[:0]), "at least 2 rows"),
        ((x + 1j, y), "complex128"),
        ((np.where(np.arange(100)[:, None] == 7, np.nan, x), y), "nan, first at row 7"),
    ]:
        with pytest.raises(ValueError, match=message):
            estimate_mi(*sides)


def test_pandas():
    pandas = pytest.importorskip("pandas")
    x, y = (side[:, 0] for side in normal(60, 1, 0.6))
    left, right = pandas.Series(x), pandas.Series(y)
    plain = estimate_mi(x, y, permutations=0, **FAST)
    shuffled = right.sample(frac=1, random_state=0)
    found = estimate_mi(left, shuffled, permutations=0, **FAST)
    assert found.value == plain.value
    assert "put in the order of x's index" in found.warnings[0]
    with pytest.raises(ValueError, match="have different indexes: 1 labels only in x"):
        estimate_mi(left, right.rename({59: 99}))


# Mistakes


@pytest.mark.parametrize("method", METHODS)
def test_unknown_options_are_named(method):
    x, y, _ = suitable(method, 60, 0.5)
    with pytest.raises(ValueError, match="'depth'"):
        estimate_mi(x, y, method, depth=3)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"method": "mi"}, "unknown method 'mi'; known are rpc, cpc"),
        ({"unit": "bans"}, "unit must be 'nats' or 'bits', got 'bans'"),
        ({"permutations": -1}, "permutations must be at least 0, got -1"),
        ({"seeds": 0}, "seeds must be at least 1, got 0"),
        ({"level": 95}, "level must be between 0 and 1, got 95"),
        ({"resamples": 1}, "resamples must be at least 2, got 1"),
        ({"folds": 0}, "folds must be at least 2, got 0"),
        ({"valid_fraction": 0.0}, "valid_fraction must be between 0 and 1, got 0.0"),
        ({"critic": "deep"}, "critic must be one of residual"),
        ({"steps": 0}, "steps must be at least 1, got 0"),
        ({"method": "doe", "steps": 0}, "steps must be at least 1|width and steps"),
        ({"method": "smile", "tau": 0.0}, "tau must be above 0, got 0.0"),
        ({"method": "nwj", "alpha": 1.0}, "alpha belongs to method 'rpc'; 'nwj' has none"),
        ({"method": "ksg", "groups": [0, 1]}, r"one label for each of 60 rows, got \(2,\)"),
        ({"groups": [0] * 60}, "at least 2 different labels"),
        ({"method": "ksg", "block_length": 31}, "from 1 to half the 60 rows, got 31"),
        ({"groups": range(60), "block_length": 2}, "exclude each other"),
        ({"block_length": 10}, "shorter than two blocks of block_length=10"),
    ],
)
def test_mistakes(settings, message):
    with pytest.raises(ValueError, match=message):
        estimate_mi(*normal(60), **settings)


@pytest.mark.parametrize("raw", [-1e4, 1e4])
def test_scales_of_doe_are_bounded(raw):
    """A normal density of log scale ±5 at its location: its surprise is ½ log 2π ± 5."""
    model = DoE(1, 1, 4, "gaussian")
    torch.nn.init.constant_(model.free, 0.0)
    torch.nn.init.constant_(model.network[-1].bias[1], raw)
    alone, given = model(torch.zeros(1, 1), torch.zeros(1, 1))
    assert alone.item() == pytest.approx(math.log(2 * math.pi) / 2)
    assert (given - alone).item() == pytest.approx(math.copysign(5, raw))


def test_scale_at_which_densities_of_doe_begin():
    """The logistic law nearest to a standard normal one, by numerical integration."""
    from scipy.integrate import quad
    from scipy.optimize import minimize_scalar
    from scipy.stats import logistic, norm

    def surprise(log_scale):
        law = logistic(scale=math.exp(log_scale))
        return quad(lambda z: -norm.pdf(z) * law.logpdf(z), -12, 12)[0]

    nearest = minimize_scalar(surprise, bounds=(-2, 1), method="bounded").x
    assert pytest.approx(nearest, abs=1e-4) == _UNIT["logistic"]
    assert _UNIT["gaussian"] == 0.0

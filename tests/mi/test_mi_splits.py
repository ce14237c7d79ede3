"""Cross-fitting: every row is read once, groups stay whole, stretches keep their distance."""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, reject
from hypothesis import strategies as st

from relatum.mi import cross_fit

fraction = st.floats(0.1, 0.6)


def try_cross_fit(*args, **kwargs):
    """Settings that leave too few rows are refused, which is tested below."""
    try:
        return cross_fit(*args, **kwargs)
    except ValueError:
        reject()


def check_each_row_is_read_once(splits, n):
    np.testing.assert_array_equal(np.sort(np.concatenate([s.test for s in splits])), np.arange(n))
    for split in splits:
        for one, other in combinations(split, 2):
            assert not set(one) & set(other)
        assert min(map(len, split)) >= 2


@given(st.integers(10, 90), st.integers(2, 8), fraction, st.integers(0, 10**6))
def test_rows_at_random(n, folds, valid, seed):
    splits = try_cross_fit(n, folds, valid_fraction=valid, seed=seed)
    assert len(splits) == folds
    check_each_row_is_read_once(splits, n)
    sizes = [len(split.test) for split in splits]
    assert max(sizes) - min(sizes) <= 1
    for split in splits:
        assert sum(map(len, split)) == n  # none is left out
        outside = n - len(split.test)
        assert abs(len(split.valid) - valid * outside) <= 0.5


@given(
    st.lists(st.integers(0, 12), min_size=12, max_size=120),
    st.integers(2, 5),
    fraction,
    st.integers(0, 10**6),
)
def test_groups_are_never_parted(groups, folds, valid, seed):
    splits = try_cross_fit(len(groups), folds, valid_fraction=valid, seed=seed, groups=groups)
    check_each_row_is_read_once(splits, len(groups))
    labels = np.array(groups)
    for split in splits:
        for one, other in combinations(split, 2):
            assert not set(labels[one]) & set(labels[other])
        assert sum(map(len, split)) == len(groups)
    for one, other in combinations(splits, 2):
        assert not set(labels[one.test]) & set(labels[other.test])


@given(st.integers(20, 200), st.integers(2, 5), fraction, st.integers(1, 12))
def test_stretches_keep_their_distance(n, folds, valid, gap):
    splits = try_cross_fit(n, folds, valid_fraction=valid, block_length=gap)
    check_each_row_is_read_once(splits, n)
    for split in splits:
        test = split.test
        np.testing.assert_array_equal(test, np.arange(test[0], test[-1] + 1))
        assert len(test) >= 2 * gap
        for one, other in combinations(split, 2):
            assert np.abs(one[:, None] - other).min() > gap


def test_a_row_is_left_out_only_for_being_near():
    for split in cross_fit(300, 5, block_length=10):
        used = np.concatenate(split)
        left_out = np.setdiff1d(np.arange(300), used)
        apart = np.concatenate([split.test, split.valid])
        assert (np.abs(left_out[:, None] - apart).min(1) <= 10).all()
        assert len(left_out) <= 4 * 10


def test_the_seed_is_all_that_is_random():
    first, again, other = (
        [np.concatenate(split) for split in cross_fit(60, 4, seed=seed)] for seed in (0, 0, 1)
    )
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)


def test_labels_of_any_kind():
    text = ["b", "a", "c", "d"] * 6
    number = [2.5, -1.0, 7.0, 0.0] * 6
    for one, other in zip(
        cross_fit(24, 2, groups=text), cross_fit(24, 2, groups=np.array(text)), strict=True
    ):
        np.testing.assert_array_equal(one.test, other.test)
    assert len(cross_fit(24, 2, groups=number)) == 2


@pytest.mark.parametrize(
    ("n", "settings", "message"),
    [
        (20, {"folds": 1}, "folds must be at least 2, got 1"),
        (20, {"folds": 0}, "folds must be at least 2, got 0"),
        (20, {"valid_fraction": 1.0}, "valid_fraction must be between 0 and 1, got 1.0"),
        (4, {"folds": 5}, "4 rows are too few for 5 folds"),
        (20, {"groups": [0, 1] * 10, "folds": 5}, "2 groups are too few for 5 folds"),
        (20, {"groups": [0, 1]}, r"one label for each of 20 rows, got \(2,\)"),
        (20, {"groups": [0] * 20, "block_length": 2}, "exclude each other"),
        (20, {"block_length": 0}, "block_length must be at least 1, got 0"),
        (40, {"block_length": 5}, "stretches of 8, shorter than two blocks of block_length=5"),
        (40, {"block_length": 10, "folds": 2}, "fewer than 2 rows for train"),
        (7, {"folds": 5}, "fewer than 2 rows for .*valid"),
        (24, {"groups": [0, 1, 2] * 8, "folds": 2}, "give more rows or groups, another number"),
    ],
)
def test_errors(n, settings, message):
    with pytest.raises(ValueError, match=message):
        cross_fit(n, **settings)

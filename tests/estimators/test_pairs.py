"""Pairs are what the rules say, each with the stated probability."""

import numpy as np
import pytest
import torch

from relatum.estimators.fitting import split_rows
from relatum.estimators.pairs import AugmentedPairs, ClassPairs, NoisyPairs, TimePairs, class_codes


def rows(n):
    """Row i holds i, so that what was drawn can be read."""
    return torch.arange(n, dtype=torch.float32)[:, None]


def draws(pairs, times=4000):
    generator = torch.Generator().manual_seed(0)
    anchors = pairs.anchors.repeat(times)
    x, y, ids = pairs.draw(anchors, generator)
    np.testing.assert_array_equal(x.squeeze(1), anchors)
    return anchors.numpy(), y.squeeze(1).numpy().astype(int), ids


def test_neighbours_in_time_stay_in_their_recording():
    recordings = torch.tensor([5, 5, 5, 5, 2, 7, 7])
    pairs = TimePairs(rows(7), rows(7), 2, recordings)
    assert pairs.anchors.tolist() == [0, 1, 2, 5]
    anchors, partners, ids = draws(pairs)
    assert ids is None
    truth = {0: {1: 0.5, 2: 0.5}, 1: {2: 0.5, 3: 0.5}, 2: {3: 1.0}, 5: {6: 1.0}}
    for anchor, chances in truth.items():
        found = partners[anchors == anchor]
        assert set(found) == set(chances)
        for partner, chance in chances.items():
            assert (found == partner).mean() == pytest.approx(chance, abs=0.03)
    assert TimePairs(rows(7), rows(7), 3).anchors.tolist() == [0, 1, 2, 3, 4, 5]


def test_classes_give_each_other_member_the_same_chance():
    codes = torch.tensor([1, 0, 1, -1, 2, 1, 0, 1, -1])
    pairs = ClassPairs(rows(9), codes)
    assert pairs.anchors.tolist() == [0, 1, 2, 5, 6, 7]  # neither unlabelled nor alone
    anchors, partners, ids = draws(pairs)
    np.testing.assert_array_equal(ids, codes[anchors])
    for anchor in pairs.anchors.tolist():
        others = {i for i in range(9) if codes[i] == codes[anchor] and i != anchor}
        found = partners[anchors == anchor]
        assert set(found) == others
        for other in others:
            assert (found == other).mean() == pytest.approx(1 / len(others), abs=0.03)


@pytest.mark.parametrize("kind", [np.int8, np.uint8, np.int64, str, object])
def test_labels_of_any_type_are_classes(kind):
    labels = np.array([3, 1, 3, 2]).astype(kind)
    assert class_codes("y", labels, 4).tolist() == [2, 0, 2, 1]


def test_labels_that_are_none():
    assert class_codes("y", np.array([-1, 0, 4, -1]), 4).tolist() == [-1, 0, 1, -1]
    assert class_codes("y", [True, False], 2).tolist() == [1, 0]
    with pytest.raises(ValueError, match="y is missing .NaN. at row 1"):
        class_codes("y", [0.0, np.nan], 2)
    with pytest.raises(ValueError, match="one label for each of the 3 rows, got shape .2,."):
        class_codes("groups", [1, 2], 3)


def test_noise_has_its_deviation_and_differs_between_copies():
    x = torch.zeros(2000, 3)
    pair = NoisyPairs(x, 0.5).draw(torch.arange(2000), torch.Generator().manual_seed(0))
    for side in (pair.x, pair.y):
        assert float(side.std()) == pytest.approx(0.5, rel=0.03)
    assert abs(float((pair.x * pair.y).mean())) < 0.02


def test_augmentations_make_two_views_of_the_same_shape():
    pairs = AugmentedPairs(rows(4), lambda x, g: x + torch.rand(x.shape, generator=g))
    pair = pairs.draw(torch.tensor([1, 3]), torch.Generator().manual_seed(0))
    assert not torch.equal(pair.x, pair.y)
    np.testing.assert_array_equal(pair.x.floor(), [[1], [3]])
    with pytest.raises(ValueError, match=r"of \(4, 1\) it made \(3, 1\)"):
        AugmentedPairs(rows(4), lambda x, g: x[1:]).draw(torch.arange(4), torch.Generator())


def test_groups_are_never_divided():
    groups = np.repeat(np.arange(20), 7)
    for seed in range(5):
        train, valid = split_rows(140, 0.2, groups, seed, ordered=False)
        assert len(valid) == 28 and len(train) == 112
        assert not set(groups[train]) & set(groups[valid])
    train, valid = split_rows(100, 0.1, None, 0, ordered=True)
    assert valid.tolist() == list(range(90, 100))
    train, valid = split_rows(100, 0.1, None, 0, ordered=False)
    assert sorted([*train, *valid]) == list(range(100)) and len(valid) == 10
    assert len(split_rows(9, 0, None, 0, ordered=False)[1]) == 0

"""ABX beside triple loops and a recursion over all paths."""

import itertools
import math

import numpy as np
import pytest

from relatum.probes.abx import abx, warped_distances


def angle(x, y):
    cosine = x @ y / math.sqrt((x @ x) * (y @ y))
    return math.acos(max(-1.0, min(1.0, cosine))) / math.pi


def paths(i, j):
    """All paths from (0, 0) to (i, j)."""
    if i == j == 0:
        yield [(0, 0)]
    for di, dj in ((1, 1), (1, 0), (0, 1)):
        if i >= di and j >= dj and (i, j) != (0, 0):
            for path in paths(i - di, j - dj):
                yield [*path, (i, j)]


def test_distance_is_that_of_the_best_of_all_paths():
    generator = np.random.default_rng(0)
    a = [generator.normal(size=(t, 3)) for t in (1, 2, 4, 3, 5)]
    b = [generator.normal(size=(t, 3)) for t in (3, 1, 4, 5, 2)]
    for x, y, found in zip(a, b, warped_distances(a, b), strict=True):
        every = paths(len(x) - 1, len(y) - 1)
        sums = [([angle(x[i], y[j]) for i, j in path]) for path in every]
        best = min(sums, key=sum)
        assert math.isclose(found, sum(best) / len(best), abs_tol=1e-9)


def test_error_is_that_of_triple_loops():
    generator = np.random.default_rng(1)
    names, groups = "aababbccab", "ssssssssuu"
    items = [generator.normal(size=(generator.integers(1, 4), 3)) for _ in names]

    def distance(i, j):
        return float(warped_distances([items[i]], [items[j]])[0])

    errors = []
    for group in "su":
        for a, b in itertools.permutations("abc", 2):
            mine = [i for i in range(10) if (names[i], groups[i]) == (a, group)]
            others = [i for i in range(10) if (names[i], groups[i]) == (b, group)]
            triples = [(x, y, z) for x in mine for y in mine for z in others if x != y]
            if triples:
                wins = [
                    (distance(x, y) > distance(x, z)) + 0.5 * (distance(x, y) == distance(x, z))
                    for x, y, z in triples
                ]
                errors.append(sum(wins) / len(wins))
    found = abx(items, names, groups)
    assert math.isclose(found.error, sum(errors) / len(errors), abs_tol=1e-12)
    assert (found.comparisons, found.groups, found.items) == (len(errors), 1, 8)


def test_nothing_but_noise_is_chance():
    generator = np.random.default_rng(2)
    items = [generator.normal(size=(2, 5)) for _ in range(200)]
    assert abs(abx(items, ["a", "b"] * 100, ["s"] * 200, most=100).error - 0.5) < 0.03


def test_equal_items_tie():
    assert abx([np.ones((2, 2))] * 6, "aaabbb", "ssssss").error == 0.5


def test_what_cannot_be_compared():
    one = np.ones((1, 2))
    with pytest.raises(ValueError, match="no group has two categories"):
        abx([one, one], "ab", "ss")
    with pytest.raises(ValueError, match="item 1 is empty"):
        abx([one, one[:0]], "ab", "ss")
    with pytest.raises(ValueError, match="must be as many"):
        abx([one], "ab", "s")

"""The bracket of the best linear classifiers against laws whose infimum is known."""

import math

import numpy as np
import pytest
from scipy.optimize import linprog

from relatum import certify
from relatum.latent_class.bracket import supervised_bracket
from relatum.latent_class.leave_one_out import leave_one_out_risk
from relatum.latent_class.sample import labelled_sample

from .finite_world import LOSSES


def coin_world(generator, n):
    """Class 0 is at +1 with probability 0.9 and else at −1, class 1 the other way round."""
    labels = np.arange(n) % 2
    right = generator.random(n) < 0.9
    return labelled_sample(np.where(right == (labels == 0), 1.0, -1.0)[:, None], labels)


def coin_infimum(loss):
    return min(0.9 * LOSSES[loss](-w) + 0.1 * LOSSES[loss](w) for w in np.linspace(0, 4, 4001))


@pytest.mark.parametrize("loss", LOSSES)
def test_bracket_holds_on_average(loss):
    generator = np.random.default_rng(0)
    brackets = [supervised_bracket(coin_world(generator, 100), loss) for _ in range(16)]
    low, high = ([bracket[side].value for bracket in brackets] for side in (0, 1))
    errors = [np.std(side) / math.sqrt(len(side)) for side in (low, high)]
    assert np.mean(low) - 3 * errors[0] <= coin_infimum(loss) <= np.mean(high) + 3 * errors[1]
    # And it is not empty talk.
    assert np.mean(high) - np.mean(low) < 0.2
    assert 0.6 < np.mean([b.high.standard_error for b in brackets]) / np.std(high) < 1.6


@pytest.mark.parametrize("loss", LOSSES)
def test_bracket_closes_with_rows(loss):
    low, high, tasks = supervised_bracket(
        coin_world(np.random.default_rng(1), 2000), loss, rows=300
    )
    assert tasks == 1
    assert low.value == pytest.approx(coin_infimum(loss), abs=0.06)
    assert high.value == pytest.approx(coin_infimum(loss), abs=0.06)


def test_noise_in_many_dimensions_is_seen_through():
    """Nothing to learn: the infimum is 1. The minimum on the sample is 0 and says so."""
    generator = np.random.default_rng(2)
    sample = labelled_sample(generator.standard_normal((60, 40)), np.arange(60) % 3)
    low, high, tasks = supervised_bracket(sample)
    assert low.value == pytest.approx(0, abs=1e-9)
    assert "the lower reading is 0 for want of rows" in low.notes[-1]
    assert high.value > 0.95
    assert tasks == 3


def test_class_pairs_are_drawn_where_there_are_many():
    generator = np.random.default_rng(3)
    labels = np.arange(120) % 6
    sample = labelled_sample(np.eye(6)[labels] + 0.2 * generator.standard_normal((120, 6)), labels)
    low, high, tasks = supervised_bracket(sample, "logistic", tasks=8)
    assert tasks == 8
    assert low.value <= high.value <= min(1, leave_one_out_risk(sample, "logistic").value)


class Unsolved:
    status, message, x = 4, "gave up", None


def test_a_solver_that_gives_up_is_asked_again_then_the_lower_reading_is_missing(monkeypatch):
    """First with tight tolerances alone, as HiGHS does on some nearly collinear rows; then ever."""
    sample = coin_world(np.random.default_rng(4), 60)
    right = supervised_bracket(sample)

    def stubborn(*given, options, **more):
        return Unsolved() if options else linprog(*given, options=options, **more)

    monkeypatch.setattr("relatum.latent_class.supervised.linprog", stubborn)
    assert supervised_bracket(sample).low.value == pytest.approx(right.low.value, abs=1e-9)
    monkeypatch.setattr("relatum.latent_class.supervised.linprog", lambda *_, **__: Unsolved())
    low, high, _ = supervised_bracket(sample)
    assert math.isnan(low.value)
    assert "the lower reading is missing" in low.notes[-1]
    assert high.value == right.high.value
    rows = np.random.default_rng(5).normal(size=(40, 2))
    certificate = certify(rows, np.arange(40) % 2, radius=9.0)
    names = {line.key for line in certificate.lines}
    assert "supervised_high" in names
    assert "supervised_low" not in names
    assert any("lower reading of the best linear" in text for text in certificate.warnings)
    assert "left out: its solver gave up" in " ".join(str(certificate).split())


def test_what_cannot_be_asked():
    sample = labelled_sample(np.zeros((10, 1)), np.arange(10) % 2)
    with pytest.raises(ValueError, match="needs 6 rows of every class"):
        supervised_bracket(sample)
    with pytest.raises(ValueError, match="rows must be at least 3 and tasks at least 1"):
        supervised_bracket(sample, tasks=0)

"""What a labelled sample may be, and what is left out of it with a word."""

import numpy as np
import pandas
import pytest
import torch

from relatum.latent_class.estimated_spreads import estimated_spread, estimated_trace
from relatum.latent_class.estimates import pair_risks
from relatum.latent_class.leave_one_out import leave_one_out_top_error
from relatum.latent_class.pair_tables import pair_table
from relatum.latent_class.sample import labelled_sample

LABELS = [0, 1, 1, 0, 1, 0, 0, 1]
FEATURES = np.random.default_rng(0).standard_normal((8, 2))


@pytest.mark.parametrize(
    "labels",
    [
        np.array(LABELS, np.uint8),
        np.array(LABELS, np.int16),
        np.array(LABELS, bool),
        np.array(LABELS, float),
        np.array(LABELS, np.float32),
        torch.tensor(LABELS, dtype=torch.uint8),
        torch.tensor(LABELS),
        LABELS,
        tuple(map(float, LABELS)),
        pandas.Categorical(LABELS),
        pandas.Series(LABELS, dtype="category"),
        pandas.Series(["ab"[x] for x in LABELS]),
        ["ab"[x] for x in LABELS],
        np.array(["ab"[x] for x in LABELS], object),
    ],
    ids=lambda labels: f"{type(labels).__name__}-{getattr(labels, 'dtype', '')}",
)
def test_labels_of_any_type_are_the_same_classes(labels):
    expected = pair_risks(pair_table(labelled_sample(FEATURES, np.array(LABELS, np.int64))))
    sample = labelled_sample(FEATURES, labels)
    assert sample.codes.tolist() == LABELS
    assert pair_risks(pair_table(sample)) == expected


@pytest.mark.parametrize(
    ("labels", "error", "words"),
    [
        ([0, 1, 1, 0, 1, 0, 0, 0.5], ValueError, "row 7 is 0.5"),
        ([0, 1, 1, 0, 1, 0, 0, float("nan")], ValueError, "row 7 is nan"),
        (["a", 1, 1, 0, 1, 0, 0, 0], TypeError, "row 0 is 'a' and row 1 is 1"),
        ([1j] * 8, TypeError, "got the type complex128"),
        ([0] * 8, ValueError, "at least two classes with 3 rows or more, got 1"),
        ([0, 1], ValueError, r"labels must have shape \(8,\), got \(2,\)"),
    ],
)
def test_labels_that_are_none(labels, error, words):
    with pytest.raises(error, match=words):
        labelled_sample(FEATURES, np.array(labels, object) if "a" in labels else labels)


def test_features_that_are_none():
    with pytest.raises(TypeError, match="features must be floating point"):
        labelled_sample(np.zeros((8, 2), int), LABELS)
    with pytest.raises(ValueError, match=r"features must be a matrix \(n, d\)"):
        labelled_sample(np.zeros(8), LABELS)
    broken = FEATURES.copy()
    broken[3, 1] = np.inf
    with pytest.raises(ValueError, match="features must be finite, row 3 is not"):
        labelled_sample(broken, LABELS)


def test_embeddings_of_any_precision_and_stride():
    single = labelled_sample(
        torch.tensor(FEATURES, dtype=torch.float32, requires_grad=True), LABELS
    )
    assert single.features.dtype == np.float64
    assert np.allclose(single.features, FEATURES, atol=1e-6)
    turned = labelled_sample(FEATURES[::-1], LABELS[::-1])
    assert np.array_equal(turned.features, FEATURES[::-1])


def test_small_classes_go_with_a_word_and_the_prior_is_renormalised():
    labels = ["a", "b", "b", "a", "b", "a", "c", "c"]
    sample = labelled_sample(FEATURES, labels, class_prior={"a": 0.3, "b": 0.3, "c": 0.4})
    assert sample.classes == ("a", "b")
    assert np.allclose(sample.prior, [0.5, 0.5])
    assert sample.notes == ("left out 1 class with fewer than 3 rows (2 rows): 'c'",)
    assert sample.notes[0] in pair_risks(pair_table(sample)).collision.notes
    assert labelled_sample(FEATURES, labels, least=2).classes == ("a", "b", "c")


def test_unlabelled_rows_are_left_out():
    labels = [0, 1, 1, 0, 1, 0, -1, -1]
    sample = labelled_sample(FEATURES, labels)
    assert sample.notes == ("left out 2 rows labelled -1 (unlabelled)",)
    assert np.array_equal(sample.features, FEATURES[:6])


def test_priors():
    sample = labelled_sample(FEATURES, LABELS, class_prior={0: 0.2, 1: 0.3, 2: 0.5})
    assert np.allclose(sample.prior, [0.4, 0.6])
    assert sample.notes == ("no rows of 1 class of the prior, left out: 2",)
    for prior, words in [
        ([0.5, 0.6], "class_prior must sum to 1, got 1.1"),
        ([1.0], "one number for each of the 2 classes"),
        ({0: 1.0}, "must name every class, it lacks 1"),
        ([0.0, 1.0], "must be positive"),
    ]:
        with pytest.raises(ValueError, match=words):
            labelled_sample(FEATURES, LABELS, class_prior=prior)


def test_rho_is_not_nu():
    """The example of the law of a class in a collision: proportional to the square of ρ."""
    sample = labelled_sample(np.zeros((9, 1)), np.arange(9) % 3, class_prior=[0.5, 0.3, 0.2])
    assert sample.tau == pytest.approx(0.38)
    assert np.diag(sample.weights) / sample.tau == pytest.approx([0.658, 0.237, 0.105], abs=5e-4)


def test_collapsed_classes_have_no_spread_and_no_nan():
    points = np.array([[0.0], [1.0], [1.0]])
    sample = labelled_sample(points.repeat(2, axis=0), [0, 0, 1, 1, 1, 1], least=2)
    spread = estimated_spread(sample, groups=2)
    assert spread.value == 0
    centred = labelled_sample(sample.features - 0.5, sample.codes, least=2)
    assert leave_one_out_top_error(centred).value == 0


def test_singular_covariances():
    """Classes on a line, in a disc, and with fewer rows than features."""
    generator = np.random.default_rng(1)
    line = np.stack([np.linspace(-1, 1, 300), np.zeros(300)], axis=1)
    disc = generator.standard_normal((300, 2)) + np.array([0, 4])
    flat = labelled_sample(np.concatenate([line, disc]), np.repeat([0, 1], 300))
    wide = labelled_sample(generator.standard_normal((20, 64)), np.repeat([0, 1], 10))
    for sample in (flat, wide):
        assert np.isfinite([estimated_spread(sample).value, estimated_trace(sample).value]).all()
        assert np.isfinite(estimated_spread(sample).standard_error)

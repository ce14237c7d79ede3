"""The sums of triplet losses against loops over triplets, in float64."""

import numpy as np
import pytest
import torch

from relatum.latent_class import pair_tables as tables
from relatum.latent_class.checks import surrogate
from relatum.latent_class.fast import AnchorBlock, Chebyshev, direct_sums, hinge_sums
from relatum.latent_class.pair_tables import pair_table
from relatum.latent_class.sample import labelled_sample
from relatum.surrogates import SURROGATES

LOSSES = {
    "hinge": lambda t: max(0.0, 1.0 + t),
    "logistic": lambda t: float(np.logaddexp(0, t) / np.log(2)),
}


def looped(features, labels, loss):
    """Anchor, positive and negative sums and the counts of terms, triplet by triplet."""
    n, classes = len(features), max(labels) + 1
    scores = features @ features.T
    anchor, positive, negative = (np.zeros((n, classes)) for _ in range(3))
    terms = np.zeros((classes, classes), int)
    for i in range(n):
        for j in range(n):
            for k in range(n):
                if labels[i] == labels[j] and len({i, j, k}) == 3:
                    value = LOSSES[loss](scores[i, k] - scores[i, j])
                    anchor[i, labels[k]] += value
                    positive[j, labels[k]] += value
                    negative[k, labels[i]] += value
                    terms[labels[i], labels[k]] += 1
    return anchor, positive, negative, terms


def close(found, expected, tolerance=1e-12):
    return np.allclose(found, expected, rtol=tolerance, atol=tolerance * np.abs(expected).max())


def embeddings(seed, sizes, dim, scale):
    generator = np.random.default_rng(seed)
    labels = generator.permutation(np.repeat(np.arange(len(sizes)), sizes))
    return scale * generator.standard_normal((len(labels), dim)), labels


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("scale", [0.05, 0.5, 1.5, 8.0])  # the last without any expansion
@pytest.mark.parametrize("sizes", [(3, 3), (4, 9, 7), (11, 3, 5, 4)])
def test_all_sums_are_those_of_the_loop(loss, scale, sizes):
    features, labels = embeddings(len(sizes), sizes, 3, scale)
    table = pair_table(labelled_sample(features, labels), loss)
    anchor, positive, negative, terms = looped(features, labels, loss)
    assert close(table.anchor, anchor)
    assert close(table.positive, positive)
    assert close(table.negative, negative)
    assert (table.terms == terms).all()
    sums = np.stack([anchor[labels == c].sum(0) for c in range(len(sizes))])
    assert close(table.values, sums / terms)


@pytest.mark.parametrize("loss", LOSSES)
def test_equal_scores_and_zero_encoder(loss):
    """Ties everywhere: every loss is ℓ(0) = 1."""
    labels = np.repeat([0, 1], 4)
    table = pair_table(labelled_sample(np.zeros((8, 2)), labels), loss)
    assert np.allclose(table.values, 1, atol=1e-14)
    integers = np.random.default_rng(0).integers(-1, 2, (12, 2)).astype(float)
    labels = np.arange(12) % 3
    table = pair_table(labelled_sample(integers, labels), loss)
    assert close(table.negative, looped(integers, labels, loss)[2])


@pytest.mark.parametrize("loss", LOSSES)
def test_blocks_do_not_matter(loss, monkeypatch):
    features, labels = embeddings(5, (20, 33), 2, 0.5)
    sample = labelled_sample(features, labels)
    whole = pair_table(sample, loss)
    monkeypatch.setattr(tables, "_HELD", 1)
    monkeypatch.setattr(tables, "_SCORES", 200)
    single = pair_table(sample, loss)
    for name in ("anchor", "positive", "negative"):
        assert close(getattr(single, name), getattr(whole, name))


@pytest.mark.parametrize("square", [0.01, 0.5, 1.0, 4.0, 10.0])
def test_expansion_reaches_double_precision(square):
    """Against all pairs of positive and negative, on the sphere of that squared radius."""
    points = torch.randn(120, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    points *= square**0.5 / points.norm(dim=1, keepdim=True)
    own = torch.tensor([0, 7, 49])
    block = AnchorBlock(points[own] @ points.T, own, 0, np.array([0, 50, 80, 120]))
    loss = SURROGATES["logistic"]
    for found, expected in zip(
        Chebyshev.of(loss, square)(block), direct_sums(loss, block), strict=True
    ):
        assert close(found.numpy(), expected.numpy(), 1e-13)


def test_expansion_has_the_stated_sizes():
    assert Chebyshev.order(1.0) == 32
    assert abs(Chebyshev.order(10.0) - 230) < 5


def test_a_shorter_expansion_is_seen_to_be_wrong():
    """Its error is of the geometric rate: a quarter of the terms leaves about 1e-4."""
    loss = SURROGATES["logistic"]
    whole = Chebyshev.of(loss, 1.0)
    short = Chebyshev(1.0, whole.coefficients[:8, :8])
    points = torch.linspace(-1, 1, 40, dtype=torch.float64)[:, None]
    block = AnchorBlock(points[39:] @ points.T, torch.tensor([39]), 1, np.array([0, 20, 40]))
    error = (short(block).negative - direct_sums(loss, block).negative).abs().max()
    assert 1e-7 < float(error) < 1e-1


def test_hinge_of_a_large_class_against_all_pairs():
    """Sizes at which loops in Python would take minutes; scores with many ties."""
    generator = torch.Generator().manual_seed(3)
    points = torch.randint(-2, 3, (700, 3), generator=generator).double() / 2
    own = torch.tensor([300, 512])
    block = AnchorBlock(points[own] @ points.T, own, 1, np.array([0, 250, 600, 700]))
    for found, expected in zip(
        hinge_sums(block), direct_sums(SURROGATES["hinge"], block), strict=True
    ):
        assert close(found.numpy(), expected.numpy())


def test_rows_keep_their_order():
    features, labels = embeddings(9, (6, 8), 2, 1.0)
    shuffle = np.random.default_rng(1).permutation(14)
    table = pair_table(labelled_sample(features, labels))
    shuffled = pair_table(labelled_sample(features[shuffle], labels[shuffle]))
    assert close(shuffled.positive, table.positive[shuffle])


def test_loss_must_be_known():
    with pytest.raises(ValueError, match="loss must be one of hinge, logistic, got 'exp'"):
        surrogate("exp")

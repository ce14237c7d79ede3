"""The spectral loss: a factorisation, its minimum and its minimiser."""

import numpy as np
import pytest

from relatum.latent_class import FiniteModel, class_spreads, spectral_minimum, spectral_risk

from .finite_world import random_models

MODELS = random_models(60, seed=8, classes=4, points=6)


def test_spectral_risk_is_a_factorisation():
    for model in MODELS:
        q = model.negative_law
        keep = q > 0
        normal = model.similar_law[np.ix_(keep, keep)] / np.sqrt(np.outer(q[keep], q[keep]))
        rows = np.sqrt(q[keep])[:, None] * model.features[keep]
        expected = ((normal - rows @ rows.T) ** 2).sum() - (normal**2).sum()
        assert spectral_risk(model) == pytest.approx(expected, rel=1e-10, abs=1e-10)
        values, vectors = np.linalg.eigh(normal)
        assert values[-1] == pytest.approx(1, abs=1e-12) and values[0] > -1e-12
        for width in (1, 2, len(values)):
            least = spectral_minimum(model, width)
            assert least == pytest.approx(-(values[-width:] ** 2).sum(), abs=1e-12)
            assert least <= spectral_risk(model) + 1e-10 or width < model.features.shape[1]
            # The minimiser itself, from the eigenvectors.
            best = np.zeros((len(q), width))
            top = vectors[:, -width:] * np.sqrt(np.maximum(values[-width:], 0))
            best[keep] = top / np.sqrt(q[keep])[:, None]
            found = FiniteModel(model.prior, model.laws, best)
            assert spectral_risk(found) == pytest.approx(least, abs=1e-10)


def test_spectral_minimum_of_disjoint_classes():
    prior = np.array([0.5, 0.3, 0.2])
    laws = np.array([[0.4, 0.6, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1.0]])
    rows = np.diag(1 / np.sqrt(prior))[[0, 0, 1, 2]]
    model = FiniteModel(prior, laws, rows)
    assert spectral_risk(model) == pytest.approx(-3, abs=1e-12)
    assert spectral_minimum(model, 3) == pytest.approx(-3, abs=1e-12)
    np.testing.assert_allclose(class_spreads(model), 0, atol=1e-12)

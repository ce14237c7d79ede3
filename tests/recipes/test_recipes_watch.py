"""--certify-every: what the representation is worth for classes, on images that are held back."""

import io

import numpy as np
import pytest
import torch
from rich.console import Console

from relatum.probes import extract_features
from relatum.recipes.images import (
    CertificateWatch,
    TrainImages,
    build_networks,
    held_back,
    load_images,
    resolve,
)
from relatum.recipes.images.build import trained_encoder
from relatum.recipes.train_images import main
from relatum.report import render
from relatum.settings import SettingsError
from relatum.training import load_checkpoint

TINY = {
    "data": "digits", "image_size": 8, "limit": 200, "batch_size": 24, "projection_dim": 8,
    "projection_layers": 2, "steps": 7, "log_every": 3, "checkpoint_every": 2,
    "tensorboard": False, "device": "cpu", "certify_every": 2, "certify_images": 60,
}  # fmt: skip
KEYS = ("contrastive_risk", "noncollision_risk", "collision_excess", "mean_classifier_risk")


def run(out, **changes):
    return main(TrainImages(**{**TINY, "out": out, **changes}), Console(file=io.StringIO()))


def looped(f, labels):
    """The four risks by loops over all triplets and all left-out means."""
    n = len(f)
    counts = np.bincount(labels)
    sums = np.zeros((10, 10))
    terms = np.zeros((10, 10))
    g = f @ f.T
    for i in range(n):
        for j in np.flatnonzero((labels == labels[i]) & (np.arange(n) != i)):
            for m in range(n):
                if m not in (i, j):
                    sums[labels[i], labels[m]] += max(0.0, 1 + g[i, m] - g[i, j])
                    terms[labels[i], labels[m]] += 1
    risks = sums / terms
    law = (np.outer(counts, counts) - np.diag(counts)) / (n * (n - 1))
    across = law - np.diag(np.diag(law))
    mean = 0.0
    for c in range(10):
        for e in set(range(10)) - {c}:
            margins = []
            for i in np.flatnonzero(labels == c):
                own = f[(labels == c) & (np.arange(n) != i)].mean(0)
                margins.append(f[i] @ (f[labels == e].mean(0) - own))
            mean += across[c, e] * np.maximum(0, 1 + np.array(margins)).mean()
    different = (across * risks).sum() / across.sum()
    same = (np.diag(law) * np.diag(risks)).sum() / np.trace(law)
    return (law * risks).sum(), different, same - 1, mean / across.sum()


def test_the_readings_are_those_of_the_encoder_at_that_step(tmp_path):
    made = run(tmp_path / "run")
    lines = {line["step"]: line for line in made.metrics()}
    assert [step for step in lines if KEYS[0] in lines[step]] == [2, 4, 6, 7]
    assert 3 in lines
    assert KEYS[0] not in lines[3]
    settings = TrainImages(**TINY)
    rest, held = held_back(load_images(settings).train, settings)
    assert len(held) == 60
    assert not set(held.ids) & set(rest.ids)
    assert len(rest) + len(held) == 200
    features = extract_features(trained_encoder(made), held.pixels).astype(np.float64)
    f = features / np.linalg.norm(features, axis=1, keepdims=True) / np.sqrt(0.5)
    labels = held.labels.numpy()
    expected = looped(f, labels)
    np.testing.assert_allclose([lines[7][key] for key in KEYS], expected, rtol=1e-5, atol=1e-6)


def test_watching_changes_nothing_that_is_trained(tmp_path):
    often, seldom = run(tmp_path / "often"), run(tmp_path / "seldom", certify_every=100)
    first, second = (load_checkpoint(r.checkpoint)["modules"]["encoder"] for r in (often, seldom))
    assert all(torch.equal(first[name], second[name]) for name in first)
    assert [line["loss"] for line in seldom.metrics()] == [
        line["loss"] for line in often.metrics() if line["step"] in (3, 6, 7)
    ]


def test_an_encoder_that_is_not_finite_has_no_reading():
    settings = TrainImages(**TINY)
    rest, held = held_back(load_images(settings).train, settings)
    encoder = build_networks(resolve(settings, len(rest))).encoder
    watch = CertificateWatch(encoder, held, 2, 7)
    assert None not in watch(2).values()
    with torch.no_grad():
        next(encoder.parameters()).fill_(float("nan"))
    assert watch(2) == dict.fromkeys(KEYS)
    assert watch(3) == {}


def test_the_report_draws_them(tmp_path):
    page = render([run(tmp_path / "run").path], tmp_path / "page.html").read_text()
    assert "Risk of the mean classifier" in page


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"certify_images": 500}, "certify_images 500: there are 200 labelled"),
        ({"certify_images": 3}, "certify_images 3 hold 0 classes with 3 images or more"),
        ({"certify_images": 190}, "10 training images do not fill one step"),
        ({"certify_every": -1}, "certify_every must be at least 0"),
    ],
)
def test_mistakes_are_named(tmp_path, changes, message):
    with pytest.raises(ValueError, match=message) as caught:
        run(tmp_path / "run", **changes)
    if "labelled" in message:
        assert isinstance(caught.value, SettingsError)

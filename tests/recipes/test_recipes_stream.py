"""Training on streamed images: the same run for any number of workers, and after a kill."""

import io
from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image
from rich.console import Console

from relatum.data import Encoded, ImageTable
from relatum.probes import extract_features, knn_probe
from relatum.recipes.embed import Embed
from relatum.recipes.embed import main as embed
from relatum.recipes.finetuning import FineTunePlan, fine_tune
from relatum.recipes.images import TrainImages, load_images, trained_encoder
from relatum.recipes.probe import Probe
from relatum.recipes.probe import main as probe
from relatum.recipes.train_images import main
from relatum.runs import Run
from relatum.settings import SettingsError
from relatum.training import load_checkpoint


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    root = tmp_path_factory.mktemp("images")
    noise = np.random.default_rng(0)
    for part, count in (("train", 12), ("test", 4)):
        for i in range(count):
            place = root / part / f"class{i % 2}"
            place.mkdir(parents=True, exist_ok=True)
            pixels = noise.integers(0, 256, (24, 20 + i, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(place / f"{i}.png")
    return root


def settings(folder, out, **changes):
    given = {
        "data": str(folder), "image_size": 16, "batch_size": 6, "steps": 4, "stream": True,
        "projection_layers": 2, "projection_dim": 8, "device": "cpu", "tensorboard": False,
        "augmentation": "simclr", "threads": 1, "out": out,
    }  # fmt: skip
    return TrainImages(**{**given, **changes})


def train(given):
    return main(given, Console(file=io.StringIO()))


def weights(run):
    modules = load_checkpoint(run.checkpoint)["modules"]
    return {f"{m}.{k}": v for m, state in modules.items() for k, v in state.items()}


def same(a, b):
    a, b = weights(a), weights(b)
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


@pytest.mark.parametrize("objective", ["rpc", "wpc"])
def test_workers_change_nothing(folder, tmp_path, objective):
    given = settings(folder, tmp_path / "0", objective=objective)
    alone = train(given)
    assert same(alone, train(replace(given, workers=1, out=tmp_path / "1")))
    assert not same(alone, train(replace(given, seed=1, out=tmp_path / "other")))


def test_a_run_cut_short_continues_bit_for_bit(folder, tmp_path, monkeypatch):
    whole = train(settings(folder, tmp_path / "whole", checkpoint_every=1))
    cut = settings(folder, tmp_path / "cut", checkpoint_every=1)
    from relatum.recipes.images.step import ContrastiveStep

    calls, made = [], ContrastiveStep.__call__

    def killed(self, rows, seed):
        calls.append(seed)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return made(self, rows, seed)

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(ContrastiveStep, "__call__", killed)
        train(cut)
    assert load_checkpoint(Run.open(tmp_path / "cut").checkpoint)["step"] == 2
    assert same(whole, train(replace(cut, resume=True)))


@pytest.fixture(scope="module")
def streamed(folder, tmp_path_factory):
    """A run on streamed images."""
    return train(settings(folder, tmp_path_factory.mktemp("run") / "run", steps=1))


def held_table(folder, run):
    """What the images of the run are in memory."""
    return load_images(replace(settings(folder, run.path), stream=False))


@pytest.mark.parametrize("workers", [0, 1])
def test_embed_decodes_as_it_encodes(folder, streamed, tmp_path, monkeypatch, workers):
    held = held_table(folder, streamed)
    encoder = trained_encoder(streamed)
    asked = []
    monkeypatch.setattr(ImageTable, "held", lambda self, *a: asked.append(self))
    options = {"out": tmp_path / "all", "workers": workers, "batch_size": 5}
    embed(Embed(streamed.path, **options), Console(file=io.StringIO()))
    found = np.load(tmp_path / "all.npz")
    pixels = torch.cat([held.train.pixels, held.test.pixels])
    assert not asked
    np.testing.assert_allclose(
        found["features"], extract_features(encoder, pixels), rtol=0, atol=1e-5
    )
    assert found["ids"].tolist() == [*held.train.ids, *held.test.ids]


def test_probe_of_a_streamed_run(folder, streamed, monkeypatch):
    """The result is that of the pixels in memory; the pixels as features are left out."""
    held, whole = held_table(folder, streamed), ImageTable.held
    sizes = []
    monkeypatch.setattr(
        ImageTable, "held", lambda self, *a: sizes.append(len(self)) or whole(self, *a)
    )
    asked = Probe([streamed.path], labels_per_class=0, neighbours=3, map="pca")
    (payload,) = probe(asked, Console(file=io.StringIO()))
    rows = {(row["features"], row["probe"]): row for row in payload["rows"]}
    assert {features for features, _ in rows} == {"encoder", "untrained"}
    assert set(sizes) <= {1}  # pictures of neighbours
    encoder = trained_encoder(streamed)
    train, test = (extract_features(encoder, table.pixels) for table in held[:2])
    y, truth = ([table.classes[i] for i in table.labels] for table in held[:2])
    expected = knn_probe(train, y, test, truth, k=3).accuracy
    assert rows["encoder", "knn"]["accuracy"] == expected


def test_fine_tuning_on_streamed_images(folder, streamed):
    """Tuned as from memory where views are the stored images; workers change nothing."""
    given, encoder = settings(folder, streamed.path, data="digits"), trained_encoder(streamed)
    images, held = (load_images(replace(given, stream=each, limit=300)) for each in (True, False))
    assert isinstance(images.train.pixels, Encoded)
    plan = FineTunePlan(tune="all", epochs=2, batch_size=64, augmentation="none")
    found, expected = (
        fine_tune(encoder, None, *each[:2], plan, workers=workers)
        for each, workers in ((images, 1), (held, 0))
    )
    assert found.probe == expected.probe
    assert found.curve[-1]["loss"] == expected.curve[-1]["loss"]


def test_rotations_are_not_streamed(folder, tmp_path):
    with pytest.raises(SettingsError, match="augmentation digits turns images"):
        train(settings(folder, tmp_path / "run", augmentation="digits"))

"""Training on streamed images: the same run for any number of workers, and after a kill."""

import io
from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image
from rich.console import Console

from relatum.recipes.images import TrainImages, load_images
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


def test_readers_of_the_run_get_pixels(folder, tmp_path):
    """Probe and embed see the centre squares of the images that the run was trained on."""
    from relatum.recipes.inputs import check_run_images

    given = settings(folder, tmp_path / "run", steps=1)
    run = train(given)
    splits = load_images(given)
    check_run_images(run, splits, None)
    held = load_images(replace(given, stream=False))
    assert torch.equal(splits.train.pixels, held.train.pixels)
    assert torch.equal(splits.test.pixels, held.test.pixels)


def test_rotations_are_not_streamed(folder, tmp_path):
    with pytest.raises(SettingsError, match="augmentation digits turns images"):
        train(settings(folder, tmp_path / "run", augmentation="digits"))

"""Features of a frozen module: one image's features depend on that image alone."""

import numpy as np
import pytest
import torch
from torch import nn

from relatum.probes import extract_features, parameter_hash, pixel_features


def encoder():
    module = nn.Sequential(
        nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Dropout(0.5), nn.Flatten()
    )
    module(torch.randn(16, 3, 6, 6))  # running statistics unlike the initial ones
    return module


def images(n):
    generator = torch.Generator().manual_seed(1)
    return torch.randint(0, 256, (n, 3, 6, 6), generator=generator, dtype=torch.uint8)


def test_alone_or_in_a_batch_and_in_any_batch_size():
    module, pixels = encoder(), images(64)
    together = extract_features(module, pixels)
    assert together.shape == (64, 64)
    for row in (0, 17, 63):
        alone = extract_features(module, pixels[row : row + 1])
        np.testing.assert_allclose(alone[0], together[row], atol=1e-6)
    np.testing.assert_allclose(extract_features(module, pixels, batch_size=7), together, atol=1e-6)


def test_pixels_reach_the_module_in_zero_to_one():
    features = extract_features(nn.Flatten(), images(3))
    np.testing.assert_allclose(features, images(3).flatten(1).numpy() / 255, rtol=1e-6)
    assert features.dtype == np.float32
    assert extract_features(nn.Flatten().double(), images(3)).dtype == np.float32


def test_the_module_is_left_as_it_was():
    module = encoder().train()
    module[1].eval()  # a frozen part in a module that trains
    modes = [part.training for part in module.modules()]
    before = parameter_hash(module)
    extract_features(module, images(8))
    assert [part.training for part in module.modules()] == modes
    assert parameter_hash(module) == before
    assert all(parameter.grad is None for parameter in module.parameters())


def test_modes_are_restored_after_an_error():
    module = nn.Sequential(nn.Flatten(), nn.Linear(5, 2)).train()
    with pytest.raises(RuntimeError):
        extract_features(module, images(2))
    assert module.training and module[1].training


def test_half_precision_features_come_as_float32():
    class Half(nn.Module):
        def forward(self, x):
            return x.flatten(1).bfloat16()

    features = extract_features(Half(), images(2))
    assert features.dtype == np.float32
    expected = (images(2).flatten(1).float() / 255).bfloat16().float()
    assert np.array_equal(features, expected.numpy())


def test_what_is_refused():
    pixels = images(4)
    with pytest.raises(ValueError, match=r"uint8 tensor.*got torch\.float32 \(4, 3, 6, 6\)"):
        extract_features(nn.Flatten(), pixels.float())
    with pytest.raises(ValueError, match=r"uint8 tensor.*got torch\.uint8 \(4, 1, 6, 6\)"):
        pixel_features(pixels[:, :1])
    with pytest.raises(ValueError, match=r"n > 0, got torch\.uint8 \(0, 3, 6, 6\)"):
        extract_features(nn.Flatten(), pixels[:0])
    with pytest.raises(ValueError, match=r"must return \(rows, features\), got \(4, 3, 6, 6\)"):
        extract_features(nn.Identity(), pixels)
    with pytest.raises(ValueError, match="batch_size must be at least 1, got 0"):
        extract_features(nn.Flatten(), pixels, batch_size=0)
    with pytest.raises(ValueError, match="the module is on cpu, but device is meta"):
        extract_features(encoder(), pixels, device="meta")


def test_a_broken_feature_is_named():
    class Broken(nn.Module):
        def forward(self, x):
            out = x.flatten(1).clone()
            out[out == 77 / 255] = float("nan")
            return out

    pixels = torch.zeros(5, 3, 2, 2, dtype=torch.uint8)
    pixels[3, 0, 0, 1] = 77
    with pytest.raises(ValueError, match="features row 3, column 1 is nan"):
        extract_features(Broken(), pixels, batch_size=2)


def test_pixel_features_keep_one_channel_of_grey_images():
    grey = images(2)[:, :1].expand(2, 3, 6, 6)
    assert np.array_equal(pixel_features(grey), grey[:, 0].flatten(1).numpy() / np.float32(255))
    colour = grey.clone()
    colour[1, 2, 5, 5] ^= 1
    assert pixel_features(colour).shape == (2, 108)

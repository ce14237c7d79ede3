"""MFCC beside the formula written out in loops."""

import math

import numpy as np
import pytest

from relatum.data.audio import label_count, mfcc, with_slopes


def written_out(x, frame, kept=13, rate=16000):
    """One frame: pre-emphasis, Hamming window, DFT, 40 mel triangles, log, DCT-II."""
    start = frame * 160
    y = [
        (x[start + i] - (0.97 * x[start + i - 1] if start + i else 0))
        * (0.54 - 0.46 * math.cos(2 * math.pi * i / 399))
        for i in range(400)
    ]
    bins = np.arange(257)
    waves = np.exp(-2j * np.pi * np.outer(bins, np.arange(400)) / 512)
    power = np.abs(waves @ y) ** 2
    edges = [
        700 * (10 ** (m * 2595 * math.log10(1 + 8000 / 700) / 41 / 2595) - 1) for m in range(42)
    ]
    logs = []
    for low, centre, high in zip(edges, edges[1:], edges[2:], strict=False):
        energy = 0.0
        for k in bins:
            f = k * rate / 512
            if low < f <= centre:
                energy += power[k] * (f - low) / (centre - low)
            elif centre < f < high:
                energy += power[k] * (high - f) / (high - centre)
        logs.append(math.log(1e-10 + energy))
    return [
        math.sqrt((1 if c == 0 else 2) / 40)
        * sum(v * math.cos(math.pi * c * (2 * m + 1) / 80) for m, v in enumerate(logs))
        for c in range(kept)
    ]


def test_coefficients_are_the_formula():
    x = np.random.default_rng(0).normal(0, 0.1, 4000)
    found = mfcc(x)
    assert found.shape == (label_count(4000), 13)
    for frame in (0, 5, len(found) - 1):
        assert np.allclose(found[frame], written_out(x, frame), atol=1e-4)


def test_loudness_moves_the_first_coefficient_alone():
    x = np.random.default_rng(0).normal(0, 0.1, 4000)
    move = mfcc(10 * x) - mfcc(x)
    assert np.allclose(move[:, 0], math.log(100) * math.sqrt(40), atol=1e-3)
    assert np.allclose(move[:, 1:], 0, atol=1e-3)


def test_silence_is_finite_and_short_sounds_are_refused():
    assert np.isfinite(mfcc(np.zeros(1000))).all()
    with pytest.raises(ValueError, match="needs 400 samples"):
        mfcc(np.zeros(399))


def test_slopes_of_a_parabola():
    t = np.arange(20.0)
    found = with_slopes(np.stack([3 * t, t**2], 1))
    assert found.shape == (20, 6)
    assert np.allclose(found[4:-4], np.stack(
        [3 * t, t**2, 3 + 0 * t, 2 * t, 0 * t, 2 + 0 * t], 1)[4:-4])  # fmt: skip

r"""Mel-frequency cepstral coefficients: the features to beat, without anything learned.

.. math:: c = \mathrm{DCT}\, \log\big(\epsilon + M\, |\mathrm{FFT}(w \cdot (x_n - 0.97\,
          x_{n-1}))|^2\big)

with a Hamming window w of 25 ms every 10 ms, 40 triangular filters M equally spaced in mel,
:math:`2595 \log_{10}(1 + f / 700)`, and the orthonormal DCT-II, whose first 13 are kept. Before the
DCT they are a spectrogram (:func:`log_mel`).
"""

from __future__ import annotations

from typing import Final

import numpy as np
from jaxtyping import Float, Float64
from numpy.typing import NDArray
from scipy.fft import dct, rfft

from .phones import label_count

__all__ = ["log_mel", "mel_centres", "mfcc", "with_slopes"]

_FILTERS: Final = 40
_SMALLEST: Final = 1e-10  # silence has no logarithm; 1e-10 is 16-bit rounding noise, squared


def mfcc(
    samples: Float[np.ndarray, " n"], rate: int = 16000, kept: int = 13
) -> Float[np.ndarray, "t kept"]:
    """The coefficients of each 10 ms, as many as there are phone labels.

    Raises:
        ValueError: If there are fewer samples than a window of 25 ms, or `kept` is not 1 ... 40.

    Example:
        >>> mfcc(np.zeros(16000)).shape
        (98, 13)
    """
    if not 1 <= kept <= _FILTERS:
        raise ValueError(f"mfcc keeps 1 ... {_FILTERS} coefficients, got {kept}")
    cepstrum: NDArray[np.float64] = dct(log_mel(samples, rate), norm="ortho")[:, :kept]
    return cepstrum.astype(np.float32)


def log_mel(samples: Float[np.ndarray, " n"], rate: int = 16000) -> Float64[np.ndarray, "t 40"]:
    """The logarithm of the energy of each 10 ms in each mel filter, in nats.

    Raises:
        ValueError: If there are fewer samples than a window of 25 ms.
    """
    window, hop = rate // 40, rate // 100
    count = label_count(len(samples), window=window, hop=hop)
    if count < 1:
        raise ValueError(f"a frame needs {window} samples, got {len(samples)}")
    sharp = np.append(samples[0], samples[1:] - 0.97 * samples[:-1]).astype(np.float64)
    frames = np.lib.stride_tricks.sliding_window_view(sharp, window)[::hop][:count]
    size = 1 << (window - 1).bit_length()
    power = np.abs(rfft(frames * np.hamming(window), size)) ** 2
    energies: NDArray[np.float64] = np.log(_SMALLEST + power @ _mel_filters(rate, size).T)
    return energies


def mel_centres(rate: int = 16000) -> Float64[np.ndarray, " 40"]:
    """The frequency in the middle of each filter, in Hz."""
    return _mel_edges(rate)[1:-1]


def with_slopes(features: Float[np.ndarray, "t d"]) -> Float[np.ndarray, "t 3d"]:
    """Features, their slopes, and the slopes of those: least squares over five frames.

    The first and the last frame are repeated outwards.

    Example:
        >>> with_slopes(np.arange(9.0)[:, None] ** 2)[4]     # t², 2 t, 2 at t = 4
        array([16.,  8.,  2.])
    """
    first = _slope(features)
    return np.concatenate([features, first, _slope(first)], 1)


def _slope(x: NDArray[np.floating]) -> NDArray[np.floating]:
    padded = np.pad(x, ((2, 2), (0, 0)), mode="edge")
    t = len(x)
    slope: NDArray[np.floating] = (
        padded[3 : 3 + t] - padded[1 : 1 + t] + 2 * (padded[4 : 4 + t] - padded[:t])
    ) / 10
    return slope


def _mel_edges(rate: int) -> NDArray[np.float64]:
    top = 2595 * np.log10(1 + rate / 2 / 700)
    edges: NDArray[np.float64] = 700 * (10 ** (np.linspace(0, top, _FILTERS + 2) / 2595) - 1)
    return edges


def _mel_filters(rate: int, size: int) -> NDArray[np.float64]:
    """Triangles over the frequencies of the FFT, each reaching to the centres of its neighbours."""
    edges = _mel_edges(rate)
    hertz = np.arange(size // 2 + 1) * rate / size
    up = (hertz - edges[:-2, None]) / np.diff(edges)[:-1, None]
    down = (edges[2:, None] - hertz) / np.diff(edges)[1:, None]
    triangles: NDArray[np.float64] = np.clip(np.minimum(up, down), 0, None)
    return triangles

"""Features of recordings, one row for each 10 ms: contexts of a network, or MFCC."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from jaxtyping import Float

from ...data.audio import Corpus, label_count, mfcc, unit_windows, with_slopes
from ...models import SpeechNetwork

__all__ = ["FrameFeatures", "context_features", "mfcc_features"]

FrameFeatures = Callable[[Corpus, int], Float[np.ndarray, "t d"]]
"""From the number of an utterance to its features; a frame each 10 ms."""


def context_features(
    network: SpeechNetwork, window: int, device: str = "cpu", *, normalize: bool = False
) -> FrameFeatures:
    """The contexts of a frozen network.

    An utterance is cut into windows of the length of training, side by side, each starting from an
    empty memory as in training; a last, shorter one gives what frames it has.

    Args:
        network: On `device`.
        window: Samples of a window.
        device: Where it computes.
        normalize: Whether windows are brought to mean 0 and variance 1, as in training.
    """
    prepare = unit_windows if normalize else _as_given
    hop = network.sizes.hop

    @torch.no_grad()
    def features(corpus: Corpus, number: int) -> Float[np.ndarray, "t d"]:
        samples = torch.from_numpy(corpus.read(number)).to(device)
        whole = len(samples) // window
        parts = []
        if whole:
            windows = samples[: whole * window].view(whole, window)
            parts.append(network(prepare(windows))[1].flatten(0, 1))
        rest = samples[whole * window :]
        # A rest of less than three frames has none that its convolutions see whole.
        if len(rest) >= 3 * hop:
            parts.append(network(prepare(rest[None]))[1][0])
        if not parts:
            return np.zeros((0, network.dim), np.float32)
        found: Float[np.ndarray, "t d"] = torch.cat(parts).float().cpu().numpy()
        return found[: label_count(len(samples), window=5 * hop // 2, hop=hop)]

    network.eval()
    return features


def _as_given(samples: Float[torch.Tensor, "n s"]) -> Float[torch.Tensor, "n s"]:
    return samples


def mfcc_features(slopes: bool = True) -> FrameFeatures:
    """13 coefficients, with `slopes` 39."""

    def features(corpus: Corpus, number: int) -> Float[np.ndarray, "t d"]:
        samples = corpus.read(number)
        width = 39 if slopes else 13
        if label_count(len(samples), window=corpus.rate // 40, hop=corpus.rate // 100) < 1:
            return np.zeros((0, width), np.float32)
        found = mfcc(samples, corpus.rate)
        return with_slopes(found) if slopes else found

    return features

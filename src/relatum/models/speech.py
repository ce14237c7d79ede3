r"""Contrastive predictive coding of sound: from samples to frames, contexts and predictions.

.. math:: z_t = \mathrm{enc}(x)_t, \qquad c_t = \mathrm{rnn}(z_{\le t}), \qquad
          \hat z_{t,k} = p_k(c_{\le t})

A critic scores the prediction :math:`\hat z_{t,k}` with the frame :math:`z_{t+k}`. The
representation handed on after training is the context :math:`c_t`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, final

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

__all__ = [
    "CONTEXTS",
    "PREDICTORS",
    "ChannelNorm",
    "LinearPredictor",
    "SpeechEncoder",
    "SpeechNetwork",
    "SpeechSizes",
    "TransformerPredictor",
    "frames_of",
]

CONTEXTS: Final = {"lstm": nn.LSTM, "gru": nn.GRU}
PREDICTORS: Final = ("linear", "transformer")


@dataclass(frozen=True)
class SpeechSizes:
    """All sizes of the network; the defaults are the published ones (18 M parameters).

    Attributes:
        kernels: Of the convolutions.
        strides: Their product is the number of samples to a frame: 160, 10 ms at 16 kHz.
        paddings: Zeros on each side, so that lengths divide exactly.
        channels: Width of a frame.
        context: Width of a context.
        recurrent: "lstm" or "gru".
        steps: Look-aheads, one predictor each.
        predictor: "transformer" or "linear".
        heads: Of the transformer; they divide its width, ``context``.
        feedforward: Hidden width of the transformer.
        dropout: In the transformer.

    Raises:
        ValueError: If sizes do not go together.
    """

    kernels: tuple[int, ...] = (10, 8, 4, 4, 4)
    strides: tuple[int, ...] = (5, 4, 2, 2, 2)
    paddings: tuple[int, ...] = (3, 2, 1, 1, 1)
    channels: int = 256
    context: int = 256
    recurrent: str = "lstm"
    steps: int = 12
    predictor: str = "transformer"
    heads: int = 8
    feedforward: int = 2048
    dropout: float = 0.1

    def __post_init__(self) -> None:
        if not len(self.kernels) == len(self.strides) == len(self.paddings) > 0:
            raise ValueError(
                "kernels, strides and paddings must be as many, one for each convolution, got "
                f"{self.kernels}, {self.strides} and {self.paddings}"
            )
        positive = [*self.kernels, *self.strides, self.channels, self.context, self.steps]
        if min(positive) < 1 or min(self.paddings) < 0:
            raise ValueError(f"sizes must be positive, got {self}")
        if self.channels < 2:
            raise ValueError("channels must be at least 2: one has no variance across channels")
        for name, known in (("recurrent", tuple(CONTEXTS)), ("predictor", PREDICTORS)):
            if getattr(self, name) not in known:
                raise ValueError(f"{name} must be one of {known}, got {getattr(self, name)!r}")
        if self.predictor == "transformer" and self.context % self.heads:
            raise ValueError(f"heads must divide context {self.context}, got {self.heads}")
        if not 0 <= self.dropout < 1:
            raise ValueError(f"dropout must be in [0, 1), got {self.dropout}")

    @property
    def hop(self) -> int:
        """Samples to a frame."""
        return math.prod(self.strides)


def frames_of(samples: int, sizes: SpeechSizes) -> tuple[int, ...]:
    r"""Lengths after each convolution, :math:`\lfloor (n + 2p - k) / s \rfloor + 1`.

    Example:
        >>> frames_of(20480, SpeechSizes())
        (4096, 1024, 512, 256, 128)
    """
    lengths = []
    for k, s, p in zip(sizes.kernels, sizes.strides, sizes.paddings, strict=True):
        samples = (samples + 2 * p - k) // s + 1
        lengths.append(max(samples, 0))
    return tuple(lengths)


@final
class ChannelNorm(nn.Module):
    r"""Normalisation across the channels of each frame.

    .. math:: y_{ct} = g_c \frac{x_{ct} - m_t}{\sqrt{v_t + \epsilon}} + b_c

    with mean :math:`m_t` and *unbiased* variance :math:`v_t` over the channels of frame t. No frame
    and no utterance sees another, so nothing depends on the batch; a constant frame, such as those
    of silence, becomes :math:`b`.

    Args:
        channels: At least 2.
        epsilon: :math:`\epsilon > 0`.
    """

    def __init__(self, channels: int, epsilon: float = 1e-5) -> None:
        super().__init__()
        self.epsilon = epsilon
        self.weight = nn.Parameter(torch.ones(channels, 1))
        self.bias = nn.Parameter(torch.zeros(channels, 1))

    def forward(self, x: Float[Tensor, "n c t"]) -> Float[Tensor, "n c t"]:
        """The normalised frames."""
        # torch's layer norm, twice as fast as the formula, has the biased variance v (c - 1) / c:
        # with ε scaled alike, its result is too large by the root of c / (c - 1).
        share = 1 - 1 / x.shape[1]
        weight = self.weight[:, 0] * math.sqrt(share)
        rows, width = x.transpose(1, 2), (x.shape[1],)
        y = functional.layer_norm(rows, width, weight, self.bias[:, 0], self.epsilon * share)
        return y.transpose(1, 2)


@final
class SpeechEncoder(nn.Module):
    """Strided convolutions over samples, each followed by channel normalisation and ReLU.

    Args:
        sizes: Kernels, strides, paddings, channels.
    """

    def __init__(self, sizes: SpeechSizes) -> None:
        super().__init__()
        self.sizes = sizes
        widths = (1, *[sizes.channels] * len(sizes.kernels))
        layers: list[nn.Module] = []
        for i, (k, s, p) in enumerate(
            zip(sizes.kernels, sizes.strides, sizes.paddings, strict=True)
        ):
            layers += [nn.Conv1d(widths[i], widths[i + 1], k, s, p), ChannelNorm(widths[i + 1])]
            layers.append(nn.ReLU())
        self.layers = nn.Sequential(*layers)

    def forward(self, samples: Float[Tensor, "n s"]) -> Float[Tensor, "n t c"]:
        """The frames of each window.

        Raises:
            ValueError: If a window is too short for a single frame.
        """
        if min(frames_of(samples.shape[1], self.sizes)) < 1:
            raise ValueError(
                f"a window of {samples.shape[1]} samples is too short for one frame; frames take "
                f"{self.sizes.hop} samples each"
            )
        frames: Tensor = self.layers(samples[:, None])
        return frames.transpose(1, 2)


@final
class LinearPredictor(nn.Module):
    """The prediction W c_t, without bias, as van den Oord et al. (2018) write it."""

    def __init__(self, sizes: SpeechSizes) -> None:
        super().__init__()
        self.linear = nn.Linear(sizes.context, sizes.channels, bias=False)

    def forward(self, contexts: Float[Tensor, "n t d"]) -> Float[Tensor, "n t c"]:
        """The predictions of each context."""
        predictions: Tensor = self.linear(contexts)
        return predictions


@final
class TransformerPredictor(nn.Module):
    r"""One causal transformer layer over the contexts, with learned relative positions.

    .. math:: a^h_{ts} \propto \exp \frac{\langle q^h_t,\, k^h_s + r^h_{t-s} \rangle}{\sqrt{d/H}},
              \quad s \le t

    of heads h = 1 ... H, then post-norm residuals around attention and a feed-forward network. A
    last linear map is there only if frames and contexts differ in width.

    Args:
        sizes: Widths, heads, dropout.
        positions: Contexts of a window at most: so many distances have a vector :math:`r`.
    """

    def __init__(self, sizes: SpeechSizes, positions: int) -> None:
        super().__init__()
        width = sizes.context
        self.heads, self.dropout = sizes.heads, sizes.dropout
        self.queries, self.keys, self.values, self.join = (
            nn.Linear(width, width) for _ in range(4)
        )
        self.relative = nn.Parameter(torch.randn(positions, width) / math.sqrt(width))
        self.first_norm, self.second_norm = nn.LayerNorm(width), nn.LayerNorm(width)
        self.feedforward = nn.Sequential(
            nn.Linear(width, sizes.feedforward),
            nn.ReLU(),
            nn.Dropout(sizes.dropout),
            nn.Linear(sizes.feedforward, width),
        )
        self.after = nn.Dropout(sizes.dropout)
        self.last = nn.Identity() if width == sizes.channels else nn.Linear(width, sizes.channels)

    def forward(self, contexts: Float[Tensor, "n t d"]) -> Float[Tensor, "n t c"]:
        """The predictions of each context, from it and those before it."""
        x = self.first_norm(contexts + self.after(self._attention(contexts)))
        x = self.second_norm(x + self.after(self.feedforward(x)))
        predictions: Tensor = self.last(x)
        return predictions

    def _attention(self, x: Tensor) -> Tensor:
        n, t, width = x.shape
        if t > len(self.relative):
            raise ValueError(
                f"the predictor knows {len(self.relative)} positions, got {t} contexts: windows "
                "must not be longer than in training"
            )
        heads = (n, t, self.heads, width // self.heads)
        q, k, v = (f(x).view(heads).transpose(1, 2) for f in (self.queries, self.keys, self.values))
        r = self.relative[:t].view(t, *heads[2:]).permute(1, 2, 0)
        distance = torch.arange(t, device=x.device)[:, None] - torch.arange(t, device=x.device)
        # Of each query its products with all distances, then those that its keys have.
        bias = (q @ r).gather(3, distance.clamp(min=0).expand(n, self.heads, t, t))
        bias = (bias / math.sqrt(heads[3])).masked_fill(distance < 0, -torch.inf)
        dropout = self.dropout if self.training else 0.0
        seen = functional.scaled_dot_product_attention(q, k, v, attn_mask=bias, dropout_p=dropout)
        joined: Tensor = self.join(seen.transpose(1, 2).reshape(n, t, width))
        return joined


@final
class SpeechNetwork(nn.Module):
    """Encoder, context network and one predictor for each look-ahead.

    Args:
        sizes: Of everything.
        window: Samples of the windows in training.

    Attributes:
        dim: Width of the representation, the contexts.

    Raises:
        ValueError: If a window has no frame left to predict from.

    Example:
        >>> sizes = SpeechSizes(channels=8, context=6, steps=2, predictor="linear")
        >>> network = SpeechNetwork(sizes, window=1600)
        >>> frames, contexts = network(torch.randn(3, 1600))
        >>> frames.shape, contexts.shape, network.predict(contexts)[0].shape
        (torch.Size([3, 10, 8]), torch.Size([3, 10, 6]), torch.Size([3, 8, 8]))
    """

    def __init__(self, sizes: SpeechSizes, window: int) -> None:
        super().__init__()
        anchors = frames_of(window, sizes)[-1] - sizes.steps
        if anchors < 1:
            raise ValueError(
                f"a window of {window} samples has {anchors + sizes.steps} frames, too few to look "
                f"{sizes.steps} ahead: use a longer window or fewer steps"
            )
        self.sizes, self.dim = sizes, sizes.context
        self.encoder = SpeechEncoder(sizes)
        self.context = CONTEXTS[sizes.recurrent](sizes.channels, sizes.context, batch_first=True)
        self.predictors = nn.ModuleList(
            LinearPredictor(sizes)
            if sizes.predictor == "linear"
            else TransformerPredictor(sizes, anchors)
            for _ in range(sizes.steps)
        )

    def forward(
        self, samples: Float[Tensor, "n s"]
    ) -> tuple[Float[Tensor, "n t c"], Float[Tensor, "n t d"]]:
        """Frames and contexts; the recurrent state starts at zero in each window."""
        frames = self.encoder(samples)
        return frames, self.context(frames)[0]

    def predict(
        self, contexts: Float[Tensor, "n t d"], only: int | None = None
    ) -> Sequence[Float[Tensor, "n a c"]]:
        """Of each look-ahead 1, 2, ..., K the predictions from the first t − K contexts.

        Args:
            contexts: Of each window.
            only: The predictor of this number, from 0, alone.
        """
        anchors = contexts[:, : contexts.shape[1] - len(self.predictors)]
        chosen = self.predictors if only is None else [self.predictors[only]]
        return [predictor(anchors) for predictor in chosen]

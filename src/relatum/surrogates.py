r"""Hinge and base-2 logistic surrogates of the zero-one loss, with the constants of the theory.

Both are functions of :math:`t` = (negative score − positive score), so that :math:`\ell(0) = 1`
and :math:`\ell(t) \ge 1\{t \ge 0\}`. They stand here once; ``objectives/`` trains with them and the
latent-class theory reasons with them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional

__all__ = ["SURROGATES", "HingeSurrogate", "LogisticSurrogate", "softplus"]

_LN2 = math.log(2.0)


def softplus(t: Float[Tensor, "*any"]) -> Float[Tensor, "*any"]:
    """log(1 + e^t) in nats, elementwise, without overflow.

    torch's own switches to t at 20, which costs a float64 result 2e-9; at 50 it costs nothing.
    """
    return functional.softplus(t, threshold=50)


@dataclass(frozen=True)
class HingeSurrogate:
    r"""The hinge loss :math:`\ell(t) = \max(0, 1 + t)`.

    With k negatives: :math:`\ell_k(v) = \max(0, 1 + \max_i v_i)`, and :math:`\ell_0 = 0`.

    References:
        A Theoretical Analysis of Contrastive Unsupervised Representation Learning
        (Saunshi et al., 2019), section 2. https://arxiv.org/abs/1902.09229

    Example:
        >>> HingeSurrogate()(torch.tensor([-2.0, 0.0, 1.0]))
        tensor([0., 1., 2.])
    """

    name: str = "hinge"

    def __call__(self, t: Float[Tensor, "*any"]) -> Float[Tensor, "*any"]:
        """max(0, 1 + t), elementwise."""
        return functional.relu(1 + t)

    def many(self, v: Float[Tensor, "*any k"]) -> Float[Tensor, "*any"]:
        """The k-negative form over the last axis; zero for k = 0."""
        if v.shape[-1] == 0:
            return v.new_zeros(v.shape[:-1])
        return self(v.amax(-1))

    @property
    def lipschitz(self) -> float:
        """L0 = 1."""
        return 1.0

    @property
    def collision(self) -> float:
        """The sharp collision constant c' = L0 / √3."""
        return self.lipschitz / math.sqrt(3)

    def oscillation(self, radius: float) -> float:
        """Max − min of the loss where embeddings have norm at most R: min(4R², 1 + 2R²)."""
        _check_radius(radius)
        return min(4 * radius**2, 1 + 2 * radius**2)


@dataclass(frozen=True)
class LogisticSurrogate:
    r"""The base-2 logistic loss :math:`\ell(t) = \log_2(1 + e^t)`.

    With k negatives: :math:`\ell_k(v) = \log_2(1 + \sum_i e^{v_i})`, and :math:`\ell_0 = 0`. In
    nats (times ln 2) the k-negative form is the cross-entropy of InfoNCE and NT-Xent.

    References:
        A Theoretical Analysis of Contrastive Unsupervised Representation Learning
        (Saunshi et al., 2019), section 2. https://arxiv.org/abs/1902.09229

    Example:
        >>> LogisticSurrogate()(torch.tensor([0.0]))
        tensor([1.])
    """

    name: str = "logistic"

    def __call__(self, t: Float[Tensor, "*any"]) -> Float[Tensor, "*any"]:
        """log2(1 + e^t), elementwise, without overflow."""
        return softplus(t) / _LN2

    def many(self, v: Float[Tensor, "*any k"]) -> Float[Tensor, "*any"]:
        """The k-negative form over the last axis; zero for k = 0."""
        # Candidates that are all masked count as none; their log-sum-exp has no gradient.
        empty = (v == -torch.inf).all(-1)
        logsumexp = v.masked_fill(empty.unsqueeze(-1), 0).logsumexp(-1)
        return self(logsumexp.masked_fill(empty, -torch.inf))

    @property
    def lipschitz(self) -> float:
        """L0 = 1 / ln 2."""
        return 1 / _LN2

    @property
    def collision(self) -> float:
        """The sharp collision constant c' = L0 / √3."""
        return self.lipschitz / math.sqrt(3)

    def oscillation(self, radius: float) -> float:
        """Max − min of the loss where embeddings have norm at most R: 2R² / ln 2."""
        _check_radius(radius)
        return 2 * radius**2 / _LN2


def _check_radius(radius: float) -> None:
    if not (math.isfinite(radius) and radius > 0):
        raise ValueError(f"radius must be a positive number (a bound on |f(x)|), got {radius}")


SURROGATES: dict[str, HingeSurrogate | LogisticSurrogate] = {
    "hinge": HingeSurrogate(),
    "logistic": LogisticSurrogate(),
}

"""Encoders whose norm is bounded before any data are seen, as theorems about a class want them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Final, final

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

__all__ = ["NORMS", "BoundedEncoder"]

NORMS: Final = ("frobenius", "spectral", "sphere")


@final
class BoundedEncoder(nn.Module):
    r"""Layers without biases, ReLU between them, with |f(x)| <= R for all |x| <= 1.

    .. math:: f(x) = W_L\, \sigma(\cdots \sigma(W_1 x)), \qquad \|W_l\| \le R^{1/L}

    in the Frobenius or the spectral norm. On the sphere weights are free and the output is
    :math:`R\, u / |u|` (0 where u is 0). One layer is a linear encoder. Weights start at random
    inside their balls; an update may leave them, :meth:`project_` brings them back.

    Args:
        widths: p, hidden widths, d: the number of layers is one less.
        radius: R > 0.
        norm: "frobenius", "spectral" or "sphere".

    Raises:
        ValueError: If there is no layer, a width or R is not positive, or the norm is unknown.

    Example:
        >>> encoder = BoundedEncoder([3, 2], radius=0.5)
        >>> encoder(torch.eye(3)).norm(dim=1).max() <= 0.5
        tensor(True)
    """

    def __init__(self, widths: Sequence[int], radius: float, norm: str = "frobenius") -> None:
        super().__init__()
        if len(widths) < 2 or min(widths) < 1:
            raise ValueError(f"widths must be two positive numbers or more, got {list(widths)}")
        if not 0 < radius < math.inf:
            raise ValueError(f"radius must be a positive number, got {radius}")
        if norm not in NORMS:
            raise ValueError(f"norm must be one of {', '.join(NORMS)}, got {norm!r}")
        self.widths, self.radius, self.norm = tuple(widths), radius, norm
        self.layers = nn.ModuleList(nn.Linear(a, b, bias=False) for a, b in pairwise(widths))
        self.project_()

    @property
    def bound(self) -> float:
        """The bound on the norm of each layer, the same for all."""
        return float(self.radius ** (1 / len(self.layers)))

    def forward(self, x: Float[Tensor, "*n p"]) -> Float[Tensor, "*n d"]:
        """The embeddings."""
        u: Tensor = self.layers[0](x)
        for layer in self.layers[1:]:
            u = layer(functional.relu(u))
        return self.radius * functional.normalize(u, dim=-1) if self.norm == "sphere" else u

    @torch.no_grad()
    def project_(self) -> None:
        """Takes each matrix to the nearest one in its ball."""
        for weight in self.parameters():
            if self.norm == "frobenius":
                weight.mul_((self.bound / weight.norm()).clamp(max=1))
            elif self.norm == "spectral" and torch.linalg.matrix_norm(weight, 2) > self.bound:
                u, values, v = torch.linalg.svd(weight, full_matrices=False)
                weight.copy_(u * values.clamp(max=self.bound) @ v)

    def frobenius_bounds(self) -> list[float] | None:
        r"""Bounds on the Frobenius norms of the layers; None on the sphere, which has none.

        :math:`\|W\|_F \le \sqrt{\min(a, b)}\, \|W\|` for a matrix of a by b and the spectral norm.
        """
        if self.norm == "sphere":
            return None
        ranks = [min(a, b) if self.norm == "spectral" else 1 for a, b in pairwise(self.widths)]
        return [self.bound * math.sqrt(rank) for rank in ranks]

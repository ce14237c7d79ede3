"""The projection head: from the representation to the embedding that the critic sees."""

from __future__ import annotations

from itertools import pairwise
from typing import cast, final

from jaxtyping import Float
from torch import Tensor, nn

__all__ = ["ProjectionHead"]


@final
class ProjectionHead(nn.Module):
    """Dense layers, each followed by batch normalisation; thrown away after training.

    The last normalisation has a scale but no offset and no ReLU follows it, so embeddings are
    centred over the batch and a raw dot product of two equal views starts near ``dim_out``, as in
    SimCLRv2 (Chen et al. 2020). Dense layers have no bias (the normalisation removes it) and start
    normal with standard deviation 0.01.

    Args:
        dim_in: Width of the representation.
        dim_hidden: Width of all layers but the last.
        dim_out: Width of the embedding.
        layers: Number of dense layers, at least 1; the paper uses 3 (2 in SimCLR v1).

    Raises:
        ValueError: If a number is not positive.

    Example:
        >>> import torch
        >>> head = ProjectionHead(16, 32, 8, layers=2)
        >>> head(torch.rand(6, 16)).mean(0).abs().max() < 1e-6   # centred
        tensor(True)
    """

    def __init__(self, dim_in: int, dim_hidden: int, dim_out: int, layers: int = 3) -> None:
        super().__init__()
        for name, value in [("dim_in", dim_in), ("dim_hidden", dim_hidden), ("dim_out", dim_out)]:
            if value < 1:
                raise ValueError(f"{name} must be at least 1, got {value}")
        if layers < 1:
            raise ValueError(f"layers must be at least 1, got {layers}")
        widths = [dim_in, *[dim_hidden] * (layers - 1), dim_out]
        modules: list[nn.Module] = []
        for index, (before, after) in enumerate(pairwise(widths)):
            dense = nn.Linear(before, after, bias=False)
            nn.init.normal_(dense.weight, std=0.01)
            modules += [dense, nn.BatchNorm1d(after)]
            if index < layers - 1:
                modules.append(nn.ReLU())
        self.layers = nn.Sequential(*modules)
        last = self.layers[-1]
        assert isinstance(last, nn.BatchNorm1d)
        last.register_parameter("bias", None)
        self.dim = dim_out

    def forward(self, features: Float[Tensor, "n d"]) -> Float[Tensor, "n e"]:
        """The embedding of each representation."""
        return cast(Tensor, self.layers(features))

"""The projection head: from the representation to the embedding that the critic sees."""

from __future__ import annotations

from itertools import pairwise
from typing import cast, final

from jaxtyping import Float
from torch import Tensor, nn

__all__ = ["ProjectionHead"]


@final
class ProjectionHead(nn.Module):
    r"""Dense layers, each followed by batch normalisation; thrown away after training.

    The last normalisation has a scale but no offset and no ReLU follows it, so embeddings are
    centred over the batch and a raw dot product of two equal views starts near ``dim_out``, as in
    SimCLRv2 (Chen et al. 2020). Dense layers have no bias (the normalisation removes it) and start
    normal with standard deviation 0.01.

    That the embeddings :math:`z` of a batch of N pairs sum to zero fixes their mean negative
    score, for raw dot products divided by :math:`\tau` and all other rows of both views:

    .. math::
        \overline{S}_- = -\frac{\overline{|z|^2} / \tau + \overline{S}_+}{2N - 2}

    so RPC's alpha has a weight of order 1 / 2N, whatever its value. An offset frees the mean.

    Args:
        dim_in: Width of the representation.
        dim_hidden: Width of all layers but the last.
        dim_out: Width of the embedding.
        layers: Number of dense layers, at least 1; the paper uses 3 (2 in SimCLR v1).
        offset: Whether the last normalisation has an offset.

    Attributes:
        widths: Of what goes in and of the output of each layer.

    Raises:
        ValueError: If a number is not positive.

    Example:
        >>> import torch
        >>> head = ProjectionHead(16, 32, 8, layers=2)
        >>> head(torch.rand(6, 16)).mean(0).abs().max() < 1e-6   # centred
        tensor(True)
    """

    def __init__(
        self,
        dim_in: int,
        dim_hidden: int,
        dim_out: int,
        layers: int = 3,
        *,
        offset: bool = False,
    ) -> None:
        super().__init__()
        for name, value in [("dim_in", dim_in), ("dim_hidden", dim_hidden), ("dim_out", dim_out)]:
            if value < 1:
                raise ValueError(f"{name} must be at least 1, got {value}")
        if layers < 1:
            raise ValueError(f"layers must be at least 1, got {layers}")
        self.widths = (dim_in, *[dim_hidden] * (layers - 1), dim_out)
        modules: list[nn.Module] = []
        for index, (before, after) in enumerate(pairwise(self.widths)):
            dense = nn.Linear(before, after, bias=False)
            nn.init.normal_(dense.weight, std=0.01)
            modules += [dense, nn.BatchNorm1d(after)]
            if index < layers - 1:
                modules.append(nn.ReLU())
        self.layers = nn.Sequential(*modules)
        if not offset:
            last = self.layers[-1]
            assert isinstance(last, nn.BatchNorm1d)
            last.register_parameter("bias", None)
        self.dim = dim_out

    def forward(self, features: Float[Tensor, "n d"]) -> Float[Tensor, "n e"]:
        """The embedding of each representation."""
        return cast(Tensor, self.layers(features))

    def upto(self, k: int) -> nn.Sequential:
        """The first k layers, sharing their weights: fine-tuning keeps them (SimCLRv2 keeps one).

        Args:
            k: From 0, which hands the representation through, to the number of layers. The output
                is ``widths[k]`` wide.

        Raises:
            ValueError: If there are not so many layers.

        Example:
            >>> head = ProjectionHead(16, 32, 8)
            >>> [len(head.upto(k)) for k in range(4)], head.widths[1]
            ([0, 3, 6, 8], 32)
        """
        if not 0 <= k < len(self.widths):
            raise ValueError(f"k must be from 0 to {len(self.widths) - 1} layers, got {k}")
        return self.layers[: 3 * k]  # dense, normalisation, ReLU

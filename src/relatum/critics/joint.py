"""A critic that looks at both sides together."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import torch
from jaxtyping import Float
from torch import Tensor, nn

from ..products import linear

__all__ = ["JointMLP"]


class JointMLP(nn.Module):
    r"""A multi-layer perceptron on the pair, :math:`f(x, y) = \mathrm{MLP}([x, y])`.

    It can represent any score, but every pair costs a pass through it. The first layer is linear
    in the pair, :math:`W_x x + W_y y + b`, so it is applied to each side once and only the sum is
    formed per pair.

    Args:
        dim_x: Dimension of x.
        dim_y: Dimension of y.
        hidden: Widths of the hidden layers, at least one.

    Raises:
        ValueError: If a dimension or width is below 1, or ``hidden`` is empty.

    References:
        The "concat" critic of the Gaussian task of Tsai et al. (2021).

    Example:
        >>> critic = JointMLP(3, 2, hidden=(16,))
        >>> critic(torch.zeros(4, 1, 3), torch.zeros(1, 5, 2)).shape
        torch.Size([4, 5])
    """

    symmetric = False

    def __init__(self, dim_x: int, dim_y: int, hidden: Sequence[int] = (512, 512)) -> None:
        super().__init__()
        if not hidden:
            raise ValueError("hidden must name at least one width, got an empty sequence")
        for name, size in (("dim_x", dim_x), ("dim_y", dim_y), *(("hidden", h) for h in hidden)):
            if size < 1:
                raise ValueError(f"{name} must be at least 1, got {size}")
        self.first = nn.Linear(dim_x + dim_y, hidden[0])
        self.dim_x = dim_x
        widths = [*hidden, 1]
        layers: list[nn.Module] = [nn.ReLU()]
        for before, after in pairwise(widths[:-1]):
            layers += [nn.Linear(before, after), nn.ReLU()]
        self.rest = nn.Sequential(*layers, nn.Linear(widths[-2], 1))

    def forward(self, x: Float[Tensor, "*a dx"], y: Float[Tensor, "*b dy"]) -> Float[Tensor, "*c"]:
        """The scores, broadcasting over leading axes; float32 or better."""
        x, y = self._checked("x", x), self._checked("y", y)
        weight_x, weight_y = self.first.weight.tensor_split([self.dim_x], 1)
        hidden = linear(x, weight_x) + linear(y, weight_y, self.first.bias)
        for layer in self.rest:  # a score is never rounded to half, nor its gradient
            if isinstance(layer, nn.Linear):
                hidden = linear(hidden, layer.weight, layer.bias)
            else:
                hidden = layer(hidden)
        return hidden.squeeze(-1)

    def _checked(self, name: str, side: Tensor) -> Tensor:
        width = self.dim_x if name == "x" else self.first.in_features - self.dim_x
        if side.shape[-1] != width:
            raise ValueError(
                f"this JointMLP takes {name} of width {width}, got shape {tuple(side.shape)}"
            )
        dtype = self.first.weight.dtype
        if torch.promote_types(side.dtype, dtype) != dtype:
            raise TypeError(
                f"this JointMLP has {dtype} weights and {name} is {side.dtype}; make them alike, "
                "for example with critic.double()"
            )
        return side.to(dtype)

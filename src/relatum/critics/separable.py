r"""Critics that are inner products, :math:`f(x, y) = \langle u(x), v(y) \rangle`.

Only these can be summed over all pairs in linear time, so their factors are part of their face.
The temperature enters both factors as a square root: scores are divided by T, and the two factors
of a symmetric critic stay the same tensor when x and y are.
"""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from ..products import linear
from .temperature import Temperature

__all__ = ["Bilinear", "Cosine", "DotProduct", "TwoTower"]

Factors = tuple[Float[Tensor, "*a d"], Float[Tensor, "*b d"]]


def _check_one_width(x: Tensor, y: Tensor) -> None:
    # Broadcasting would pair a width of 1 with any other.
    if x.shape[-1] != y.shape[-1]:
        raise ValueError(
            f"x and y must have one width for an inner product, got shapes {tuple(x.shape)} and "
            f"{tuple(y.shape)}; a Bilinear critic joins different widths"
        )


def _wide(x: Tensor) -> Tensor:
    """Float32 or better: sums of products of half-precision numbers are not kept in half."""
    return x.float() if x.dtype in (torch.float16, torch.bfloat16) else x


def _inner(factors: Factors) -> Tensor:
    u, v = factors
    with torch.autocast(u.device.type, enabled=False):
        return (u * v).sum(-1)


class DotProduct(nn.Module):
    r"""The dot product :math:`f(x, y) = \langle x, y \rangle / T`.

    The critic of RPC in the paper, on raw projections with a large T (128 on CIFAR, 32 on
    ImageNet).

    Args:
        temperature: T > 0.
        learn: Whether T is learned (then stored as log(1/T) and capped at 1/T = 100).

    Example:
        >>> x = torch.tensor([[1.0, 2.0]])
        >>> DotProduct(temperature=2.0)(x, x)
        tensor([2.5000])
    """

    symmetric = True
    rowwise = True

    def __init__(self, temperature: float = 1.0, learn: bool = False) -> None:
        super().__init__()
        self.temperature = Temperature(temperature, learn)

    def forward(self, x: Float[Tensor, "*a dx"], y: Float[Tensor, "*b dy"]) -> Float[Tensor, "*c"]:
        """The scores, broadcasting over leading axes."""
        return _inner(self.factors(x, y))

    def factors(self, x: Float[Tensor, "*a dx"], y: Float[Tensor, "*b dy"]) -> Factors:
        """(x, y), each divided by √T."""
        _check_one_width(x, y)
        root = self.temperature.root()
        u = _wide(x) * root
        return u, u if x is y else _wide(y) * root


class Cosine(nn.Module):
    r"""Cosine similarity, :math:`f(x, y) = \cos(x, y) / T`; in [−1/T, 1/T] up to rounding.

    A zero vector has similarity 0 to everything, and gradient zero.

    Args:
        temperature: T > 0.
        learn: Whether T is learned (then stored as log(1/T) and capped at 1/T = 100).

    Example:
        >>> Cosine(temperature=0.5)(torch.tensor([[3.0, 4.0]]), torch.tensor([[6.0, 8.0]]))
        tensor([2.])
    """

    symmetric = True
    rowwise = True

    def __init__(self, temperature: float = 0.1, learn: bool = False) -> None:
        super().__init__()
        self.temperature = Temperature(temperature, learn)

    def forward(self, x: Float[Tensor, "*a dx"], y: Float[Tensor, "*b dy"]) -> Float[Tensor, "*c"]:
        """The scores, broadcasting over leading axes."""
        return _inner(self.factors(x, y))

    def factors(self, x: Float[Tensor, "*a dx"], y: Float[Tensor, "*b dy"]) -> Factors:
        """The directions of x and y, each divided by √T."""
        _check_one_width(x, y)
        root = self.temperature.root()
        u = _direction(x, root)
        return u, u if x is y else _direction(y, root)

    @property
    def lowest(self) -> Float[Tensor, ""] | float:
        """−1/T, the score of opposite directions; with gradient if T is learned."""
        root = self.temperature.root()
        return -root * root


def _direction(x: Tensor, length: Tensor | float) -> Tensor:
    """X / ‖x‖ along the last axis, times a length; 0 for a zero vector."""
    if isinstance(length, Tensor):  # a learned one has a gradient of its own
        return _direction(x, 1.0) * length
    out, _ = _Direction.apply(_wide(x), length)
    direction: Tensor = out
    return direction


class _Direction(torch.autograd.Function):
    """Vectors of one length, and norms: half the passes over memory of the formula written out.

    The norm is an output so that derivatives of every order follow from the first.
    """

    @staticmethod
    def forward(x: Tensor, length: float) -> tuple[Tensor, Tensor]:
        norm = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
        # Squares of numbers below 1e-19 or above 1e19 do not fit in float32.
        if not x.is_meta and bool(((norm > 1e-15) & (norm < 1e15)).all()):
            return x * (length / norm), norm
        largest = x.abs().amax(-1, keepdim=True)
        # The slope of a zero row, which has no direction, is divided by ∞.
        zero = largest == 0
        scaled = x / largest.masked_fill(zero, 1)
        norm = torch.linalg.vector_norm(scaled, dim=-1, keepdim=True).masked_fill(zero, torch.inf)
        return scaled * (length / norm), norm * largest.masked_fill(zero, 1)

    @staticmethod
    def setup_context(
        ctx: Any, inputs: tuple[Tensor, float], output: tuple[Tensor, Tensor]
    ) -> None:
        ctx.length = inputs[1]
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(*output)
        ctx.save_for_forward(*output)

    @staticmethod
    def backward(
        ctx: Any, grad: Tensor | None, grad_norm: Tensor | None
    ) -> tuple[Tensor | None, None]:
        u, norm = ctx.saved_tensors
        slope: Tensor | None = None if grad is None else _across(grad, u, ctx.length)
        if slope is not None:
            scale = ctx.length / norm
            slope = slope * scale if torch.is_grad_enabled() else slope.mul_(scale)
        if grad_norm is not None:
            along = grad_norm * u / ctx.length
            slope = along if slope is None else slope + along
        return slope, None

    @staticmethod
    def jvp(ctx: Any, tangent: Tensor, _: None) -> tuple[Tensor, Tensor]:
        u, norm = ctx.saved_tensors
        along = (tangent * u).sum(-1, keepdim=True) / ctx.length
        return _across(tangent, u, ctx.length) * (ctx.length / norm), along

    @staticmethod
    def vmap(
        info: Any, axes: tuple[int, None], x: Tensor, length: float
    ) -> tuple[tuple[Tensor, Tensor], int]:
        return _Direction.apply(x.movedim(axes[0], 0), length), 0


def _across(grad: Tensor, u: Tensor, length: float) -> Tensor:
    """The part of a gradient across u, which is so long: a direction does not change along it."""
    along = (grad * u).sum(-1, keepdim=True) / length**2
    return torch.addcmul(grad, u, along, value=-1)


class Bilinear(nn.Module):
    r"""A bilinear form, :math:`f(x, y) = x^\top W y / T` with a learned matrix W.

    Args:
        dim_x: Dimension of x.
        dim_y: Dimension of y.
        temperature: T > 0.
        learn: Whether T is learned.

    Raises:
        ValueError: If a dimension is below 1.

    Example:
        >>> critic = Bilinear(3, 2)
        >>> critic(torch.zeros(4, 3), torch.zeros(4, 2)).shape
        torch.Size([4])
    """

    symmetric = False
    rowwise = True

    def __init__(
        self, dim_x: int, dim_y: int, temperature: float = 1.0, learn: bool = False
    ) -> None:
        super().__init__()
        for name, dim in (("dim_x", dim_x), ("dim_y", dim_y)):
            if dim < 1:
                raise ValueError(f"{name} must be at least 1, got {dim}")
        # Scores of standardised inputs start with variance 1 for any dimensions.
        self.weight = nn.Parameter(torch.randn(dim_x, dim_y) / (dim_x * dim_y) ** 0.5)
        self.temperature = Temperature(temperature, learn)

    def forward(self, x: Float[Tensor, "*a dx"], y: Float[Tensor, "*b dy"]) -> Float[Tensor, "*c"]:
        """The scores, broadcasting over leading axes."""
        return _inner(self.factors(x, y))

    def factors(self, x: Float[Tensor, "*a dx"], y: Float[Tensor, "*b dy"]) -> Factors:
        """(xW, y), each divided by √T."""
        root = self.temperature.root()
        for name, side, width in (("x", x, self.weight.shape[0]), ("y", y, self.weight.shape[1])):
            if side.shape[-1] != width:
                raise ValueError(
                    f"this Bilinear critic takes {name} of width {width}, got shape "
                    f"{tuple(side.shape)}"
                )
        wide, weight = _wide(x), _wide(self.weight)
        common = torch.promote_types(wide.dtype, weight.dtype)
        u = linear(wide.to(common), weight.to(common).T)
        return u * root, _wide(y).to(common) * root


class TwoTower(nn.Module):
    r"""Two networks and an inner product, :math:`f(x, y) = \langle u(x), v(y) \rangle / T`.

    Args:
        tower_x: A module from (n, dx) to (n, d).
        tower_y: A module from (n, dy) to (n, d); None shares ``tower_x``, which makes the critic
            symmetric.
        temperature: T > 0.
        learn: Whether T is learned.
        normalize: Whether u and v are divided by their norms (scores are then cosines / T).

    Example:
        >>> critic = TwoTower(nn.Linear(3, 8), nn.Linear(2, 8))
        >>> critic(torch.zeros(4, 1, 3), torch.zeros(1, 5, 2)).shape
        torch.Size([4, 5])
    """

    def __init__(
        self,
        tower_x: nn.Module,
        tower_y: nn.Module | None = None,
        temperature: float = 1.0,
        learn: bool = False,
        normalize: bool = False,
    ) -> None:
        super().__init__()
        self.tower_x = tower_x
        self.tower_y = tower_y
        self.inner = Cosine(temperature, learn) if normalize else DotProduct(temperature, learn)

    @property
    def symmetric(self) -> bool:
        """True if both sides share one tower."""
        return self.tower_y is None or self.tower_y is self.tower_x

    @property
    def rowwise(self) -> bool:
        """True if no layer ties the rows of a batch together, as batch normalisation does.

        That is known of torch's own layers; a tower with others sees all rows in one call.
        """
        towers = (self.tower_x,) if self.tower_y is None else (self.tower_x, self.tower_y)
        layers = [layer for tower in towers for layer in tower.modules()]
        return all(
            type(layer).__module__.startswith("torch.nn.modules.")
            and not isinstance(layer, _TYING_ROWS)
            for layer in layers
        )

    @property
    def temperature(self) -> Temperature:
        """The temperature of the inner product."""
        return self.inner.temperature

    @property
    def lowest(self) -> Float[Tensor, ""] | float | None:
        """−1/T if the towers' outputs are normalised; None if scores have no lower end."""
        return self.inner.lowest if isinstance(self.inner, Cosine) else None

    def forward(self, x: Float[Tensor, "*a dx"], y: Float[Tensor, "*b dy"]) -> Float[Tensor, "*c"]:
        """The scores, broadcasting over leading axes."""
        return _inner(self.factors(x, y))

    def factors(self, x: Float[Tensor, "*a dx"], y: Float[Tensor, "*b dy"]) -> Factors:
        """The two towers' outputs, scaled."""
        u = _through(self.tower_x, x)
        other = self.tower_x if self.tower_y is None else self.tower_y
        v = u if x is y and self.symmetric else _through(other, y)
        return self.inner.factors(u, v)


_TYING_ROWS = (
    nn.modules.batchnorm._BatchNorm,
    # To these a matrix is a sequence.
    nn.RNNBase, nn.MultiheadAttention, nn.Transformer, nn.TransformerEncoder, nn.TransformerDecoder,
    nn.TransformerEncoderLayer, nn.TransformerDecoderLayer,
)  # fmt: skip


def _through(tower: nn.Module, x: Tensor) -> Tensor:
    """Applies a tower to the last axis: (n, d) networks must not see the pairing's axes."""
    if x.ndim == 2:
        out: Tensor = tower(x)
        return out
    out = tower(x.reshape(-1, x.shape[-1]))
    return out.reshape(*x.shape[:-1], out.shape[-1])

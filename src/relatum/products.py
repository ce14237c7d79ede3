"""Matrix products that autocast leaves alone, forward and backward.

Sums over all pairs need float32; under autocast a plain product would be rounded to 16 bits, and so
would its gradient wherever ``backward`` is called inside the autocast region.
"""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

__all__ = ["linear", "matmul", "row_sums"]


def matmul(a: Float[Tensor, "*b n d"], b: Float[Tensor, "*b d m"]) -> Float[Tensor, "*b n m"]:
    """The product a b."""
    out: Tensor = _Product.apply(a, b)
    return out


def linear(
    x: Float[Tensor, "*a d"], weight: Float[Tensor, "m d"], bias: Float[Tensor, " m"] | None = None
) -> Float[Tensor, "*a m"]:
    """The last axis of x through a linear layer, x Wᵀ + b."""
    out = matmul(x.reshape(-1, x.shape[-1]), weight.T)
    if bias is not None:
        out = out.add_(bias)
    return out.view(*x.shape[:-1], len(weight))


def row_sums(u: Float[Tensor, "n d"], norms: bool = False) -> tuple[Tensor, ...]:
    """Σ u and uᵀu over the rows; if asked, also Σ ‖u‖² and Σ ‖u‖⁴.

    One gradient of u's size, made in one product, where the formulas written out make several.
    """
    out: tuple[Tensor, ...] = _RowSums.apply(u, norms)
    return out


class _Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, a: Tensor, b: Tensor) -> Tensor:
        ctx.save_for_backward(a, b)
        with torch.autocast(a.device.type, enabled=False):
            return a @ b

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor | None]:
        a, b = ctx.saved_tensors
        wants_a, wants_b = ctx.needs_input_grad
        # In terms of the same function, so that there are derivatives of every order.
        grad_a = matmul(grad, b.mT) if wants_a else None
        return grad_a, matmul(a.mT, grad) if wants_b else None


class _RowSums(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, u: Tensor, norms: bool) -> tuple[Tensor, ...]:
        squares = _squared_norms(u) if norms else None
        ctx.save_for_backward(u, squares)
        ctx.set_materialize_grads(False)
        with torch.autocast(u.device.type, enabled=False):
            return _row_sums(u, squares)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor, None]:
        u, squares = ctx.saved_tensors
        if torch.is_grad_enabled():  # a second derivative is wanted
            sums = _row_sums(u, None if squares is None else _squared_norms(u))
            used = [(s, g) for s, g in zip(sums, grads, strict=True) if g is not None]
            outputs, given = zip(*used, strict=True)
            return torch.autograd.grad(outputs, u, given, create_graph=True)[0], None
        first, square, *of_norms = grads
        with torch.autocast(u.device.type, enabled=False):
            slope = torch.zeros_like(u) if square is None else u @ (square + square.T)
        if first is not None:
            slope += first
        if any(g is not None for g in of_norms):
            second, fourth = (u.new_zeros(()) if g is None else g for g in of_norms)
            slope.addcmul_(u, (2 * second + 4 * fourth * squares).unsqueeze(1))
        return slope, None


def _squared_norms(u: Tensor) -> Tensor:
    return u.square().sum(1)


def _row_sums(u: Tensor, squares: Tensor | None) -> tuple[Tensor, ...]:
    of_norms = () if squares is None else (squares.sum(), squares.square().sum())
    return (u.sum(0), matmul(u.T, u), *of_norms)

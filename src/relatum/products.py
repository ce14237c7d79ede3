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
    if not torch.is_autocast_enabled(x.device.type):
        return torch.nn.functional.linear(x, weight, bias)  # half the time on small layers
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
    generate_vmap_rule = True

    @staticmethod
    def forward(a: Tensor, b: Tensor) -> Tensor:
        with torch.autocast(a.device.type, enabled=False):
            return a @ b

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor], output: Tensor) -> None:
        ctx.save_for_backward(*inputs)
        ctx.save_for_forward(*inputs)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor | None]:
        a, b = ctx.saved_tensors
        wants_a, wants_b = ctx.needs_input_grad
        # In terms of the same function, so that there are derivatives of every order.
        grad_a = matmul(grad, b.mT) if wants_a else None
        return grad_a, matmul(a.mT, grad) if wants_b else None

    @staticmethod
    def jvp(ctx: Any, tangent_a: Tensor, tangent_b: Tensor) -> Tensor:
        a, b = ctx.saved_tensors
        return matmul(tangent_a, b) + matmul(a, tangent_b)


class _RowSums(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(u: Tensor, norms: bool) -> tuple[Tensor, ...]:
        with torch.autocast(u.device.type, enabled=False):
            sums = (u.sum(0), u.T @ u)
        if not norms:
            return sums
        squares = u.square().sum(1)
        return *sums, squares.sum(), squares.square().sum()

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, bool], output: tuple[Tensor, ...]) -> None:
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(inputs[0])
        ctx.save_for_forward(inputs[0])
        ctx.norms = inputs[1]

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor, None]:
        (u,) = ctx.saved_tensors
        first, square, *of_norms = grads
        slope = torch.zeros_like(u) if square is None else matmul(u, square + square.T)
        further = []
        if first is not None:
            further.append(first.expand_as(u))
        if any(g is not None for g in of_norms):
            second, fourth = (u.new_zeros(()) if g is None else g for g in of_norms)
            weight = 2 * second + 4 * fourth * u.square().sum(1)
            further.append(u * weight.unsqueeze(1))
        for term in further:  # in place unless a second derivative is wanted
            slope = slope + term if torch.is_grad_enabled() else slope.add_(term)
        return slope, None

    @staticmethod
    def jvp(ctx: Any, tangent: Tensor, _: None) -> tuple[Tensor, ...]:
        (u,) = ctx.saved_tensors
        half = matmul(tangent.T, u)
        sums = (tangent.sum(0), half + half.T)
        if not ctx.norms:
            return sums
        inner, squares = (tangent * u).sum(1), u.square().sum(1)
        return *sums, 2 * inner.sum(), 4 * (inner * squares).sum()

"""Matrix products that autocast leaves alone, forward and backward.

Sums over all pairs need float32; under autocast a plain product would be rounded to 16 bits, and so
would its gradient wherever ``backward`` is called inside the autocast region.
"""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

__all__ = ["gram", "linear", "matmul"]


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


def gram(u: Float[Tensor, "n d"]) -> Float[Tensor, "d d"]:
    """The Gram matrix uᵀu; its backward is one product, where that of u.T @ u takes two."""
    out: Tensor = _Gram.apply(u)
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


class _Gram(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(u: Tensor) -> Tensor:
        with torch.autocast(u.device.type, enabled=False):
            return u.T @ u

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor], output: Tensor) -> None:
        ctx.save_for_backward(*inputs)
        ctx.save_for_forward(*inputs)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        (u,) = ctx.saved_tensors
        return matmul(u, grad + grad.T)

    @staticmethod
    def jvp(ctx: Any, tangent: Tensor) -> Tensor:
        (u,) = ctx.saved_tensors
        half = matmul(tangent.T, u)
        return half + half.T

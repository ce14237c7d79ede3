"""The gradient penalty that keeps a critic Lipschitz."""

from __future__ import annotations

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor

# torch.compiler.disable, loading the compiler at the first call and not at the import of relatum.
from torch._compile import _disable_dynamo as eagerly

__all__ = ["gradient_penalty"]


@eagerly
def gradient_penalty(
    critic_of_inputs: Callable[[Tensor, Tensor], Tensor],
    x: Tensor,
    y: Tensor,
    *,
    target: float = 1.0,
    one_sided: bool = True,
) -> Float[Tensor, ""]:
    r"""The Lipschitz penalty of WPC: how far the score's gradient exceeds the target.

    .. math:: \frac1n \sum_i \max\big(0, \|\nabla_{(x, y)} f(x_i, y_i)\|_2 - c\big)^2

    with c the target; two-sided, :math:`(\|\nabla f\| - c)^2`. The gradient is taken with respect
    to both *inputs* of the pair, per pair, so the critic given here runs from the networks' inputs
    to the score, and must not mix pairs: hold the statistics of batch normalisation
    (:func:`relatum.models.held_statistics`; those of evaluation mode are of earlier weights, which
    smaller ones escape). A pair whose gradient vanishes contributes its value and no gradient
    (never NaN).

    Args:
        critic_of_inputs: Takes (x, y) and gives n scores.
        x: Inputs of one side, (n, ...), for example images.
        y: Inputs of the other side, (n, ...).
        target: The Lipschitz constant c >= 0.
        one_sided: Whether gradients below the target are free.

    Raises:
        ValueError: If the scores are not one per pair, or the target is negative.

    References:
        Wasserstein Dependency Measure for Representation Learning (Ozair et al., 2019);
        one-sided form of Improved Training of Wasserstein GANs (Gulrajani et al., 2017).

    Example:
        >>> x = torch.ones(2, 3)
        >>> gradient_penalty(lambda a, b: 2 * (a + b).sum(1), x, x)  # (√(6 · 4) − 1)²
        tensor(15.2020)
    """
    if not target >= 0:
        raise ValueError(f"target must be at least 0, got {target}")
    with torch.enable_grad():
        x, y = x.detach().requires_grad_(), y.detach().requires_grad_()
        scores = critic_of_inputs(x, y)
        if scores.shape != (len(x),):
            raise ValueError(
                f"critic_of_inputs must give one score per pair, shape ({len(x)},); "
                f"got {tuple(scores.shape)}"
            )
        gradients = torch.autograd.grad(
            scores.sum(), (x, y), create_graph=True, materialize_grads=True
        )
        # Squares of half-precision gradients overflow above 256.
        wide = [g.float() if g.dtype.itemsize < 4 else g for g in gradients]
        square = sum(g.reshape(len(g), -1).square().sum(1) for g in wide)
        assert isinstance(square, Tensor)
        # √ has slope ∞ at 0; there the norm is 0 and its gradient is set to 0.
        zero = square == 0
        norm = square.masked_fill(zero, 1).sqrt().masked_fill(zero, 0)
        excess = norm - target
        return (excess.relu() if one_sided else excess).square().mean()

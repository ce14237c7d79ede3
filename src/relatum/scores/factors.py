"""Factors of separable scores, made in parts that stay in the cache."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from ..base import SeparableCritic

__all__ = ["Parts", "factors_of_pairs", "joined", "rowwise", "stacked", "wide_factors"]

Parts = list[Tensor]
"""A factor as parts of consecutive rows."""

_CACHED = 1 << 19
"""Numbers of one side in a part on the CPU, 2 MiB of float32: what a part's factors, products and
gradients touch then stays in the cache, and the time per pair is the same for any batch size."""

_FEWEST = 256
"""Rows of a part at least."""


def wide_factors(critic: SeparableCritic, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """The critic's factors; what one of the user's own rounded to half is summed in float32."""
    u, v = critic.factors(x, y)
    wide = u.float() if u.dtype.itemsize < 4 else u
    return wide, wide if u is v else v.float() if v.dtype.itemsize < 4 else v


def factors_of_pairs(
    critic: SeparableCritic,
    x: Float[Tensor, "n dx"],
    y: Float[Tensor, "n *b dy"],
    views: bool = False,
) -> tuple[Parts, Parts]:
    """The factors of pairs, in parts where the critic lets rows be taken apart.

    A critic says so by an attribute ``rowwise``; batch normalisation in a tower, for example, ties
    the rows together. Two views of such a critic go through it in one call.
    """
    if getattr(critic, "rowwise", False):
        size = len(x) if x.is_cuda else max(_FEWEST, _CACHED // x.shape[1])
        if len(x) <= size:
            parts = [wide_factors(critic, x, y)]
        else:
            pairs = zip(torch.split(x, size), torch.split(y, size), strict=True)
            parts = [wide_factors(critic, a, b) for a, b in pairs]
        return [u for u, _ in parts], [v for _, v in parts]
    if not views:
        u, v = wide_factors(critic, x, y)
        return [u], [v]
    z = stacked(x, y)
    u, v = wide_factors(critic, z, z)
    return [u[: len(x)]], [v[len(x) :]]


def joined(parts: Parts) -> Float[Tensor, "n d"]:
    """The whole factor."""
    return parts[0] if len(parts) == 1 else torch.cat(parts)


def rowwise(us: Parts, vs: Parts) -> Float[Tensor, " n"]:
    """The scores of the pairs themselves, ⟨u_i, v_i⟩."""
    return torch.cat([(u * v).sum(-1) for u, v in zip(us, vs, strict=True)])


def stacked(x: Tensor, y: Tensor, axis: int = 0) -> Tensor:
    """X and y one after the other; autocast would refuse the two half-precision types."""
    with torch.autocast(x.device.type, enabled=False):
        return torch.cat([x, y], axis)

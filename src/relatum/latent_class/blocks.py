"""Blocks: the means of several members of one class, listed with their laws."""

from __future__ import annotations

import math
from itertools import combinations_with_replacement

import numpy as np
from jaxtyping import Float64

from .checks import check_count
from .model import FiniteModel

__all__ = ["block_scores"]

# The pair losses take N times the square of this many evaluations.
_MOST_BLOCKS = 4000


def block_scores(
    model: FiniteModel, block: int
) -> tuple[Float64[np.ndarray, "N B"], Float64[np.ndarray, "K B"]]:
    r"""Each point's score with the mean of each block, and each class's law of blocks.

    A block is a multiset of b support points; class c has it with the multinomial probability
    :math:`b! \prod_i P_{ci}^{n_i} / n_i!`.

    Args:
        model: The classes and the encoder.
        block: The number b of members.

    Raises:
        ValueError: If b is below 1 or the multisets, :math:`\binom{N+b-1}{b}`, are too many.

    Example:
        >>> coin = FiniteModel([0.5, 0.5], [[0.5, 0.5], [1, 0]], [[1.0], [0.0]])
        >>> block_scores(coin, 2)[1]
        array([[0.25, 0.5 , 0.25],
               [1.  , 0.  , 0.  ]])
    """
    check_count("block", block)
    size = len(model.features)
    number = math.comb(size + block - 1, block)
    if number > _MOST_BLOCKS:
        raise ValueError(
            f"block must leave at most {_MOST_BLOCKS} multisets of {size} points to list, got "
            f"{block} with {number}: draw some with sample_blocks instead"
        )
    members = np.array(list(combinations_with_replacement(range(size), block)))
    counts = np.stack([np.bincount(row, minlength=size) for row in members])
    orders = [
        math.factorial(block) / math.prod(map(math.factorial, row)) for row in counts.tolist()
    ]
    laws = orders * model.laws[:, members].prod(axis=2)
    return model.gram @ counts.T / block, laws

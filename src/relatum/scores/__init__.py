"""Scores: which pairs are positive and negative, and how all of them are reduced."""

from .negatives import BothDirections, PooledNegatives
from .pairings import PAIRINGS, bank, explicit, from_matrix, in_batch, in_batch_symmetric, two_view

__all__ = [
    "PAIRINGS",
    "BothDirections",
    "PooledNegatives",
    "bank",
    "explicit",
    "from_matrix",
    "in_batch",
    "in_batch_symmetric",
    "two_view",
]

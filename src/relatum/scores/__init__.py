"""Scores: which pairs are positive and negative, and how all of them are reduced."""

from .debiased import checked_prior, debiased, debiased_moments
from .negatives import BothDirections, PooledNegatives
from .pairings import (
    PAIRINGS,
    bank,
    explicit,
    from_matrix,
    in_batch,
    in_batch_symmetric,
    sampled,
    two_view,
)
from .statistics import Statistics, statistics_of_pairs
from .streaming import MovingMoments

__all__ = [
    "PAIRINGS",
    "BothDirections",
    "MovingMoments",
    "PooledNegatives",
    "Statistics",
    "bank",
    "checked_prior",
    "debiased",
    "debiased_moments",
    "explicit",
    "from_matrix",
    "in_batch",
    "in_batch_symmetric",
    "sampled",
    "statistics_of_pairs",
    "two_view",
]

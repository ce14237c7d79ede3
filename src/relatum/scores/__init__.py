"""Scores: which pairs are positive and negative, and how all of them are reduced."""

from .class_blocks import over_blocks
from .debiased import checked_prior, debiased, debiased_moments
from .negatives import BothDirections, PooledNegatives
from .pairings import (
    PAIRINGS,
    bank,
    block,
    explicit,
    from_matrix,
    in_batch,
    in_batch_symmetric,
    sampled,
    two_view,
)
from .sequences import SCOPES, draw_negatives, look_ahead
from .statistics import Statistics, statistics_of_pairs
from .streaming import MovingMoments

__all__ = [
    "PAIRINGS",
    "SCOPES",
    "BothDirections",
    "MovingMoments",
    "PooledNegatives",
    "Statistics",
    "bank",
    "block",
    "checked_prior",
    "debiased",
    "debiased_moments",
    "draw_negatives",
    "explicit",
    "from_matrix",
    "in_batch",
    "in_batch_symmetric",
    "look_ahead",
    "over_blocks",
    "sampled",
    "statistics_of_pairs",
    "two_view",
]

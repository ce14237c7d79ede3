"""Latent classes: why contrasting pairs helps a classifier, and by how much.

Unlabelled pairs come from hidden classes; the contrastive risk of an encoder bounds how well a
linear classifier on it can tell the classes apart.
"""

from .model import FiniteModel
from .risks import (
    class_spreads,
    collision_risk,
    directional_spread,
    margin_risk,
    mean_classifier_losses,
    mean_classifier_risk,
    mean_scores,
    noncollision_risk,
    pair_losses,
    pairwise_error,
    score_variances,
    spread,
    unsupervised_risk,
)
from .sampling import Contrasts, Pairs, SampledModel
from .supervised import (
    LinearMinimum,
    SupervisedRisk,
    ball_lower_bound,
    linear_minimum,
    linear_risk,
    supervised_risk,
)

__all__ = [
    "Contrasts",
    "FiniteModel",
    "LinearMinimum",
    "Pairs",
    "SampledModel",
    "SupervisedRisk",
    "ball_lower_bound",
    "class_spreads",
    "collision_risk",
    "directional_spread",
    "linear_minimum",
    "linear_risk",
    "margin_risk",
    "mean_classifier_losses",
    "mean_classifier_risk",
    "mean_scores",
    "noncollision_risk",
    "pair_losses",
    "pairwise_error",
    "score_variances",
    "spread",
    "supervised_risk",
    "unsupervised_risk",
]

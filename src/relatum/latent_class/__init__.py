"""Latent classes: why contrasting pairs helps a classifier, and by how much.

Unlabelled pairs come from hidden classes; the contrastive risk of an encoder bounds how well a
linear classifier on it can tell the classes apart.
"""

from .collisions import (
    collision_counts,
    collision_floor,
    collision_probability,
    coverage,
    distinct_classes,
)
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
from .tuples import (
    full_way_losses,
    infonce_risk,
    mean_cross_entropy,
    mean_tuple_risk,
    rest_risk,
    spectral_minimum,
    spectral_risk,
    top1_errors,
    tuple_risk,
    tuple_spread,
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
    "collision_counts",
    "collision_floor",
    "collision_probability",
    "collision_risk",
    "coverage",
    "directional_spread",
    "distinct_classes",
    "full_way_losses",
    "infonce_risk",
    "linear_minimum",
    "linear_risk",
    "margin_risk",
    "mean_classifier_losses",
    "mean_classifier_risk",
    "mean_cross_entropy",
    "mean_scores",
    "mean_tuple_risk",
    "noncollision_risk",
    "pair_losses",
    "pairwise_error",
    "rest_risk",
    "score_variances",
    "spectral_minimum",
    "spectral_risk",
    "spread",
    "supervised_risk",
    "top1_errors",
    "tuple_risk",
    "tuple_spread",
    "unsupervised_risk",
]

"""Bounds of the theory, one function a theorem; each takes numbers, exact or estimated.

``chain`` holds the result type and the main chain, from the contrastive risk to the mean
classifier; ``one_shot`` (one example instead of the mean), ``margin``, ``many`` (k negatives, all
classes), ``published`` (the same as others have them), ``infonce``, ``training`` (from a sample to
its law) and ``hold_out`` (fresh data, PAC-Bayes) go on from there.
"""

from .chain import (
    Bound,
    collision_bound,
    collision_second_order,
    competitive_bound,
    mean_classifier_bound,
    views_bound,
)
from .hold_out import (
    hold_out_bound,
    pac_bayes_bound,
)
from .infonce import (
    cross_entropy_lower,
    cross_entropy_upper,
    cross_entropy_upper_any_prior,
    jensen_gap,
    published_cross_entropy_lower,
    published_cross_entropy_upper,
)
from .many import (
    full_way_bound,
    top1_bound,
    tuple_bound,
    tuple_competitive_bound,
)
from .margin import (
    margin_bound,
    scarf,
    sub_gaussian_bound,
    sub_gaussian_margin,
)
from .one_shot import (
    block_bound,
    curvature_bound,
    jensen_bound,
    sandwich,
)
from .published import (
    published_full_way_bound,
    sub_task_bound,
    task_prior_factor,
)
from .training import (
    finite_class_bound,
    minimiser_gap,
    uniform_bound,
)

__all__ = [
    "Bound",
    "block_bound",
    "collision_bound",
    "collision_second_order",
    "competitive_bound",
    "cross_entropy_lower",
    "cross_entropy_upper",
    "cross_entropy_upper_any_prior",
    "curvature_bound",
    "finite_class_bound",
    "full_way_bound",
    "hold_out_bound",
    "jensen_bound",
    "jensen_gap",
    "margin_bound",
    "mean_classifier_bound",
    "minimiser_gap",
    "pac_bayes_bound",
    "published_cross_entropy_lower",
    "published_cross_entropy_upper",
    "published_full_way_bound",
    "sandwich",
    "scarf",
    "sub_gaussian_bound",
    "sub_gaussian_margin",
    "sub_task_bound",
    "task_prior_factor",
    "top1_bound",
    "tuple_bound",
    "tuple_competitive_bound",
    "uniform_bound",
    "views_bound",
]

"""Frozen features and labels in, accuracies out; probes know nothing of models or training.

=====================  ==========================================================
linear_probe           logistic regression, its penalty chosen on validation rows
sgd_probe              the same classifier by the schedule of published evaluations
knn_probe              votes of the most similar training rows
class_means_probe      the nearest class mean: nothing is fitted
extract_features       features of a frozen module; `pixel_features` the baseline
ProtocolCard           what must be equal before two numbers may be compared
mean_interval          a number over seeds; `paired_difference` a gain over seeds
=====================  ==========================================================

Test rows are used for nothing but the final count: scales, penalties and drawn labels come from
the training rows alone.
"""

from .abx import ABXResult, abx
from .class_means import class_mean_scores, class_means, class_means_probe
from .features import NonFiniteFeatures, extract_features, pixel_features
from .knn import knn_probe
from .labels import few_labels, labels_share
from .linear import REGULARISATION_GRID, Standardiser, linear_probe
from .protocol import Comparison, ProtocolCard, check_unchanged, comparable, parameter_hash
from .sgd import sgd_probe
from .summary import Interval, mean_interval, paired_difference
from .task import ProbeResult

__all__ = [
    "REGULARISATION_GRID",
    "ABXResult",
    "Comparison",
    "Interval",
    "NonFiniteFeatures",
    "ProbeResult",
    "ProtocolCard",
    "Standardiser",
    "abx",
    "check_unchanged",
    "class_mean_scores",
    "class_means",
    "class_means_probe",
    "comparable",
    "extract_features",
    "few_labels",
    "knn_probe",
    "labels_share",
    "linear_probe",
    "mean_interval",
    "paired_difference",
    "parameter_hash",
    "pixel_features",
    "sgd_probe",
]

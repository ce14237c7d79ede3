"""Mutual information: estimates that state what they are."""

from .columns import Sides, read_sides
from .discrete import discrete, histogram, mixed
from .estimate import estimate_mi
from .fitted import FittedCritic
from .fitting import CRITICS, fit_critic
from .gaussian import GaussianRatio, gaussian
from .intervals import bootstrap
from .kernel import KernelRatio
from .ksg import ksg
from .margins import NormalScores
from .matrix import MIMatrix, MIRanking, mutual_information_matrix
from .methods import METHODS
from .objectives import MINE, SMILE, TUBA
from .ratio import DensityRatio
from .reading import Reading
from .readouts import log_ratio_of_mean_score, mean_log_ratio
from .result import MIEstimate
from .splits import cross_fit
from .training import Training

__all__ = [
    "CRITICS",
    "METHODS",
    "MINE",
    "SMILE",
    "TUBA",
    "DensityRatio",
    "FittedCritic",
    "GaussianRatio",
    "KernelRatio",
    "MIEstimate",
    "MIMatrix",
    "MIRanking",
    "NormalScores",
    "Reading",
    "Sides",
    "Training",
    "bootstrap",
    "cross_fit",
    "discrete",
    "estimate_mi",
    "fit_critic",
    "gaussian",
    "histogram",
    "ksg",
    "log_ratio_of_mean_score",
    "mean_log_ratio",
    "mixed",
    "mutual_information_matrix",
    "read_sides",
]

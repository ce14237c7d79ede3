"""Tuning a whole network on labels: from a trained encoder, or from scratch."""

from .network import Classifier, stem_of
from .plan import BATCH_NORMS, TUNED, FineTunePlan
from .tune import FineTuneResult, fine_tune

__all__ = [
    "BATCH_NORMS",
    "TUNED",
    "Classifier",
    "FineTunePlan",
    "FineTuneResult",
    "fine_tune",
    "stem_of",
]

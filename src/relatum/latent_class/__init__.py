"""Latent classes: why contrasting pairs helps a classifier, and by how much.

Unlabelled pairs come from hidden classes; the contrastive risk of an encoder bounds how well a
linear classifier on it can tell the classes apart.
"""

from .model import FiniteModel
from .sampling import Contrasts, Pairs, SampledModel

__all__ = ["Contrasts", "FiniteModel", "Pairs", "SampledModel"]

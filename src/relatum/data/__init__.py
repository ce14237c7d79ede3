"""Images in: decoding, splits, and random views of whole batches."""

from .augment import POLICIES, Augmentation, Draws
from .images import DataError, ImageTable, SkippedFile
from .sources import Splits, load_splits

__all__ = [
    "POLICIES",
    "Augmentation",
    "DataError",
    "Draws",
    "ImageTable",
    "SkippedFile",
    "Splits",
    "load_splits",
]

"""Images in: decoding, splits, and random views of whole batches."""

from .augment import POLICIES, Augmentation, Draws
from .images import DataError, Encoded, ImageTable, SkippedFile
from .sources import Splits, load_splits
from .streamed import Frames, InMemory, PixelSource, Request, Streamed, pixel_source

__all__ = [
    "POLICIES",
    "Augmentation",
    "DataError",
    "Draws",
    "Encoded",
    "Frames",
    "ImageTable",
    "InMemory",
    "PixelSource",
    "Request",
    "SkippedFile",
    "Splits",
    "Streamed",
    "load_splits",
    "pixel_source",
]

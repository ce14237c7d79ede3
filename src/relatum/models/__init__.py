"""Networks: from pixels or sound to a representation, from a representation to an embedding."""

from .base import Encoder
from .bounded import NORMS, BoundedEncoder
from .encoders import ENCODERS, build_encoder, check_encoder
from .heads import ProjectionHead
from .held_statistics import held_statistics
from .normalization import (
    average_running_statistics,
    group_normalized,
    spectrally_normalized,
    synchronized,
)
from .speech import SpeechNetwork, SpeechSizes, frames_of

__all__ = [
    "ENCODERS",
    "NORMS",
    "BoundedEncoder",
    "Encoder",
    "ProjectionHead",
    "SpeechNetwork",
    "SpeechSizes",
    "average_running_statistics",
    "build_encoder",
    "check_encoder",
    "frames_of",
    "group_normalized",
    "held_statistics",
    "spectrally_normalized",
    "synchronized",
]

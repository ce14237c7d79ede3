"""Networks: from pixels to a representation, and from a representation to an embedding."""

from .bounded import NORMS, BoundedEncoder
from .encoders import ENCODERS, Encoder, build_encoder
from .heads import ProjectionHead
from .normalization import average_running_statistics, group_normalized, synchronized

__all__ = [
    "ENCODERS",
    "NORMS",
    "BoundedEncoder",
    "Encoder",
    "ProjectionHead",
    "average_running_statistics",
    "build_encoder",
    "group_normalized",
    "synchronized",
]

"""Networks: from pixels to a representation, and from a representation to an embedding."""

from .encoders import ENCODERS, Encoder, build_encoder
from .heads import ProjectionHead

__all__ = ["ENCODERS", "Encoder", "ProjectionHead", "build_encoder"]

"""What training on images is made of: settings, networks built from them, one step."""

from .build import (
    Networks,
    build_networks,
    load_images,
    read_settings,
    trained_encoder,
    untrained_encoder,
)
from .resolve import resolve
from .settings import TrainImages
from .step import ContrastiveStep

__all__ = [
    "ContrastiveStep",
    "Networks",
    "TrainImages",
    "build_networks",
    "load_images",
    "read_settings",
    "resolve",
    "trained_encoder",
    "untrained_encoder",
]

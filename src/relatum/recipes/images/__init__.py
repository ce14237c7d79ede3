"""What training on images is made of: settings, networks built from them, one step."""

from .build import (
    Networks,
    build_networks,
    load_images,
    read_settings,
    trained_encoder,
    trained_head,
    untrained_encoder,
)
from .resolve import resolve
from .settings import TrainImages
from .step import ContrastiveStep
from .watch import CertificateWatch, held_back

__all__ = [
    "CertificateWatch",
    "ContrastiveStep",
    "Networks",
    "TrainImages",
    "build_networks",
    "held_back",
    "load_images",
    "read_settings",
    "resolve",
    "trained_encoder",
    "trained_head",
    "untrained_encoder",
]

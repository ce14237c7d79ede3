"""What training on recordings is made of: settings, networks built from them, one step."""

from .build import (
    SpeechNetworks,
    build_networks,
    check_same_sounds,
    data_card,
    load_corpus,
    load_windows,
    read_settings,
    resolve,
    sizes_of,
    trained_network,
)
from .settings import TrainSpeech
from .step import PredictionStep

__all__ = [
    "PredictionStep",
    "SpeechNetworks",
    "TrainSpeech",
    "build_networks",
    "check_same_sounds",
    "data_card",
    "load_corpus",
    "load_windows",
    "read_settings",
    "resolve",
    "sizes_of",
    "trained_network",
]

"""Sounds in: folders and tars of speech, speakers, windows, phone labels."""

from .corpus import Corpus, Utterance, is_clipped, open_corpus
from .listing import ListedSound, list_sounds, read_ids, read_speakers
from .mfcc import log_mel, mel_centres, mfcc, with_slopes
from .phones import (
    PHONES,
    Segment,
    label_count,
    labels_from_segments,
    read_frame_labels,
    read_phone_names,
    read_segments,
    segments_from_labels,
)
from .reading import CHANNELS, Place, SoundHeader, read_header, read_sound
from .windows import Windows, cut_windows, unit_windows

__all__ = [
    "CHANNELS",
    "PHONES",
    "Corpus",
    "ListedSound",
    "Place",
    "Segment",
    "SoundHeader",
    "Utterance",
    "Windows",
    "cut_windows",
    "is_clipped",
    "label_count",
    "labels_from_segments",
    "list_sounds",
    "log_mel",
    "mel_centres",
    "mfcc",
    "open_corpus",
    "read_frame_labels",
    "read_header",
    "read_ids",
    "read_phone_names",
    "read_segments",
    "read_sound",
    "read_speakers",
    "segments_from_labels",
    "unit_windows",
    "with_slopes",
]

"""Phone labels: the published form, segments, and the one from the other."""

import gzip
import json
from itertools import pairwise

import numpy as np
import pytest

from relatum.data import DataError
from relatum.data.audio import (
    PHONES,
    Segment,
    label_count,
    labels_from_segments,
    read_frame_labels,
    read_phone_names,
    read_segments,
    segments_from_labels,
)


def test_label_count_is_the_number_of_whole_windows():
    for samples in (0, 399, 400, 559, 560, 31440):
        whole = sum(start + 400 <= samples for start in range(0, samples, 160))
        assert label_count(samples) == whole


def test_the_published_form(tmp_path):
    path = tmp_path / "labels.txt"
    path.write_bytes(b"\xef\xbb\xbf19-198-0000 0 0 40\r\n\r\n19-198-0001 7\r\n")
    labels = read_frame_labels(path)
    assert {key: value.tolist() for key, value in labels.items()} == {
        "19-198-0000": [0, 0, 40], "19-198-0001": [7],
    }  # fmt: skip


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("a 0 41", r"line 1 \(a\): label 41 is outside 0 \.\.\. 40"),
        ("a 0\nb -1", r"line 2 \(b\): label -1"),
        ("a 0\na 1", "line 2: a is given twice"),
        ("a", "line 1: a has no labels"),
        ("a 1.5", "no whole number"),
        ("", "holds no labels"),
    ],
)
def test_what_is_no_label_is_named_with_its_line(tmp_path, text, why):
    (tmp_path / "labels.txt").write_text(text)
    with pytest.raises(DataError, match=why):
        read_frame_labels(tmp_path / "labels.txt")


def test_phone_names(tmp_path):
    path = tmp_path / "phones.txt"
    path.write_text("0 SIL\n1 SPN assumed\n2 S\n")
    assert read_phone_names(path) == ("SIL", "SPN", "S")
    for text in ("0 SIL\n2 S\n", "0 SIL\n0 S\n", "SIL 0\n", ""):
        path.write_text(text)
        with pytest.raises(DataError):
            read_phone_names(path)


def test_segments_and_labels_are_two_forms_of_one(tmp_path):
    generator = np.random.default_rng(0)
    names = tuple("abcde")
    numbers = {name: i for i, name in enumerate(names)}
    for _ in range(50):
        labels = generator.integers(0, 5, generator.integers(1, 40))
        segments = segments_from_labels(labels, names)
        assert all(a.end == b.start and a.phone != b.phone for a, b in pairwise(segments))
        back = labels_from_segments(segments, len(labels), numbers)
        assert np.array_equal(back, labels)
    gaps = labels_from_segments([Segment("b", 0.015, 0.035)], 5, numbers)
    assert gaps.tolist() == [-1, -1, 1, 1, -1]  # at 0, 10, ... ms: 20 and 30 lie inside
    with pytest.raises(DataError, match="'x' has no number"):
        labels_from_segments([Segment("x", 0, 1)], 5, numbers)


def test_segments_from_json_lines(tmp_path):
    word = ["hi", 0.0, 0.3, [["HH", 0.0, 0.1], ["AY", 0.1, 0.3]]]
    line = json.dumps({"utt": "u", "words": [word, ["", 0.3, 0.4, [["SIL", 0.3, 0.4]]]]})
    (tmp_path / "a.jsonl").write_text(line)
    (tmp_path / "a.jsonl.gz").write_bytes(gzip.compress(line.encode()))
    for name in ("a.jsonl", "a.jsonl.gz"):
        found = read_segments(tmp_path / name)["u"]
        assert found == (
            Segment("HH", 0.0, 0.1), Segment("AY", 0.1, 0.3), Segment("SIL", 0.3, 0.4),
        )  # fmt: skip
    (tmp_path / "a.jsonl").write_text(line + "\n{}")
    with pytest.raises(DataError, match="line 2"):
        read_segments(tmp_path / "a.jsonl")


@pytest.mark.shared_data
def test_the_shared_labels_are_their_segments(shared_data):
    root = shared_data / "speech"
    if not root.is_dir():
        pytest.skip("no speech in the shared data")
    labels = read_frame_labels(root / "converted_aligned_phones.txt")
    names = read_phone_names(root / "phones.txt")
    assert (len(labels), len(names)) == (220, PHONES)
    numbers = {name: i for i, name in enumerate(names)}
    segments = read_segments(root / "alignments.jsonl.gz")
    for key, mine in labels.items():
        assert np.array_equal(labels_from_segments(segments[key], len(mine), numbers), mine)
    assert sum(map(len, labels.values())) == 213_806

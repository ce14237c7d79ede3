"""Sounds in: every file is made here, so what it holds is known."""

import io
import struct
import tarfile
from pathlib import Path

import numpy as np
import pytest
import soundfile
import torch

from relatum.data import DataError
from relatum.data.audio import (
    Place,
    cut_windows,
    list_sounds,
    open_corpus,
    read_ids,
    read_sound,
    read_speakers,
    unit_windows,
)

RATE = 16000


def tone(hertz, seconds=1.0, rate=RATE, level=0.5):
    return (level * np.sin(2 * np.pi * hertz * np.arange(round(seconds * rate)) / rate)).astype(
        np.float32
    )


def write(path, samples, rate=RATE, **kind):
    path.parent.mkdir(parents=True, exist_ok=True)
    soundfile.write(path, samples, rate, **kind)
    return path


def wav_bytes(frames, claimed):
    """A 16-bit WAV of `frames` zeros whose header claims so many bytes."""
    form = struct.pack("<IHHIIHH", 16, 1, 1, RATE, 2 * RATE, 2, 16)
    data = b"data" + struct.pack("<I", claimed) + bytes(2 * frames)
    return b"RIFF" + struct.pack("<I", 36 + claimed) + b"WAVEfmt " + form + data


def corpus_of(root, **options):
    return open_corpus(list_sounds([root])[0], **options)


# Reading


@pytest.mark.parametrize("suffix", ["wav", "flac", "ogg", "mp3"])
def test_every_format_gives_the_tone(tmp_path, suffix):
    path = write(tmp_path / f"a.{suffix}", tone(440))
    samples = read_sound(Place(path), rate=RATE, channels="error")
    assert samples.dtype == np.float32
    assert len(samples) == RATE
    assert np.abs(np.fft.rfft(samples)).argmax() == 440
    assert np.corrcoef(samples, tone(440))[0, 1] > 0.99


@pytest.mark.parametrize("rate", [8000, 11025, 22050, 44100, 48000])
def test_mixed_rates_become_one(tmp_path, rate):
    write(tmp_path / "a.wav", tone(440, rate=rate), rate)
    write(tmp_path / "b.wav", tone(440), RATE)
    corpus = corpus_of(tmp_path)
    assert [utterance.frames for utterance in corpus.utterances] == [RATE, RATE]
    for i in range(2):
        samples = corpus.read(i)
        assert len(samples) == RATE
        assert abs(np.abs(np.fft.rfft(samples)).argmax() - 440) <= 2
    # soxr's filter is flat there: but for the ends the two are one signal.
    middle = slice(1000, -1000)
    assert np.abs(corpus.read(0)[middle] - corpus.read(1)[middle]).max() < 1e-3
    assert f"1 of {rate} Hz" in corpus.notes[0]


@pytest.mark.parametrize("rate", [7000, 8000, 11025, 44100, 48000])
@pytest.mark.parametrize("frames", [7, 100, 999, 44101])
def test_lengths_after_resampling_are_known_beforehand(tmp_path, rate, frames):
    write(tmp_path / "a.wav", np.full(frames, 0.1), rate)
    corpus = corpus_of(tmp_path, check=False)
    assert len(corpus.read(0)) == corpus.utterances[0].frames


@pytest.mark.parametrize("rate", [RATE, 8000])
@pytest.mark.parametrize("suffix", ["wav", "flac"])
def test_a_part_is_a_part_of_the_whole(tmp_path, rate, suffix):
    noise = np.random.default_rng(0).normal(0, 0.1, rate)
    write(tmp_path / f"a.{suffix}", noise, rate)
    corpus = corpus_of(tmp_path)
    whole = corpus.read(0)
    for start, frames in [(0, 10), (1234, 4321), (RATE - 7, 7)]:
        assert np.array_equal(corpus.read(0, start, frames), whole[start : start + frames])


def test_channels_are_a_policy_and_never_guessed(tmp_path):
    left, right = tone(440), tone(700)
    path = Place(write(tmp_path / "a.wav", np.stack([left, right], 1), subtype="FLOAT"))
    mean = read_sound(path, rate=RATE, channels="mean")
    assert np.allclose(mean, (left + right) / 2, atol=1e-7)
    assert np.array_equal(read_sound(path, rate=RATE, channels="first"), left)
    with pytest.raises(DataError, match=r"a\.wav has 2 channels; .*--channels"):
        read_sound(path, rate=RATE, channels="error")
    assert any("several channels" in note for note in corpus_of(tmp_path).notes)


def test_float_files_are_taken_as_they_are(tmp_path):
    loud = 3 * tone(100)
    path = write(tmp_path / "a.wav", loud, subtype="FLOAT")
    assert np.array_equal(read_sound(Place(path), rate=RATE, channels="mean"), loud)


# Bad files


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (wav_bytes(0, 0), "holds no samples"),
        (wav_bytes(0, 88_200), "holds no samples"),  # 44 bytes with a wrong length field
        (b"no sound at all" * 100, "cannot be decoded"),
        (b"", "cannot be decoded"),
    ],
)
def test_a_bad_file_is_named_or_left_out_and_counted(tmp_path, data, why):
    for i in range(9):
        write(tmp_path / f"good{i}.wav", tone(440, 0.1))
    (tmp_path / "bad.wav").write_bytes(data)
    with pytest.raises(DataError, match=rf"bad\.wav {why}"):
        corpus_of(tmp_path)
    corpus = corpus_of(tmp_path, on_bad_file="skip")
    assert len(corpus) == 9
    assert corpus.skipped[0].id == "bad"
    assert "kept 9 of 10" in corpus.notes[0]


def test_damage_behind_the_header_is_found_by_the_check(tmp_path):
    noise = np.random.default_rng(0).normal(0, 0.1, RATE)
    path = write(tmp_path / "bad.flac", noise)
    path.write_bytes(path.read_bytes()[:8000])
    with pytest.raises(DataError, match=r"bad\.flac cannot be decoded"):
        corpus_of(tmp_path)
    corpus = corpus_of(tmp_path, check=False)
    with pytest.raises(DataError, match=r"bad\.flac"):
        corpus.read(0)
    with pytest.raises(ValueError, match="must decode every file"):
        corpus_of(tmp_path, check=False, on_bad_file="skip")


def test_nothing_left_is_an_error(tmp_path):
    (tmp_path / "a.wav").write_bytes(wav_bytes(0, 0))
    with pytest.raises(DataError, match=r"no sound is left of 1; the first: .*a\.wav"):
        corpus_of(tmp_path, on_bad_file="skip")


def test_a_nan_is_named_with_its_place(tmp_path):
    samples = tone(440)
    samples[7] = np.nan
    write(tmp_path / "a.wav", samples, subtype="FLOAT")
    with pytest.raises(DataError, match=r"a\.wav: sample 7 is nan"):
        corpus_of(tmp_path)


def test_silence_and_clipping_are_kept_and_counted(tmp_path):
    write(tmp_path / "silent.wav", np.zeros(RATE))
    write(tmp_path / "clipped.wav", np.clip(4 * tone(100), -1, 1))
    write(tmp_path / "clean.wav", tone(441))
    corpus = corpus_of(tmp_path)
    assert len(corpus) == 3
    assert not corpus.read(2).any()
    assert any("1 sounds are silent" in note for note in corpus.notes)
    assert any("1 sounds are clipped, the first: clipped" in note for note in corpus.notes)


# Listing


def test_the_layout_of_librispeech_gives_ids_and_speakers(tmp_path):
    for name in ("19/198/19-198-0000", "19/198/19-198-0003", "1688/142285/1688-142285-0001"):
        write(tmp_path / "LibriSpeech" / "dev" / f"{name}.flac", tone(300, 0.1))
    (tmp_path / "LibriSpeech" / "dev" / "19" / "198" / "19-198.trans.txt").write_text("x")
    (tmp_path / "LibriSpeech" / ".DS_Store").write_text("x")
    sounds, notes = list_sounds([tmp_path])
    assert [(s.id, s.speaker) for s in sounds] == [
        ("19-198-0000", "19"), ("19-198-0003", "19"), ("1688-142285-0001", "1688"),
    ]  # fmt: skip
    assert notes == ("ignored: files that are not sounds, .txt (1)",)


def test_a_tar_and_its_folder_are_the_same_corpus(tmp_path):
    folder = tmp_path / "sounds"
    for name, hertz in (("ann/a", 300), ("ann/ü b", 400), ("bob/x/c", 500)):
        write(folder / f"{name}.FLAC", tone(hertz, 0.2))
    with tarfile.open(tmp_path / "sounds.tar", "w") as archive:
        archive.add(folder, "sounds")
    loose, packed = corpus_of(folder), corpus_of(tmp_path / "sounds.tar")
    assert [u.id for u in loose.utterances] == ["ann/a", "ann/ü b", "bob/x/c"]
    assert [u.speaker for u in loose.utterances] == ["ann", "ann", "bob"]
    for i in range(3):
        mine, theirs = loose.utterances[i], packed.utterances[i]
        assert (mine.id, mine.speaker, mine.frames) == (theirs.id, theirs.speaker, theirs.frames)
        assert np.array_equal(loose.read(i, 100, 500), packed.read(i, 100, 500))


def test_a_table_says_who_speaks(tmp_path):
    for name in ("a", "sub/b"):
        write(tmp_path / "s" / f"{name}.wav", tone(300, 0.1))
    table = tmp_path / "speakers.csv"
    table.write_bytes(b'\xef\xbb\xbffile,speaker\r\na.wav,ann\r\nsub\\b.wav,"bob, jr"\r\n\r\n')
    speakers = read_speakers(table)
    assert speakers == {"a": "ann", "sub/b": "bob, jr"}
    sounds, _ = list_sounds([tmp_path / "s"], speakers=speakers)
    assert [sound.speaker for sound in sounds] == ["ann", "bob, jr"]
    with pytest.raises(DataError, match=r"table of speakers lacks 'a'"):
        list_sounds([tmp_path / "s"], speakers={"sub/b": "bob"})
    table.write_text("file,speaker\na,ann\na,bob\n")
    with pytest.raises(DataError, match="line 3: a is given twice"):
        read_speakers(table)
    table.write_text("name,who\na,ann\n")
    with pytest.raises(DataError, match="columns: file, speaker"):
        read_speakers(table)


def test_only_some_ids(tmp_path):
    for name in "abc":
        write(tmp_path / f"{name}.wav", tone(300, 0.1))
    (tmp_path / "ids.txt").write_bytes(b"\xef\xbb\xbfc\r\na\r\n\r\n")
    ids = read_ids(tmp_path / "ids.txt")
    assert ids == ["c", "a"]
    assert [sound.id for sound in list_sounds([tmp_path], only=ids)[0]] == ["a", "c"]
    with pytest.raises(DataError, match="there is no sound 'd'"):
        list_sounds([tmp_path], only=["d"])


def test_what_cannot_be_listed_is_said(tmp_path):
    with pytest.raises(DataError, match="there is no file or folder"):
        list_sounds([tmp_path / "nowhere"])
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match="holds no sounds"):
        list_sounds([tmp_path / "empty"])
    for name, why in [("a.tar.gz", "is compressed"), ("a.zip", "neither"), ("a.tar", "as a tar")]:
        (tmp_path / name).write_bytes(b"junk" * 1000)
        with pytest.raises(DataError, match=why):
            list_sounds([tmp_path / name])
    for part in "xy":
        write(tmp_path / part / "1-2-3.wav", tone(300, 0.1))
    with pytest.raises(DataError, match=r"two sounds have the id 1-2-3: .*x.*y"):
        list_sounds([tmp_path / "x", tmp_path / "y"])


# Windows


def test_windows_lie_side_by_side(tmp_path):
    ramp = (np.arange(1050) / 2**15).astype(np.float32)  # every sample tells its place
    write(tmp_path / "ann" / "a.wav", ramp)
    write(tmp_path / "bob" / "b.wav", -ramp[:300])
    windows = cut_windows(corpus_of(tmp_path), 100)
    assert len(windows) == 10 + 3
    assert windows.speaker.tolist() == [0] * 10 + [1] * 3
    batch = (windows.read(torch.tensor([0, 9, 12])) * 2**15).round().long()
    assert batch[0].tolist() == list(range(100))
    assert batch[1].tolist() == list(range(900, 1000))
    assert batch[2].tolist() == [-i for i in range(200, 300)]


def test_shifts_reach_every_sample_and_nothing_else(tmp_path):
    ramp = (np.arange(1050) / 2**15).astype(np.float32)
    write(tmp_path / "a.wav", ramp)
    windows = cut_windows(corpus_of(tmp_path), 100)
    generator = torch.Generator().manual_seed(0)
    firsts = torch.cat([
        (windows.read(torch.full((50,), 9), generator)[:, [0, -1]] * 2**15).round().long()
        for _ in range(20)
    ])  # fmt: skip
    assert set(firsts[:, 0].tolist()) == set(range(900, 951))  # uniform over 51: all are met
    assert (firsts[:, 1] - firsts[:, 0] == 99).all()
    again = windows.read(torch.full((50,), 9), torch.Generator().manual_seed(0))
    assert torch.equal(again, windows.read(torch.full((50,), 9), torch.Generator().manual_seed(0)))


def test_short_clips_are_left_out_or_padded_and_counted(tmp_path):
    for name, frames in (("a", 368), ("b", 400), ("c", 900)):
        write(tmp_path / f"{name}.wav", np.full(frames, 0.5))
    corpus = corpus_of(tmp_path)
    windows = cut_windows(corpus, 400)
    assert windows.utterance.tolist() == [1, 2, 2]
    assert "kept 2 of 3" in windows.notes[0]
    padded = cut_windows(corpus, 400, "pad")
    assert padded.utterance.tolist() == [0, 1, 2, 2]
    assert "padded" in padded.notes[0]
    first = padded.read(torch.tensor([0]), torch.Generator())[0]
    assert (first[:368] == 0.5).all()
    assert not first[368:].any()
    with pytest.raises(DataError, match=r"all 3 sounds are shorter than 1000 .*longest has 900"):
        cut_windows(corpus, 1000)


def test_nothing_of_a_corpus_is_held(tmp_path):
    """A corpus far larger than what one window takes is opened and read in small memory."""
    import tracemalloc

    noise = np.random.default_rng(0).normal(0, 0.1, 60 * RATE)
    for i in range(8):
        write(tmp_path / f"{i}.wav", noise)
    windows = cut_windows(corpus_of(tmp_path, check=False), 20480)
    tracemalloc.start()
    windows.read(torch.arange(0, len(windows), 40))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < noise.nbytes / 8  # of one file of eight


def test_a_member_of_a_tar_is_read_from_its_place(tmp_path):
    with tarfile.open(tmp_path / "a.tar", "w") as archive:
        for i in range(3):
            buffer = io.BytesIO()
            soundfile.write(buffer, np.full(100 + i, (i + 1) / 8), RATE, format="FLAC")
            member = tarfile.TarInfo(f"d/{i}.flac")
            member.size = len(buffer.getvalue())
            archive.addfile(member, io.BytesIO(buffer.getvalue()))
    corpus = corpus_of(tmp_path / "a.tar")
    assert [u.frames for u in corpus.utterances] == [100, 101, 102]
    assert [corpus.read(i).max() for i in range(3)] == [0.125, 0.25, 0.375]
    assert str(corpus.utterances[1].place) == f"{tmp_path / 'a.tar'}:d/1.flac"


@pytest.mark.shared_data
def test_the_shared_corpus(shared_data: Path):
    root = shared_data / "speech"
    if not root.is_dir():
        pytest.skip("no speech in the shared data")
    ids = read_ids(root / "train_split.txt")
    places = [root / "LibriSpeech", root / "train-clean-100_3spk.tar"]
    sounds, _ = list_sounds(places, only=ids)
    corpus = open_corpus(sounds, check=False)
    assert len(corpus) == 176
    assert len(corpus.speakers) == 13
    whole = open_corpus(list_sounds(places)[0], check=False)
    assert round(whole.seconds / 60, 1) == 35.7  # 12.8 + 22.9 minutes
    crops = open_corpus(list_sounds([root / "train-clean-100_251spk_6s.tar"])[0], check=False)
    assert len(crops.speakers) == len(crops) == 251


def test_unit_windows_against_a_loop():
    """Mean 0 and variance 1 in each window by itself, whatever its loudness; silence stays 0."""
    windows = torch.tensor([[1.0, 2.0, 6.0], [0.01, 0.02, 0.06], [0.0, 0.0, 0.0], [0.5, 0.5, 0.5]])
    found = unit_windows(windows.double())
    for row, scaled in zip(windows.double().tolist(), found.tolist(), strict=True):
        mean = sum(row) / 3
        deviation = (sum((x - mean) ** 2 for x in row) / 3) ** 0.5
        expected = [(x - mean) / deviation if deviation > 0 else 0.0 for x in row]
        assert scaled == pytest.approx(expected)
    assert torch.allclose(found[0], found[1])

"""Bad recordings from end to end: short, empty, silent, of another rate, damaged."""

import numpy as np
import pytest
import soundfile
import torch

from relatum import cli
from relatum.runs import Run
from relatum.training import load_checkpoint

RATE = 16000
SMALL = (
    "--window 1600 --frame-dim 8 --context-dim 8 --look-ahead 2 --predictor linear --negatives 4"
    " --batches any --batch-size 2 --steps 2 --device cpu"
).split()


def noise(seed, frames):
    return np.random.default_rng(seed).normal(0, 0.1, frames)


@pytest.fixture
def sounds(tmp_path):
    """Nine good recordings of two speakers."""
    for i in range(9):
        path = tmp_path / "sounds" / ("ann", "bob")[i % 2] / f"{i}.wav"
        path.parent.mkdir(parents=True, exist_ok=True)
        soundfile.write(path, noise(i, 3000 + 100 * i), RATE)
    return tmp_path / "sounds"


def train(sounds, out, *words):
    return cli.main(["train", "speech", "--data", str(sounds), "--out", str(out), *SMALL, *words])


def embedded(out):
    assert cli.main(["embed", "speech", str(out)]) == 0
    with np.load(out / "embeddings" / "frames.npz") as found:
        return dict(found)


def weights(out):
    return load_checkpoint(Run.open(out).checkpoint)["modules"]["network"]


def test_short_clips_touch_nobody_else(sounds, tmp_path, capsys):
    """Left out and counted; whatever else is trained and embedded is the same to the bit."""
    assert train(sounds, tmp_path / "without") == 0
    before = embedded(tmp_path / "without")
    soundfile.write(sounds / "ann" / "short.wav", noise(99, 368), RATE)
    assert train(sounds, tmp_path / "with") == 0
    assert "kept 9 of 10" in capsys.readouterr().out
    card = Run.open(tmp_path / "with").read_json("data.json")
    assert any("kept 9 of 10" in note for note in card["notes"])
    ours, theirs = weights(tmp_path / "with"), weights(tmp_path / "without")
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)
    after = embedded(tmp_path / "with")
    assert "1 too short for a frame" in capsys.readouterr().out
    assert np.array_equal(after["features"], before["features"])
    assert train(sounds, tmp_path / "padded", "--short", "pad") == 0
    card = Run.open(tmp_path / "padded").read_json("data.json")
    assert any("1 sounds shorter" in note and "padded" in note for note in card["notes"])


def test_nothing_but_short_clips(tmp_path, capsys):
    (tmp_path / "s").mkdir()
    for i in range(5):
        soundfile.write(tmp_path / "s" / f"{i}.wav", noise(i, 300 + i), RATE)
    assert train(tmp_path / "s", tmp_path / "run") == 1
    said = capsys.readouterr().err
    assert "no window is left: all 5 sounds are shorter than 1600 samples (the longest has" in said
    assert not (tmp_path / "run").exists()
    soundfile.write(tmp_path / "long.wav", noise(7, 16000), RATE)
    assert train(tmp_path / "long.wav", tmp_path / "run") == 0
    words = ["embed", "speech", str(tmp_path / "run"), "--data", str(tmp_path / "s")]
    assert cli.main(words) == 1
    assert "none of 5 recordings is long enough for a frame" in capsys.readouterr().err


def test_silence_is_legal_and_finite(sounds, tmp_path):
    for i in range(3):
        soundfile.write(sounds / "ann" / f"silent{i}.wav", np.zeros(3500), RATE)
    for objective in ("rpc", "cpc"):
        out = tmp_path / objective
        assert train(sounds, out, "--objective", objective, "--steps", "6", "--log-every", "1") == 0
        assert all(np.isfinite(line["loss"]) for line in Run.open(out).metrics())
        assert all(value.isfinite().all() for value in weights(out).values())
    assert np.isfinite(embedded(tmp_path / "rpc")["features"]).all()


def test_mixed_rates_are_heard_alike(tmp_path):
    """A tone of 440 Hz at 8 and at 16 kHz: as many frames, and the same features but for noise."""
    for rate in (8000, RATE):
        path = tmp_path / "s" / str(rate) / "a.wav"
        path.parent.mkdir(parents=True)
        soundfile.write(path, 0.5 * np.sin(2 * np.pi * 440 * np.arange(rate) / rate), rate)
    assert train(tmp_path / "s", tmp_path / "run") == 0
    card = Run.open(tmp_path / "run").read_json("data.json")
    assert any("resampled to 16000 Hz: 1 of 8000 Hz, 1 of 16000 Hz" in n for n in card["notes"])
    found = embedded(tmp_path / "run")
    one, other = (found["features"][found["utterance"] == i] for i in (0, 1))
    assert one.shape == other.shape
    assert np.abs(one - other)[5:-5].max() < 0.02 * np.abs(one).max()


@pytest.mark.parametrize("damage", ["junk", "cut"])
def test_the_file_is_named_wherever_it_is_met(sounds, tmp_path, damage, capsys):
    """Among ten, in a random order: before training, while training, in probe and embed."""
    assert train(sounds, tmp_path / "good") == 0
    bad = sounds / "bob" / "bad.flac"
    soundfile.write(bad, noise(11, 160_000), RATE)
    data = bad.read_bytes()
    bad.write_bytes(b"no sound" * 500 if damage == "junk" else data[: len(data) // 2])
    capsys.readouterr()
    jobs = [
        ["train", "speech", "--data", str(sounds), "--out", str(tmp_path / "bad"), *SMALL],
        ["probe", "speech", str(tmp_path / "good"), "--data", str(sounds)],
        ["embed", "speech", str(tmp_path / "good"), "--data", str(sounds)],
    ]
    if damage == "cut":  # the header is whole: without the check it is met in some step
        jobs.append([*jobs[0], "--no-check", "--steps", "40"])
    for words in jobs:
        assert cli.main(words) == 1
        said = capsys.readouterr().err
        assert "bob/bad.flac" in said
        assert "Traceback" not in said
    assert train(sounds, tmp_path / "skipped", "--on-bad-file", "skip") == 0
    card = Run.open(tmp_path / "skipped").read_json("data.json")
    assert [each["id"] for each in card["skipped"]] == ["bob/bad"]
    assert any("kept 9 of 10 sounds" in note for note in card["notes"])

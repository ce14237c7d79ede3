"""Probes of frozen frames, on sounds whose phones are tones and whose speakers are pitches."""

import base64
import io
from dataclasses import replace

import numpy as np
import pytest
import soundfile
import torch
from rich.console import Console
from sklearn.linear_model import LogisticRegression

from relatum import cli
from relatum.data.audio import label_count, list_sounds, open_corpus
from relatum.models import SpeechNetwork, SpeechSizes
from relatum.probes import ProbeResult, parameter_hash
from relatum.recipes.probe_speech import ProbeSpeech, main
from relatum.recipes.speech import TrainSpeech, trained_network
from relatum.recipes.speech.excerpt import Excerpt
from relatum.recipes.speech.features import context_features, mfcc_features
from relatum.recipes.speech.probing import ProbeSet, phone_probe, speaker_probes, split_of
from relatum.recipes.train_speech import main as train
from relatum.report.speech import unpacked
from relatum.runs import Run

QUIET = Console(quiet=True)
RATE = 16000
TONES = (500, 1100, 2300)


@pytest.fixture(scope="module")
def spoken(tmp_path_factory):
    """Three speakers of one loudness each, ten recordings of tones that change every 100 ms."""
    root = tmp_path_factory.mktemp("spoken")
    generator = np.random.default_rng(0)
    lines = []
    for speaker, level in {"ann": 0.6, "bob": 0.06, "cy": 0.006}.items():
        (root / "sounds" / speaker).mkdir(parents=True)
        for i in range(10):
            phones = generator.integers(0, 3, 8)
            hertz = np.repeat(np.array(TONES)[phones], RATE // 10)
            sound = level * np.sin(2 * np.pi * np.cumsum(hertz) / RATE)
            sound += level / 50 * generator.normal(0, 1, len(sound))
            soundfile.write(root / "sounds" / speaker / f"{i}.wav", sound, RATE, subtype="FLOAT")
            labels = np.repeat(phones, 10)[: label_count(len(sound))]
            lines.append(" ".join([f"{speaker}/{i}", *map(str, labels)]))
    (root / "labels.txt").write_text("\n".join(lines))
    return root


@pytest.fixture(scope="module")
def run(spoken, tmp_path_factory):
    out = tmp_path_factory.mktemp("runs") / "run"
    return train(
        TrainSpeech(
            data=str(spoken / "sounds"), window=3200, frame_dim=8, context_dim=8, look_ahead=2,
            predictor="linear", negatives=4, batch_size=2, steps=2, device="cpu", out=out,
        ),
        QUIET,
    )  # fmt: skip


def corpus_of(spoken):
    return open_corpus(list_sounds([spoken / "sounds"])[0])


def test_frames_of_windows_stand_where_they_were_heard(spoken):
    """Two whole windows and a rest give the frames that each of them gives alone."""
    network = SpeechNetwork(SpeechSizes(channels=8, context=8, steps=2, heads=2), 4800)
    corpus = corpus_of(spoken)
    samples = torch.from_numpy(corpus.read(0))
    found = context_features(network, 4800)(corpus, 0)
    assert len(found) == label_count(len(samples)) == 78
    for start in (0, 4800, 9600):
        alone = network(samples[None, start : start + 4800])[1][0].detach().numpy()
        here = found[start // 160 : start // 160 + 30]
        assert np.allclose(here, alone[: len(here)], atol=1e-6)


def test_splits_are_of_whole_utterances_or_whole_speakers(spoken):
    corpus = corpus_of(spoken)
    test, how = split_of(corpus, "utterance", None)
    held_out = [u.id for u, t in zip(corpus.utterances, test, strict=True) if t]
    assert held_out == [f"{who}/{i}" for who in ("ann", "bob", "cy") for i in (4, 9)]
    assert "6 of 30" in how
    test, _ = split_of(corpus, "speaker", ["bob"])
    assert {u.speaker for u, t in zip(corpus.utterances, test, strict=True) if t} == {"bob"}
    with pytest.raises(ValueError, match="held-out speaker 'dan' is not among the 3"):
        split_of(corpus, "speaker", ["dan"])
    with pytest.raises(ValueError, match="30 of 30 utterances are held out"):
        split_of(corpus, "speaker", ["ann", "bob", "cy"])


def test_tones_and_loudness_are_read_off_mfcc(spoken):
    """What these sounds are made of is in MFCC, so the probes must find it nearly always."""
    corpus = corpus_of(spoken)
    lines = [line.split() for line in (spoken / "labels.txt").read_text().splitlines()]
    labels = {name: np.array(values, dtype=int) for name, *values in lines}
    ordered = [labels[u.id] for u in corpus.utterances]
    test, _ = split_of(corpus, "utterance", None)
    data = ProbeSet.of(corpus, mfcc_features(), test)
    phones = phone_probe(data, ordered, ["a", "b", "c"], 0)
    assert phones.accuracy > 0.9  # frames that straddle two tones are the rest
    assert phones.n_test == 6 * 78
    window, utterance = speaker_probes(data, 20, 0)
    assert window.accuracy == 1.0
    assert utterance.accuracy > 0.5  # of 24 rows in 39 dimensions; chance is a third
    assert (window.n_test, utterance.n_test) == (6 * 3, 6)
    (later,) = speaker_probes(data, 20, 0, in_time=True)
    assert later.n_test == 30  # of three windows the last
    shuffled = [np.random.default_rng(i).permutation(y) for i, y in enumerate(ordered)]
    assert phone_probe(data, shuffled, ["a", "b", "c"], 0).accuracy < 0.5
    with pytest.raises(ValueError, match="'bob' is tested but never trained"):
        speaker_probes(replace(data, test=split_of(corpus, "speaker", ["bob"])[0]), 20, 0)


def test_a_run_is_probed_beside_its_baselines(spoken, run, capsys):
    before = parameter_hash(trained_network(run))
    words = ["probe", "speech", str(run.path), "--labels", str(spoken / "labels.txt")]
    assert cli.main(words) == 0
    assert "39 MFCC" in capsys.readouterr().out
    payload = Run.open(run.path).read_json("results/probe.json")["payload"]
    rows = {(row["features"], row["probe"]): row for row in payload["rows"]}
    kinds = ("encoder", "untrained", "mfcc", "mfcc13")
    probes = ("phones, every frame", "speakers, window", "speakers, utterance")
    assert set(rows) == {(kind, probe) for kind in kinds for probe in probes}
    assert rows["mfcc", "phones, every frame"]["accuracy"] > 0.9
    assert set(payload["abx"]) == set(kinds)
    # Tones that move through a frame, and the two ends of a run, are what is left.
    assert payload["abx"]["mfcc"]["error"] < 0.1
    assert payload["card"]["encoder_hash_before"] == payload["card"]["encoder_hash_after"] == before
    assert "every fifth utterance" in payload["card"]["split"]
    assert "6 of 6 held-out recordings were in pre-training" in payload["notes"][-1]


def test_one_held_out_utterance_is_heard_and_seen(spoken, run):
    """After the probe above: sound, posteriors and phones beside the file, a refit, the labels."""
    drawn = run.read_json("results/utterance.json")["payload"]
    assert (drawn["id"], drawn["speaker"], drawn["held_out"]) == ("ann/4", "ann", True)
    assert drawn["seconds"] == drawn["whole_seconds"] == pytest.approx(0.8)
    heard, rate = soundfile.read(run.path / "results" / "utterance.flac")
    wrote, _ = soundfile.read(spoken / "sounds" / "ann" / "4.wav")
    assert rate == RATE
    assert np.abs(heard - wrote).max() < 2**-15
    lines = [line.split() for line in (spoken / "labels.txt").read_text().splitlines()]
    labels = {name: np.array(values, dtype=int) for name, *values in lines}
    assert drawn["phones"] == [str(i) for i in labels["ann/4"]]
    found = unpacked(drawn["posteriors"], "run")
    assert drawn["classes"] == ["0", "1", "2"]
    assert np.abs(found.sum(1) - 1).max() < 3 / 255
    corpus = corpus_of(spoken)
    test, _ = split_of(corpus, "utterance", None)
    data = ProbeSet.of(corpus, context_features(trained_network(run), 3200, normalize=True), test)
    ids = [u.id for u in corpus.utterances]
    x = np.concatenate([data.features[i] for i in np.flatnonzero(~test)]).astype(float)
    y = np.concatenate([labels[ids[i]] for i in np.flatnonzero(~test)])
    mean, scale = x.mean(0), x.std(0)
    (row,) = [
        row for row in run.read_json("results/probe.json")["payload"]["rows"]
        if (row["features"], row["probe"]) == ("encoder", "phones, every frame")
    ]  # fmt: skip
    refit = LogisticRegression(C=1 / (row["settings"]["regularisation"] * len(x)), max_iter=1000)
    refit.fit((x - mean) / scale, y)
    theirs = refit.predict_proba((data.features[ids.index("ann/4")] - mean) / scale)
    assert np.abs(found - theirs).max() < 0.03


def test_excerpts_are_short_and_never_clipped(spoken, tmp_path):
    """The first that lasts four seconds, cut there; a loud file is scaled, not cut off."""
    for i, (seconds, level) in enumerate([(1, 0.1), (6, 3.0), (9, 0.1)]):
        tone = level * np.sin(np.arange(seconds * RATE) / 9)
        soundfile.write(tmp_path / f"{i}.wav", tone, RATE, subtype="FLOAT")
    corpus = open_corpus(list_sounds([tmp_path])[0])
    excerpt = Excerpt.of(corpus, np.array([True, True, True]))
    assert excerpt.number == 1
    assert len(excerpt.samples) == 4 * RATE
    record = excerpt.record(np.random.default_rng(0).normal(size=(598, 5)))
    assert (record["seconds"], record["whole_seconds"]) == (4, 6)
    heard, _ = soundfile.read(io.BytesIO(base64.b64decode(record["sound"])))
    assert np.abs(heard - excerpt.samples / np.abs(excerpt.samples).max()).max() < 2**-14
    assert Excerpt.of(corpus, np.array([True, False, False])).number == 0
    spectrogram = unpacked(record["spectrogram"], "run")
    assert spectrogram.shape == (label_count(4 * RATE), 40)
    loudest = np.array(record["hertz"])[spectrogram.mean(0).argmax()]
    assert abs(loudest - RATE / 9 / (2 * np.pi)) < 50
    assert len(base64.b64decode(record["sound"])) < 4 * RATE * 2


def test_posteriors_are_those_of_the_utterance_that_is_drawn(tmp_path):
    """Behind other held-out ones, with frames that have no label, and fewer frames than labels."""
    for i in range(4):
        soundfile.write(tmp_path / f"{i}.wav", np.zeros(800 + 160 * i), RATE)
    corpus = open_corpus(list_sounds([tmp_path])[0])
    labels = [np.array(y) for y in ([0, 1, 0], [1, -1, 0, 2], [1, 1, 0, 0, 0], [2, -1, 0, 1, 1, 2])]
    lengths, test = [3, 4, 4, 5], np.array([False, True, True, True])
    rows = np.concatenate([
        y[:n][y[:n] >= 0] for y, n, t in zip(labels, lengths, test, strict=True) if t
    ])  # fmt: skip
    scores = 50.0 * np.eye(3)[rows]
    result = ProbeResult("linear", 1.0, None, 3, len(rows), 3, None, 0, classes=("a", "b", "c"))
    found = Excerpt(corpus, 3, True).phones(
        replace(result, scores=scores), test, labels, lengths, ["c", "a", "b"][::-1]
    )
    assert found["classes"] == ["b", "a", "c"]
    assert found["phones"] == ["c", None, "b", "a", "a"]
    sure = unpacked(found["posteriors"], "run")
    assert sure.argmax(1)[[0, 2, 3, 4]].tolist() == [2, 1, 0, 0]
    assert not sure[1].any()


def test_probes_by_speaker_and_in_time(spoken, run):
    by_speaker = ProbeSpeech(
        runs=[run.path], labels=spoken / "labels.txt", split="speaker",
        held_out=spoken / "who.txt",
    )  # fmt: skip
    (spoken / "who.txt").write_text("cy\n")
    (payload,) = main(by_speaker, QUIET)
    assert {row["probe"] for row in payload["rows"]} == {"phones, every frame"}
    for name, frames in (("short", 368), ("single", 5000)):
        soundfile.write(spoken / "sounds" / "ann" / f"{name}.wav", 0.1 * np.ones(frames), RATE)
    try:
        (payload,) = main(ProbeSpeech(runs=[run.path], split="time"), QUIET)
    finally:
        for name in ("short", "single"):
            (spoken / "sounds" / "ann" / f"{name}.wav").unlink()
    assert {row["probe"] for row in payload["rows"]} == {"speakers, window"}
    assert "last quarter" in payload["card"]["split"]
    assert "1 recordings are too short for a frame" in payload["notes"]
    for row in payload["rows"]:
        assert "2 of 32 utterances have one window or none" in row["warnings"]
        assert row["n_test"] == 30
    drawn = Run.open(run.path).read_json("results/utterance.json")["payload"]
    assert not drawn["held_out"]
    assert "phones" not in drawn
    with pytest.raises(ValueError, match="needs --labels"):
        ProbeSpeech(runs=[run.path], split="speaker")
    (spoken / "other.txt").write_text("nobody 0 1\n")
    with pytest.raises(ValueError, match="labels of none of 30 recordings"):
        main(ProbeSpeech(runs=[run.path], labels=spoken / "other.txt"), QUIET)


def test_labels_of_another_grid_are_refused_and_small_cuts_told(spoken, run, capsys):
    """78 frames of 10 ms: 76 to 80 labels go, more or fewer name file, line and utterance."""
    lines = (spoken / "labels.txt").read_text().splitlines()
    path = spoken / "cut.txt"
    words = ["probe", "speech", str(run.path), "--labels", str(path), "--abx-items", "0"]
    name, *labels = lines[3].split()
    for wrong in (labels[:75], labels * 2, [*labels, "0", "0", "0"]):
        path.write_text("\n".join([*lines[:3], "", " ".join([name, *wrong]), *lines[4:]]))
        for command in (words, ["embed", "speech", str(run.path), "--labels", str(path)]):
            assert cli.main(command) == 1
            told = " ".join(capsys.readouterr().err.split())
            assert f"cut.txt line 5: utterance {name} has {len(wrong)} labels" in told
            assert "0.80 s need 78" in told
    path.write_text("\n".join([*lines[:3], " ".join(lines[3].split()[:-2]), *lines[4:]]))
    assert cli.main(words) == 0
    note = "labels and frames of 1 recordings differ by one or two: cut to the shorter"
    assert f"note: {note}" in capsys.readouterr().out
    assert note in run.read_json("results/probe.json")["payload"]["notes"]

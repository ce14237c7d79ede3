"""Labels of windows, and the network that is trained with them."""

import json
from dataclasses import replace

import numpy as np
import pytest
import soundfile
import torch
from rich.console import Console
from torch import nn

from relatum.data.audio import cut_windows, list_sounds, open_corpus
from relatum.models import SpeechNetwork, SpeechSizes
from relatum.recipes.speech import TrainSpeech, supervised
from relatum.recipes.speech.supervised import LabelStep, frame_labels_at, train_supervised
from relatum.runs import RunError
from relatum.training import Plan

SIZES = SpeechSizes(channels=8, context=8, steps=2, predictor="linear")


@pytest.mark.parametrize("first", [0, 79, 80, 81, 160, 239, 240, 1000])
def test_a_frame_has_the_label_that_is_nearest_to_it(first):
    labels = np.arange(12)
    for frame, found in enumerate(frame_labels_at(labels, first, 10)):
        distances = [abs(160 * label - (first + 160 * frame)) for label in range(40)]
        nearest = int(np.argmin(distances))
        ties = {i for i, d in enumerate(distances) if d == distances[nearest]}
        allowed = {i if i < 12 else -1 for i in ties}
        assert found in allowed


@pytest.fixture(scope="module")
def windows(tmp_path_factory):
    """Two speakers; the phones are a low and a high tone in turn."""
    root = tmp_path_factory.mktemp("tones")
    generator = np.random.default_rng(0)
    for speaker in ("ann", "bob"):
        (root / speaker).mkdir()
        for i in range(4):
            hertz = np.repeat([300, 2500] * 5, 1600)
            sound = np.sin(2 * np.pi * np.cumsum(hertz) / 16000)
            sound += 0.05 * generator.normal(0, 1, len(sound))
            soundfile.write(root / speaker / f"{i}.wav", 0.3 * sound, 16000, subtype="FLOAT")
    return cut_windows(open_corpus(list_sounds([root])[0]), 3200)


def phones(windows):
    """Labels of each utterance: a tone lasts ten frames."""
    return [np.tile(np.repeat([0, 1], 10), 5) for _ in windows.corpus.utterances]


def test_windows_are_read_where_they_are_said_to_begin(windows):
    rows = torch.tensor([0, 3, 7])
    first = windows.first_samples(rows, torch.Generator().manual_seed(5))
    here = windows.read_at(rows, first)
    assert torch.equal(here, windows.read(rows, torch.Generator().manual_seed(5)))
    for i, row in enumerate(rows.tolist()):
        whole = windows.corpus.read(int(windows.utterance[row]))
        assert np.array_equal(here[i].numpy(), whole[first[i] : first[i] + 3200])


def test_the_loss_is_the_mean_cross_entropy_of_labelled_frames(windows):
    network, classifier = SpeechNetwork(SIZES, 3200), nn.Linear(8, 2)
    labels = [each[:25] for each in phones(windows)]  # the rest is not labelled
    rows = torch.tensor([0, 1, 2])
    found = LabelStep(network, classifier, windows, labels, False)(rows, 3).loss
    first = windows.first_samples(rows, torch.Generator().manual_seed(3))
    contexts = network(windows.read_at(rows, first))[1].detach().double()
    w, b = classifier.weight.detach().double(), classifier.bias.detach().double()
    losses = []
    for i, start in enumerate(first.tolist()):
        for frame in range(20):
            label = (start + 160 * frame + 80) // 160
            if label < 25:
                scores = w @ contexts[i, frame] + b
                losses.append(-torch.log_softmax(scores, 0)[labels[0][label]])
    assert 20 < len(losses) < 60
    assert float(found.detach()) == pytest.approx(float(torch.stack(losses).mean()), abs=1e-5)


@pytest.mark.parametrize("target", ["phones", "speakers"])
def test_a_supervised_network_learns_and_a_killed_run_goes_on(windows, tmp_path, target):
    labels = phones(windows) if target == "phones" else None
    settings = TrainSpeech(
        data="tones", window=3200, frame_dim=8, context_dim=8, look_ahead=2, predictor="linear",
        learning_rate=0.01,
    )  # fmt: skip
    quiet = Console(quiet=True)

    def plan(steps):
        return Plan(rows=len(windows), batch_size=8, steps=steps, learning_rate=0.01,
                    warmup_steps=0, seed=0, log_every=1, constant_rate=True)  # fmt: skip

    through = train_supervised(settings, plan(60), windows, labels, tmp_path / "a", quiet)
    for steps in (20, 60):
        again = train_supervised(settings, plan(steps), windows, labels, tmp_path / "b", quiet)
    for (name, a), b in zip(
        through.encoder.state_dict().items(), again.encoder.state_dict().values(), strict=True
    ):
        assert torch.equal(a, b), name
    lines = (tmp_path / "a" / "metrics.jsonl").read_text().splitlines()
    with (tmp_path / "b" / "metrics.jsonl").open("a") as log:  # a kill between log and checkpoint
        log.write('{"step": 61, "loss": 1.0}\n')
    train_supervised(settings, plan(60), windows, labels, tmp_path / "b", quiet)
    logged = (tmp_path / "b" / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(line)["step"] for line in logged] == list(range(1, 61))
    accuracy = [float(line.split('"accuracy": ')[1].split(",")[0]) for line in lines]
    if target == "phones":  # two tones are told apart; the two speakers sound alike
        assert max(accuracy[-5:]) > 0.9 > accuracy[0]


SETTINGS = TrainSpeech(
    data="tones", window=3200, frame_dim=8, context_dim=8, look_ahead=2, predictor="linear"
)
PLAN = Plan(rows=8, batch_size=4, steps=1, learning_rate=0.01, warmup_steps=0, seed=0)


def test_a_run_is_continued_only_with_its_settings_targets_and_recordings(windows, tmp_path):
    def go(settings=SETTINGS, labels=None, windows=windows):
        return train_supervised(
            settings, PLAN, windows, labels, tmp_path / "run", Console(quiet=True)
        )

    first = go().encoder.state_dict()
    assert all(torch.equal(a, b) for a, b in zip(first.values(), go().encoder.state_dict().values(),
                                                 strict=True))  # fmt: skip
    with pytest.raises(RunError, match=r"other settings \(seed: 0 then, seed: 1 now\)"):
        go(replace(SETTINGS, seed=1))
    with pytest.raises(RunError, match="supervised: speakers then, supervised: phones now"):
        go(labels=phones(windows))
    fewer = replace(windows.corpus, utterances=windows.corpus.utterances[1:])
    with pytest.raises(RunError, match="8 of 2 speakers then, 7 of 2 now"):
        go(windows=cut_windows(fewer, 3200))


@pytest.mark.parametrize("target", ["phones", "speakers"])
def test_network_batches_and_labels_are_on_the_device_of_the_settings(
    windows, tmp_path, monkeypatch, target
):
    """torch's meta device computes shapes alone, and refuses to mix with the CPU as a GPU does."""
    losses = []

    def one_step(step, state, plan, run, monitor):
        losses.append(step(*next(plan.batches(0))).loss)
        losses[-1].backward()
        assert {p.device.type for p in state.parameters()} == {"meta"}

    monkeypatch.setattr(supervised, "found_device", lambda name: {"cuda": "meta"}[name])
    monkeypatch.setattr(supervised, "train_steps", one_step)
    labels = phones(windows) if target == "phones" else None
    train_supervised(
        replace(SETTINGS, device="cuda"), PLAN, windows, labels, tmp_path / "run",
        Console(quiet=True),
    )  # fmt: skip
    assert losses[0].device.type == "meta"

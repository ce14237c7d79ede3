"""The speech reproductions on made voices, in the layout of the published split."""

import json
from pathlib import Path

import numpy as np
import pytest
import soundfile
import yaml

from relatum import cli
from relatum.data.audio import label_count
from relatum.recipes.speech import build_networks, experiment
from relatum.recipes.speech.experiment import PRESETS, SpeechFolder, training_of
from relatum.recipes.speech.features import mfcc_features
from relatum.recipes.speech.table_page import write_table_page
from relatum.settings import SettingsError

RATE = 16000
CONFIG = Path(__file__).resolve().parents[2] / "configs" / "speech-cpu.yaml"
TINY = {
    "window": 3200, "frame_dim": 8, "context_dim": 8, "look_ahead": 2, "predictor": "linear",
    "negatives": 4, "temperature": 3.0, "batches": "any", "batch_size": 4, "epochs": 1.0,
    "learning_rate": 0.002, "device": "cpu",
}  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Three speakers of one loudness each, five utterances of tones; every fifth is held out."""
    root = tmp_path_factory.mktemp("speech")
    generator = np.random.default_rng(0)
    labels, sides = [], {"train": [], "test": []}
    for speaker, loud in (("11", 0.6), ("12", 0.06), ("13", 0.006)):
        place = root / "LibriSpeech" / "part" / speaker / "1"
        place.mkdir(parents=True)
        for i in range(5):
            phones = generator.integers(0, 3, 8)
            hertz = np.repeat(np.array((500, 1100, 2300))[phones], RATE // 10)
            sound = loud * np.sin(2 * np.pi * np.cumsum(hertz) / RATE)
            sound += loud / 50 * generator.normal(0, 1, len(sound))
            name = f"{speaker}-1-{i:04}"
            soundfile.write(place / f"{name}.flac", sound, RATE)
            marks = np.repeat(phones, 10)[: label_count(len(sound))]
            labels.append(" ".join([name, *map(str, marks)]))
            sides["test" if i == 4 else "train"].append(name)
    (root / "converted_aligned_phones.txt").write_text("\n".join(labels))
    for side, names in sides.items():
        (root / f"{side}_split.txt").write_text("\n".join(names))
    return root


def reproduce(command, folder, tmp_path, *more):
    page = tmp_path / "page.md"
    code = cli.main([
        "reproduce", command, "--preset", "cpu", "--data", str(folder), "--jobs", "1", "--out",
        str(tmp_path / "out"), "--page", str(page), *more,
    ])  # fmt: skip
    assert code == 0
    return page.read_text(), json.loads(page.with_suffix(".json").read_text())


def test_every_row_of_the_table_is_measured_on_the_same_utterances(folder, tmp_path, monkeypatch):
    monkeypatch.setitem(PRESETS, "cpu", TINY)
    text, numbers = reproduce("speech-table", folder, tmp_path, "--seeds", "1", "--steps", "2")
    kinds = ("rpc", "cpc", "js", "supervised-phones", "supervised-speakers", "untrained")
    assert set(numbers["cells"]) == {f"{kind}-0" for kind in (*kinds, "mfcc13", "mfcc39")}
    for record in numbers["cells"].values():
        found = record["measures"]
        # Twelve training utterances, three of test: a share of 3 by utterance.
        assert found["speakers, utterance"] * 3 == pytest.approx(
            round(found["speakers, utterance"] * 3)
        )
        assert {"phones", "speakers, window", "abx"} < set(found)
    # Tones of one frequency each are what MFCC tell apart.
    assert numbers["cells"]["mfcc13-0"]["measures"]["phones"] > 0.9
    assert "RPC minus untrained network, phones" in text
    assert "not run" in text  # no tar of many speakers


def test_batch_sizes_of_speech(folder, tmp_path, monkeypatch):
    monkeypatch.setitem(PRESETS, "cpu", TINY)
    text, numbers = reproduce("speech-batch-size", folder, tmp_path, "--seeds", "1", "--steps", "1")
    assert set(numbers["cells"]) == {f"{k}-{n}-0" for k in ("rpc", "cpc") for n in (4, 8, 16)}
    rates = {n: numbers["cells"][f"rpc-{n}-0"]["plan"]["learning_rate"] for n in (4, 8, 16)}
    assert rates[16] / rates[4] == pytest.approx(2)
    assert set(numbers["cells"]["rpc-4-0"]["measures"]) == {"phones"}
    assert "each doubling" in text


def test_a_folder_without_a_split_is_told_what_belongs_there(folder, tmp_path):
    (tmp_path / "LibriSpeech").mkdir()
    with pytest.raises(
        SettingsError, match=r"has no converted_aligned_phones.txt; a speech folder"
    ):
        SpeechFolder(tmp_path)


def test_the_preset_is_that_of_the_config():
    config = yaml.safe_load(CONFIG.read_text(encoding="utf-8"))
    preset = {key: value for key, value in PRESETS["cpu"].items() if key != "device"}
    assert preset == config


def record(phones):
    return {"plan": {}, "created": "2026-01-01", "seconds": 1.0, "measures": {"phones": phones}}


@pytest.mark.parametrize(("cpc", "says"), [(0.40, "inside"), (0.30, "outside")])
def test_the_published_gain_is_compared_with_the_interval(cpc, says):
    records = {f"rpc-{seed}": record(0.45 + 0.001 * seed) for seed in range(3)}
    records |= {f"cpc-{seed}": record(cpc + 0.002 * seed) for seed in range(3)}
    records["mfcc13-0"] = record(0.5)
    text = write_table_page(records, page=None, command="c", jobs=1)
    assert f"Its gain is {says} this interval" in text
    assert "RPC is 4.9 points below 13 MFCC" in text


@pytest.mark.parametrize(("device", "threads"), [("cpu", 1), ("cuda", None)])
def test_a_network_is_measured_on_the_device_of_its_plan(folder, monkeypatch, device, threads):
    """The meta device stands for a GPU; features without weights for those of the network."""
    where = {"cpu": "cpu", "cuda": "meta"}
    seen = []

    def features(network, window, device="cpu", **more):
        seen.append((device, next(network.parameters()).device.type))
        return mfcc_features()

    monkeypatch.setattr(experiment, "found_device", where.get)
    monkeypatch.setattr(experiment, "context_features", features)
    here = SpeechFolder(folder)
    settings = training_of(
        {"kind": "cpc", **TINY, "device": device}, data=here.recordings, only=here.train_ids
    )
    assert settings.threads == threads
    experiment.measure(build_networks(settings).network, None, settings, here, only=("phones",))
    assert seen == [(where[device], where[device])]

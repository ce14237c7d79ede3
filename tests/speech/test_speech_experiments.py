"""The speech reproductions on made voices, in the layout of the published split."""

import json
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest
import soundfile
import yaml

from relatum import cli
from relatum.data.audio import label_count
from relatum.recipes.speech import TrainSpeech, build_networks, experiment
from relatum.recipes.speech.experiment import PRESETS, SpeechFolder, training_of
from relatum.recipes.speech.features import mfcc_features
from relatum.recipes.speech.table_page import write_table_page
from relatum.recipes.speech_batch_size import SpeechBatchSize, protocol_text
from relatum.recipes.speech_batch_size import cells_of as size_cells
from relatum.recipes.speech_table import SpeechTable
from relatum.recipes.speech_table import cells_of as table_cells
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


def records(measure="phones", **kinds):
    """Finished cells: of each kind its values by seed, in no order."""
    return {
        f"{kind}-{seed}": {
            "plan": {**asdict(TrainSpeech(seed=seed)), "kind": kind}, "created": "2026-01-01",
            "seconds": 1.0, "measures": {measure: value},
        }
        for kind, values in kinds.items()
        for seed, value in reversed(values.items())
    }  # fmt: skip


def findings(cells):
    text = write_table_page(cells, page=None, command="c", jobs=1)
    return [line.removeprefix("* ") for line in text.splitlines() if line.startswith("* ")]


@pytest.mark.parametrize(("cpc", "says"), [(0.40, "inside"), (0.30, "outside")])
def test_the_published_gain_is_compared_with_the_interval(cpc, says):
    mine = {seed: 0.45 + 0.001 * seed for seed in range(3)}
    (line,) = findings(records(rpc=mine, cpc={s: cpc + 0.002 * s for s in range(3)}))
    assert f"The paper has +4.8, {says} this interval." in line
    (line,) = findings(records(rpc={0: 0.45}, cpc={0: cpc}))
    assert line.endswith("not clear at these seeds. The paper has +4.8.")  # no interval to be in


def test_differences_are_of_the_seeds_that_both_have():
    """By hand: 10 and 2 are shared; seed 1 of one and seed 3 of the other are not, 4 is empty."""
    cells = records(
        rpc={1: 0.9, 2: 0.50, 4: 0.7, 10: 0.60}, cpc={2: 0.40, 3: 0.1, 4: None, 10: 0.48}
    )
    # Differences 0.10 and 0.12: mean 0.11, half width 12.706 times 0.01.
    assert findings(cells)[0].startswith(
        "RPC minus CPC, phones: +11.0 ± 12.7 points; the sign is not"
    )


@pytest.mark.parametrize(("spread", "sign"), [(0.01, "clear"), (0.02, "not clear at these seeds")])
def test_a_difference_from_features_without_weights_has_the_interval_over_seeds(spread, sign):
    """13 MFCC have one value; seeds do not share it, they are all compared with it."""
    mine = {0: 0.46 - spread, 1: 0.46, 7: 0.46 + spread}
    (line,) = findings(records(rpc=mine, mfcc13={0: 0.50}))
    half = 100 * 4.302653 * spread / 3**0.5
    assert line == f"RPC minus 13 MFCC, phones: -4.0 ± {half:.1f} points; the sign is {sign}."


def test_pages_say_what_their_preset_trains(folder, tmp_path):
    """In words that a reader of another preset, or of --steps, would find true of his cells."""
    here, said = SpeechFolder(folder), {}
    for preset, more in (("cpu", {}), ("paper", {}), ("paper", {"steps": 1500})):
        cells = table_cells(SpeechTable(preset=preset, seeds=1, **more), here)
        kept = {
            cell.name: {"plan": cell.plan, "created": "2026", "seconds": 1, "measures": {}}
            for cell in reversed(cells)
        }
        page = tmp_path / "page.md"
        write_table_page(kept, page=page, command="c", jobs=1)
        sizes = size_cells(SpeechBatchSize(preset=preset, seeds=1, **more), here)
        said[preset, *more] = (page.read_text(), protocol_text(sizes[0].plan))
        plans = {cell.plan["kind"]: cell.plan["batches"] for cell in cells}
        assert plans["supervised-phones"] == plans["supervised-speakers"] == "any"
    table, sizes = said["cpu",]
    assert "64 channels, LSTM, linear predictors; batches of 8 windows of 1.28 s, of any" in table
    assert "; 10 epochs)" in table
    assert "the same updates and batches" in table
    assert "how many updates an epoch has. Each training has 5 epochs" in sizes
    assert "(64 channels, LSTM, linear predictors)" in sizes
    table, sizes = said["paper",]
    assert "256 channels, LSTM, transformer predictors; batches of 8" in table
    assert "all of one speaker; 200 epochs)" in table
    assert "as many epochs, but batches of any speakers" in table
    assert "in a batch, all of one speaker;" in sizes
    assert "(256 channels, LSTM, transformer predictors)" in sizes
    table, sizes = said["paper", "steps"]
    assert "; 1,500 updates)" in table
    assert "as many updates, but batches of any speakers" in table
    assert "come from. Each training has 1,500 updates" in sizes
    assert "epoch" not in sizes


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

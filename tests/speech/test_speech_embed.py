"""Features per frame in files."""

import numpy as np
import pyarrow.parquet
import pytest
import soundfile
import torch
from rich.console import Console

from relatum import cli
from relatum.recipes.speech import TrainSpeech, trained_network
from relatum.recipes.train_speech import main as train


@pytest.fixture
def run(tmp_path):
    generator = np.random.default_rng(0)
    for name, frames in (("ann/a", 8000), ("bob/b", 3500)):
        path = tmp_path / "s" / f"{name}.wav"
        path.parent.mkdir(parents=True)
        soundfile.write(path, generator.normal(0, 0.1, frames), 16000)
    return train(
        TrainSpeech(
            data=str(tmp_path / "s"), window=3200, frame_dim=8, context_dim=6, look_ahead=2,
            predictor="linear", negatives=4, batch_size=1, steps=1, device="cpu",
            out=tmp_path / "run",
        ),
        Console(quiet=True),
    )  # fmt: skip


def test_frames_in_two_files(run, tmp_path, capsys):
    (tmp_path / "labels.txt").write_text("bob/b " + " ".join(["7"] * 20))
    words = ["embed", "speech", str(run.path), "--labels", str(tmp_path / "labels.txt")]
    assert cli.main(words) == 0
    told = " ".join(capsys.readouterr().out.split())
    assert "labels for 1 of 2 recordings, 20 of 68 frames" in told
    with np.load(run.path / "embeddings" / "frames.npz") as found:
        counts = np.bincount(found["utterance"])
        assert counts.tolist() == [48, 20]  # (n - 400) // 160 + 1
        assert found["features"].shape == (68, 6)
        assert found["ids"].tolist() == ["ann/a", "bob/b"]
        assert found["speakers"].tolist() == ["ann", "bob"]
        assert np.allclose(found["seconds"][:3], [0, 0.01, 0.02])
        assert found["labels"].tolist() == [-1] * 48 + [7] * 20
        samples, _ = soundfile.read(tmp_path / "s" / "bob" / "b.wav", dtype="float32")
        window = (samples[:3200] - samples[:3200].mean()) / samples[:3200].std()
        first = trained_network(run)(torch.from_numpy(window[None]))[1][0]
        assert np.allclose(found["features"][48:68], first.detach().numpy(), atol=1e-5)
        table = pyarrow.parquet.read_table(run.path / "embeddings" / "frames.parquet")
        assert table.column_names == ["id", "speaker", "seconds", "label", "features"]
        assert np.allclose(np.array(table["features"].to_pylist()), found["features"])
        assert table["id"].to_pylist()[47:49] == ["ann/a", "bob/b"]


def test_labels_of_other_recordings_are_refused(run, tmp_path, capsys):
    (tmp_path / "other.txt").write_text("nobody 0 1")
    words = ["embed", "speech", str(run.path), "--labels", str(tmp_path / "other.txt")]
    assert cli.main(words) == 1
    assert "labels of none of 2 recordings" in " ".join(capsys.readouterr().err.split())
    assert not (run.path / "embeddings").exists()


def test_runs_of_other_kinds_are_refused_by_name(run, tmp_path, capsys):
    images = tmp_path / "images"
    images.mkdir()
    (images / "config.yaml").write_text("data: mnist5k\npairing: two_view\n")
    speech = [[*words.split(), str(run.path)] for words in (
        "probe", "embed", "certify", "finetune", "export", "train images --resume --out",
        "train classes --resume --out",
    )]  # fmt: skip
    other = [["embed", "speech", str(images)], ["probe", "speech", str(images)]]
    for words in speech + other:
        assert cli.main(words) == 1
        told = " ".join(capsys.readouterr().err.split())
        kind, path, use = (
            ("images", images, "probe") if words in other else ("speech", run.path, "probe speech")
        )
        assert f"{path} is a run of `relatum train {kind}`" in told, words
        assert f"use `relatum {use} {path}`" in told
    (images / "config.yaml").write_text("data: mnist5k\n")
    assert cli.main(["embed", "speech", str(images)]) == 1
    assert "not a run of `relatum train speech`" in capsys.readouterr().err

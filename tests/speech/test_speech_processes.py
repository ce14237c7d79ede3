"""Speech on several processes is speech on one: losses, gradients, readings, whole runs."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import soundfile
import torch

from relatum.data.audio import cut_windows, list_sounds, open_corpus
from relatum.distributed import ALONE, Group, average_gradients
from relatum.recipes.speech import PredictionStep, TrainSpeech, build_networks, resolve
from relatum.runs import Run
from relatum.training import load_checkpoint
from tests.laws import processes

VARIANTS = {
    **{name: {"objective": name} for name in ("cpc", "rpc", "dv", "nwj", "js", "hinge")},
    "transformer": {"objective": "cpc", "predictor": "transformer", "heads": 2},
    "one speaker": {"objective": "cpc", "negatives_from": "same_speaker"},
    "one sequence": {"objective": "rpc", "negatives_from": "same_sequence"},
    "excluded": {"objective": "dv", "exclude_positive": True},
    "wpc": {"objective": "wpc", "temperature": 0.01},
}
ROWS = torch.tensor([3, 1, 8, 5, 0])


def sounds(folder):
    """Six recordings of two speakers, each longer than its windows, so that shifts matter."""
    generator = np.random.default_rng(0)
    for i in range(6):
        path = folder / "ab"[i % 2] / f"{i}.wav"
        path.parent.mkdir(exist_ok=True)
        soundfile.write(path, generator.normal(0, 0.1, 3700), 16000)
    return folder


def steps(rank, size, folder, group=None):
    """Of each variant: loss, readings and averaged gradients of a step."""
    group = Group.world() if group is None else group
    windows = cut_windows(open_corpus(list_sounds([folder])[0]), 1600)
    found = {}
    for name, changes in VARIANTS.items():
        settings = resolve(
            TrainSpeech(**{
                "data": str(folder), "window": 1600, "frame_dim": 8, "context_dim": 8,
                "look_ahead": 3, "predictor": "linear", "negatives": 20, "dropout": 0.0, **changes,
            })
        )  # fmt: skip
        networks = build_networks(settings, group)
        parameters = [p for network in networks for p in network.double().parameters()]
        step = PredictionStep(
            networks, Doubled(windows), settings.negatives, settings.negatives_from,
            settings.exclude_positive, settings.normalize, settings.penalty,
        )  # fmt: skip
        output = step(ROWS, 4)
        torch.autograd.backward(output.loss)
        average_gradients(parameters, group)
        readings = [v or 0.0 for v in {**output.readings(), **output.terms()}.values()]
        found[name] = [output.loss.detach(), torch.tensor(readings), *(p.grad for p in parameters)]
    return found


class Doubled:
    """Windows in float64."""

    def __init__(self, windows):
        self.windows, self.speaker = windows, windows.speaker

    def read(self, *arguments):
        return self.windows.read(*arguments).double()


@pytest.mark.parametrize("size", [2, pytest.param(3, marks=pytest.mark.slow)])
def test_steps_of_any_division(size, tmp_path):
    """Shifts, negatives from windows of the others, the gradient through their frames."""
    folder = sounds(tmp_path)
    truth = steps(0, 1, folder, ALONE)
    assert float(truth["wpc"][1][-1]) > 0.1  # the penalty is there
    for found in processes.run(steps, size, folder):
        for name, values in truth.items():
            for a, b in zip(found[name], values, strict=True):
                torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-9, msg=name)


def torchrun(count, *words):
    """``torchrun --nproc-per-node COUNT -m relatum train speech``, to its end."""
    source = str(Path(__file__).resolve().parents[2] / "src")
    # A port of its own: other tests may start processes at the same time.
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    command += ["--nproc-per-node", str(count)]
    small = (
        "--window 1600 --frame-dim 8 --context-dim 8 --look-ahead 3 --predictor linear --steps 6"
        " --batches any --batch-size 5 --log-every 2 --device cpu --learning-rate 0.01"
    ).split()
    return subprocess.run(
        [*command, "-m", "relatum", "train", "speech", *small, *words],
        env={**os.environ, "PYTHONPATH": source, "OMP_NUM_THREADS": "1"},
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip


@pytest.mark.slow
def test_torchrun_makes_the_run_of_one_process(tmp_path):
    (tmp_path / "s").mkdir()
    data = ("--data", str(sounds(tmp_path / "s")))
    for count in (1, 2):
        done = torchrun(count, *data, "--out", str(tmp_path / str(count)))
        assert done.returncode == 0, done.stderr
    again = torchrun(2, *data, "--out", str(tmp_path / "2"), "--resume")
    assert "is finished (6 of 6 steps)" in again.stdout
    one, two = (Run.open(tmp_path / str(count)) for count in (1, 2))
    assert two.read_json("results/training.json")["payload"]["processes"] == 2
    assert [line["step"] for line in two.metrics()] == [2, 4, 6]
    for a, b in zip(one.metrics(), two.metrics(), strict=True):
        assert abs(a["loss"] - b["loss"]) < 1e-4
    first, second = (load_checkpoint(run.checkpoint)["modules"] for run in (one, two))
    for key, value in first["network"].items():
        torch.testing.assert_close(second["network"][key], value, rtol=1e-2, atol=1e-3)


@pytest.mark.slow
def test_fewer_windows_than_processes(tmp_path):
    (tmp_path / "s").mkdir()
    done = torchrun(
        3, "--data", str(sounds(tmp_path / "s")), "--out", str(tmp_path / "r"), "--batch-size", "2"
    )
    assert done.returncode != 0
    assert "fewer windows than there are processes (3)" in done.stderr
    assert not (tmp_path / "r").exists()

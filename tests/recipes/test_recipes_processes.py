"""Training on several processes is training on one: losses, gradients, whole runs."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from tests.laws import processes

from relatum.data import POLICIES, InMemory
from relatum.distributed import ALONE, Group, average_gradients
from relatum.objectives import OBJECTIVES
from relatum.recipes import train_images
from relatum.recipes.images import TrainImages, build_networks, resolve
from relatum.recipes.images.step import ContrastiveStep
from relatum.runs import Run, RunError
from relatum.scores import MovingMoments
from relatum.training import EmbeddingBank, join_processes, load_checkpoint

IMAGES = torch.randint(0, 256, (40, 3, 16, 16), generator=torch.Generator().manual_seed(1)).byte()
ROWS = [torch.tensor([3, 1, 38, 5, 30, 9, 2, 17, 11]), torch.tensor([8, 4, 6, 20, 22, 0, 7])]
VARIANTS = {
    **{name: {"objective": name} for name in OBJECTIVES},
    # Batch normalisation sees the micro-batches of all processes, which their number changes.
    "micro-batches": {"objective": "cpc", "micro_batch_size": 2, "normalization": "group"},
    # Shares are uneven: one process has an image less than the other has micro-batches.
    "single images": {"objective": "cpc", "micro_batch_size": 1, "normalization": "group"},
    "penalty in parts": {"objective": "wpc", "micro_batch_size": 2, "normalization": "group"},
    "queue": {"objective": "cpc", "queue_size": 12},
    "rpc, queue": {"objective": "rpc", "queue_size": 12},
    "moments only": {
        "objective": "rpc", "micro_batch_size": 2, "moments_only": True, "normalization": "group",
    },
    "past moments": {"objective": "rpc", "moment_decay": 0.7},
    "both directions": {"objective": "rpc", "critic": "bilinear", "moments_only": True},
    "joint": {"objective": "js", "critic": "joint"},
}  # fmt: skip

TINY = {
    "data": "digits", "image_size": 8, "limit": 60, "batch_size": 20, "projection_dim": 8,
    "projection_layers": 2, "steps": 2, "tensorboard": False, "device": "cpu",
}  # fmt: skip


def two_steps(rank, size, group=None):
    """Of each variant: losses and averaged gradients of two steps (the second has a past)."""
    group = Group.world() if group is None else group
    found = {}
    for name, changes in VARIANTS.items():
        settings = resolve(
            TrainImages(
                data="digits", encoder="conv-small", projection_dim=6, projection_layers=2,
                batch_size=9, device="cpu", temperature=None if "joint" in name else 0.9,
                **{"normalization": "sync", **changes},
            ),
            40,
        )  # fmt: skip
        networks = build_networks(settings, group)
        parameters = [p for network in networks for p in network.double().parameters()]
        step = ContrastiveStep(
            networks, InMemory(IMAGES), Doubled(16), penalty=settings.penalty,
            bank=EmbeddingBank(12, 6).double() if settings.queue_size else None,
            micro_batch_size=settings.micro_batch_size, moments_only=settings.moments_only,
            past=MovingMoments(6, settings.moment_decay) if settings.moment_decay else None,
        )  # fmt: skip
        values = []
        for number, rows in enumerate(ROWS):
            output = step(rows, number)
            for parameter in parameters:
                parameter.grad = None
            torch.autograd.backward(output.loss)
            average_gradients(parameters, group)
            readings = [v or 0.0 for v in {**output.readings(), **output.terms()}.values()]
            if name == "moments only":  # readings of the last micro-batch, which differs
                readings = []
            output.finish()
            gradients = [p.grad.clone() for p in parameters if p.grad is not None]
            values += [output.loss.detach(), torch.tensor(readings), *gradients]
        found[name] = [*values, *(b for n in networks for b in n.buffers())]
    return found


class Doubled:
    """The policy in float64."""

    def __init__(self, size):
        self.policy = POLICIES["simclr-cifar"](size)
        self.draw = self.policy.draw

    def apply(self, images, draws):
        return self.policy.apply(images, draws).double()


@pytest.mark.parametrize("size", [2, 3])
def test_steps_of_any_division(size):
    truth = two_steps(0, 1, ALONE)
    for found in processes.run(two_steps, size):
        for name, values in truth.items():
            for a, b in zip(found[name], values, strict=True):
                # Readings, which are kept in float32, are the first two tensors of a step.
                torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-9, msg=name)


SOURCE = Path(__file__).resolve().parents[2] / "src"


def torchrun(count, out, *options):
    """``torchrun --nproc-per-node COUNT -m relatum train images``, started."""
    # A port of its own: other tests may start processes at the same time.
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    command += ["--nproc-per-node", str(count)]
    settings = (
        "--data digits --image-size 8 --limit 60 --batch-size 25 --epochs 6 --normalization sync"
        " --checkpoint-every 1 --log-every 1 --no-tensorboard --device cpu --optimizer sgd"
        " --projection-dim 8 --projection-layers 2"
    ).split()
    environment = {**os.environ, "PYTHONPATH": str(SOURCE), "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(
        [*command, "-m", "relatum", "train", "images", *settings, "--out", str(out), *options],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment,
        start_new_session=True,
    )  # fmt: skip


def finished(process):
    said, complained = process.communicate(timeout=300)
    assert process.returncode == 0, complained
    return said


@pytest.mark.slow
def test_torchrun_killed_and_resumed(tmp_path):
    """Two processes write one run, equal to that of one process, and continue it after a kill."""
    finished(torchrun(1, tmp_path / "1"))
    process = torchrun(2, tmp_path / "2")
    lines = tmp_path / "2" / "metrics.jsonl"
    while process.poll() is None and (not lines.exists() or lines.read_text().count("\n") < 2):
        time.sleep(0.01)
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    for _ in range(2):
        said = finished(torchrun(2, tmp_path / "2", "--resume"))
    assert "is finished (12 of 12 steps)" in said
    one, two = (Run.open(tmp_path / str(count)) for count in (1, 2))
    assert [line["step"] for line in two.metrics()] == list(range(1, 13))
    assert two.read_json("results/training.json")["payload"]["processes"] == 2
    for a, b in zip(one.metrics(), two.metrics(), strict=True):
        assert abs(a["loss"] - b["loss"]) < 1e-4
    first, second = (load_checkpoint(run.checkpoint)["modules"] for run in (one, two))
    for module, state in first.items():
        for key, value in state.items():
            torch.testing.assert_close(second[module][key], value, rtol=1e-2, atol=1e-3)


def places(rank, size):
    return join_processes("cpu").group.size


def test_processes_that_have_met_are_joined():
    """However they were started: each on its own would write over the others' run."""
    assert processes.run(places, 2) == [2, 2]


def test_processes_that_cannot_meet(monkeypatch, tmp_path):
    monkeypatch.setenv("WORLD_SIZE", "3")
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "3")
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    with pytest.raises(ValueError, match="3 processes were started on a machine with 2 GPUs"):
        join_processes("cuda")
    with pytest.raises(ValueError, match="names one GPU for all processes"):
        join_processes("cuda:1")


@pytest.mark.slow
def test_a_launcher_that_says_more_than_it_does(tmp_path):
    """WORLD_SIZE alone, as some clusters set it, makes no processes meet."""
    command = [sys.executable, "-m", "relatum", "train", "images", "--data", "digits"]
    environment = {**os.environ, "PYTHONPATH": str(SOURCE), "WORLD_SIZE": "2"}
    done = subprocess.run(
        [*command, "--out", str(tmp_path / "run")],
        env=environment, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.returncode == 1
    assert "WORLD_SIZE says 2 processes, but 1 met: start them with torchrun" in done.stderr
    assert not (tmp_path / "run").exists()


def resumed_apart(rank, size, folder):
    """Each process looks for the run in a folder of its own."""
    settings = TrainImages(**TINY, out=folder / str(rank), resume=True)
    try:
        train_images.main(settings)
    except RunError as error:
        return str(error)
    return "no error"


def test_processes_that_do_not_see_one_folder(tmp_path):
    train_images.main(TrainImages(**TINY, out=tmp_path / "0"))
    for said in processes.run(resumed_apart, 2, tmp_path):
        assert "found checkpoints of different steps [0, 2]" in said


@pytest.mark.slow
def test_fewer_pairs_than_processes(tmp_path):
    process = torchrun(3, tmp_path / "run", "--batch-size", "2")
    _, complained = process.communicate(timeout=300)
    assert process.returncode != 0
    assert "fewer pairs than there are processes (3)" in complained
    assert not (tmp_path / "run").exists()

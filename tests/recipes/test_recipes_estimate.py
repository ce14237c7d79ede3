"""What a dry run says a run will cost, against arithmetic on paper and published figures."""

import io
import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import yaml
from rich.console import Console
from tests.laws import processes
from torch import nn

from relatum.models import ProjectionHead, build_encoder
from relatum.recipes.images import Networks, TrainImages, build_networks, resolve
from relatum.recipes.images.estimate import _counted_pass, estimate, known_rows, made_images
from relatum.recipes.train_images import _prepare, main
from relatum.settings import SettingsError, from_yaml

VISION = Path(__file__).resolve().parents[2] / "configs" / "vision"


def dry_run(settings):
    said = io.StringIO()
    assert main(settings, Console(file=said, width=400)) is None
    return said.getvalue()


def test_a_pass_is_counted_as_on_paper():
    """Dense layers: 2 n m operations; kept are each layer's input and the output of a ReLU."""
    encoder = nn.Sequential(nn.Flatten(), nn.Linear(3 * 8 * 8, 50), nn.ReLU())
    networks = Networks(encoder, nn.Linear(50, 10), loss=None)
    flops, kept = _counted_pass(networks, 8)
    assert flops == 2 * (192 * 50 + 50 * 10)
    assert kept == 4 * (192 + 50)  # the ReLU's output is the next layer's input


def test_convolutions_are_counted_as_the_encoder_says():
    """Multiply-adds an image: the sum over stages of 9 · width_in · width_out · side²."""
    settings = resolve(TrainImages(data="digits", image_size=32, encoder="conv-medium"), 1000)
    flops, _ = _counted_pass(build_networks(settings), 32)
    widths, sides = (3, 32, 64, 128, 256), (32, 16, 8, 4)
    stages = sum(
        9 * a * b * side**2 for a, b, side in zip(widths[:-1], widths[1:], sides, strict=True)
    )
    assert flops == 2 * (stages + 256 * 256 * 2 + 256 * 128)


def test_a_resnet_50_has_its_published_cost():
    """4.09 billion multiply-adds at 224 x 224 without its classifier, which is 0.002 of them."""
    encoder = build_encoder("resnet50", image_size=224)
    head = ProjectionHead(2048, 2048, 128, 3)
    flops, _ = _counted_pass(Networks(encoder, head, loss=None), 224)
    head_flops = 2 * (2 * 2048**2 + 2048 * 128)
    assert abs((flops - head_flops) / 2 - 4.087e9) < 0.01e9


def test_counting_leaves_the_networks_alone():
    settings = resolve(TrainImages(data="digits", encoder="conv-small"), 1000)
    networks = build_networks(settings)
    before = {k: v.clone() for k, v in networks.encoder.state_dict().items()}
    _counted_pass(networks, 16)
    after = networks.encoder.state_dict()
    assert all(torch.equal(after[name], value) for name, value in before.items())
    assert all(p.grad is None and p.device.type == "cpu" for p in networks.encoder.parameters())


def test_a_preset_is_tried_without_its_data(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    given = yaml.safe_load((VISION / "cifar10-rpc-paper.yaml").read_text("utf-8"))
    text = yaml.safe_dump({**given, "dry_run": True, "tiny": True, "autocast": "none"})
    said = dry_run(from_yaml(TrainImages, text, where="preset"))
    assert not list(tmp_path.iterdir())
    assert yaml.safe_load(said)["objective"] == "rpc"
    assert "97000 steps, 97 an epoch" in said
    # A ResNet-18 with the small stem has 11,168,832 weights without its classifier; SimCLRv2's
    # has a projection in the shortcut of the first group besides: 64 x 64 and 2 x 64.
    assert "encoder 11,173,056" in said
    # Weights, gradients and one momentum, 4 bytes each, of encoder and head (512, 512, 128).
    head = 2 * (512 * 512 + 2 * 512) + 512 * 128 + 128
    assert f"memory: {12 * (11_173_056 + head) / 1e9:.2f} GB" in said
    # Three passes (forward, and backward to inputs and weights) of two views, each 0.556 billion
    # multiply-adds on CIFAR as is well known.
    each, total = costs(said)
    assert 2.9 < each / (2 * 2 * 0.556) < 3.1
    assert math.isclose(total, each * 97000 * 512 / 1e6, rel_tol=0.01)


def costs(said):
    """GFLOP an image, PFLOP in all."""
    words = said.split("arithmetic: ")[1].split()
    return float(words[0]), float(words[6])


def test_the_penalty_is_counted():
    """Passes of two views: 3 for the loss, 18 and a little more with the penalty.

    It has 3 for the views whose statistics are held; and on twice as many views 2 passes forward, 2
    for the gradient at the images, and for the backward of these twice as many each.
    """
    settings = TrainImages(data="cifar10:x", encoder="conv-medium", dry_run=True, tiny=True)
    counted = [costs(dry_run(replace(settings, objective=name)))[0] for name in ("cpc", "wpc")]
    assert 5.9 < counted[1] / counted[0] < 6.9


@pytest.mark.parametrize("changes", [{}, {"objective": "wpc"}, {"positives": 3}])
def test_memory_is_what_a_step_holds(changes):
    """The truth: every storage that a real step keeps for its backward pass, each counted once."""
    settings = TrainImages(data="cifar10:x", encoder="conv-medium", batch_size=16, **changes)
    settings = resolve(replace(settings, device="cpu", penalty=None), 1000)
    networks = build_networks(settings)
    step, state = _prepare(settings, networks, made_images(settings, 16).train, torch.device("cpu"))
    own = {p.untyped_storage().data_ptr() for p in state.parameters()}
    held = {}

    def keep(tensor):
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in own:
            held[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        output = step(torch.arange(16), 0)
    total = sum(held.values())
    del output
    found = estimate(step, state, settings, torch.arange(16))
    # The embeddings and scores of so small a batch are next to nothing.
    assert total == pytest.approx(16 * (found.activations + found.penalty), rel=0.03)
    assert bool(found.penalty) == ("objective" in changes)


def dry_runs(rank, size):
    settings = TrainImages(
        data="cifar10:x", encoder="conv-medium", batch_size=65, normalization="sync", device="cpu",
        dry_run=True, tiny=True,
    )  # fmt: skip
    return [dry_run(replace(settings, objective=name)) for name in ("cpc", "wpc")]


def test_processes_share_the_images():
    """The work of an image is the same, memory is for those of one process."""
    alone = dry_runs(0, 1)
    first, second = processes.run(dry_runs, 2)
    assert second == ["", ""]
    for one, two in zip(alone, first, strict=True):
        assert costs(two)[0] == pytest.approx(costs(one)[0], rel=0.01)
        assert "for 65 (" in one
        assert "for 33 (on each of 2 processes; " in two


def test_an_encoder_of_one_size_is_tried_at_that_size():
    said = dry_run(
        TrainImages(
            data="imagenet:x", encoder="timm:test_vit", image_size=160, dry_run=True, tiny=True
        )
    )
    assert "images of 160 x 160" in said


def test_made_images_are_small_and_known_sets_have_their_size():
    assert made_images(TrainImages(data="imagenet:x")).train.pixels.shape == (2, 3, 64, 64)
    assert made_images(TrainImages(data="cifar10:x")).train.pixels.shape == (2, 3, 32, 32)
    assert known_rows(TrainImages(data="cifar10:x", limit=300)) == 300
    assert known_rows(TrainImages(data="celeba/Male:x")) == 162_770
    with pytest.raises(SettingsError, match="tiny knows the sizes of"):
        known_rows(TrainImages(data="some/folder"))
    with pytest.raises(ValueError, match="tiny belongs to dry_run"):
        TrainImages(tiny=True)

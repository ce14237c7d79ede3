"""The vision reproductions on a handful of made images, and alpha's share of a gradient."""

import importlib
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml
from PIL import Image
from rich.console import Console

from relatum import cli
from relatum.recipes.images import TrainImages
from relatum.recipes.images.build import build_networks
from relatum.recipes.images.resolve import resolve
from relatum.recipes.stability import Stability, cells_of
from relatum.recipes.vision.alpha import alpha_share
from relatum.recipes.vision.presets import PRESETS, cell, settings_of, training_of
from relatum.recipes.vision.stability_page import write_stability_page
from relatum.recipes.vision_table import VisionTable, run_cell
from relatum.recipes.vision_table import cells_of as table_cells

QUIET = Console(quiet=True)
TINY = {
    "image_size": 8, "limit": 40, "encoder": "conv-small", "batch_size": 8, "epochs": 1.0,
    "optimizer": "lars", "learning_rate": 2.0, "device": "cpu",
}  # fmt: skip


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    """Two classes of noise, one bright and one dark."""
    root = tmp_path_factory.mktemp("images")
    generator = np.random.default_rng(0)
    for label, light in (("dark", 60), ("bright", 180)):
        (root / label).mkdir()
        for i in range(30):
            pixels = (light + generator.integers(-40, 40, (8, 8, 3))).astype(np.uint8)
            Image.fromarray(pixels).save(root / label / f"{i}.png")
    return root


@pytest.fixture
def tiny(monkeypatch):
    monkeypatch.setitem(PRESETS, "cpu", TINY)
    for module in ("stability", "relative_parameters"):
        changed = __import__(f"relatum.recipes.{module}", fromlist=["_CHANGED"])._CHANGED
        monkeypatch.setitem(changed, "cpu", {})


def run(command, images, tmp_path, *more):
    page = tmp_path / "page.md"
    code = cli.main([
        "reproduce", command, "--preset", "cpu", "--data", str(images), "--steps", "3", "--jobs",
        "1", "--out", str(tmp_path / "out"), "--page", str(page), *more,
    ])  # fmt: skip
    assert code == 0
    return page.read_text()


def test_raw_nwj_and_dv_end_and_the_page_says_at_which_step(images, tiny, tmp_path):
    """At a rate of 2 a raw score of 128 numbers overflows an exponential within steps."""
    text = run("stability", images, tmp_path, "--cells", "[nr][wp]*-dot-8-0")
    numbers = json.loads((tmp_path / "page.json").read_text())["cells"]
    assert set(numbers) == {"nwj-dot-8-0", "rpc-dot-8-0"}
    end = numbers["nwj-dot-8-0"]["training"]["nonfinite_step"]
    assert numbers["rpc-dot-8-0"]["training"]["nonfinite_step"] is None
    assert (f"NWJ at step {end}" in text) == (end is not None)
    assert (tmp_path / "page.svg").is_file()


def fake(objective, critic, end):
    return {
        "plan": TINY | {"image_size": 8}, "created": "2026-01-01", "seconds": 1.0,
        "measures": {"linear": 0.5, "knn": 0.4},
        "training": {"nonfinite_step": end, "nonfinite_terms": None, "curve": [[1, 2.0, 1.0]]},
    }  # fmt: skip


@pytest.mark.parametrize(("cpc_end", "says"), [(None, "holds for raw"), (4, "does not hold")])
def test_the_verdict_on_stability_asks_for_both_sides(cpc_end, says):
    records = {f"{name}-cosine-0.5-0": fake(name, "cosine", None) for name in ("dv", "cpc")}
    partial = {"rpc-dot-8-0": fake("rpc", "dot", None)}
    assert "claim" not in write_stability_page(partial, page=None, command="c", jobs=1)
    for name, end in (("dv", 7), ("nwj", 0), ("cpc", cpc_end), ("rpc", None)):
        records[f"{name}-dot-8-0"] = fake(name, "dot", end)
    text = write_stability_page(records, page=None, command="c", jobs=1)
    assert says in text
    assert "DV at step 7" in text


def test_every_objective_sees_the_same_but_for_its_formula():
    plans = [cell.plan for cell in cells_of(Stability(preset="cpu")) if "-dot-8-" in cell.name]
    names = ("objective", "alpha", "beta", "gamma")
    rest = [{k: v for k, v in plan.items() if k not in names} for plan in plans]
    assert len(rest) == 5
    assert all(each == rest[0] for each in rest)


@pytest.mark.parametrize("module", ["stability", "batch_size", "relative_parameters",
                                    "vision_table"])  # fmt: skip
@pytest.mark.parametrize("preset", ["cpu", "gpu", "paper"])
def test_a_cell_is_trained_as_its_settings_say(monkeypatch, module, preset, tmp_path):
    """What comes out of a cell's plan is what went in, but for where things are."""
    room = importlib.import_module(f"relatum.recipes.{module}")
    made = []

    def noted(name, settings, **more):
        made.append(settings)
        return cell(name, settings, **more)

    monkeypatch.setattr(room, "cell", noted)
    kind = next(each for each in vars(room).values()
                if isinstance(each, type) and each.__module__ == room.__name__)  # fmt: skip
    cells = room.cells_of(kind(preset=preset, seeds=1))
    elsewhere = ("data", "out", "threads", "tensorboard", "log_every")
    assert len(made) == len(cells) > 3
    for given, one in zip(made, cells, strict=True):
        found = training_of(one.plan, tmp_path, tmp_path / "out")
        same = {name: getattr(given, name) for name in elsewhere}
        assert replace(found, **same) == given


@pytest.mark.parametrize("kind", ["supervised", "untrained"])
def test_what_has_no_objective_starts_by_its_seed_alone(images, tiny, tmp_path, kind):
    """A new process draws other weights, unless its seed does."""
    settings = VisionTable(preset="cpu", seeds=1, steps=3)
    (one,) = (each for each in table_cells(settings) if each.name == f"cifar10_conv-small_{kind}_0")
    records = []
    for attempt, draw in enumerate((1, 2)):
        torch.manual_seed(draw)
        records.append(run_cell(one, tmp_path / str(attempt), QUIET, places={"cifar10": images}))
    assert records[0]["measures"] == records[1]["measures"]
    if kind == "supervised":
        texts = [
            (tmp_path / str(n) / "runs" / one.name / "config.yaml").read_text() for n in (0, 1)
        ]
        assert texts[0] == texts[1]
        lines = (tmp_path / "0" / "runs" / one.name / "metrics.jsonl").read_text().splitlines()
        assert json.loads(lines[-1])["step"] == 3


def plain_gradient(networks, views, critic, alpha, weights):
    """The gradient of -J(alpha, 0.001, 1) from the whole matrix of scores, in float64."""
    z = networks.head(networks.encoder(views)).double()
    if critic == "cosine":
        z = z / z.norm(dim=1, keepdim=True)
    scores, n = z @ z.T / 128, len(z) // 2
    partner = torch.arange(2 * n).roll(n)
    positives = scores[torch.arange(2 * n), partner]
    others = torch.ones(2 * n, 2 * n, dtype=torch.bool)
    others[torch.arange(2 * n), torch.arange(2 * n)] = False
    others[torch.arange(2 * n), partner] = False
    negatives = scores[others]
    j = (positives - 0.0005 * positives**2).mean() - (alpha * negatives + negatives**2 / 2).mean()
    found = torch.autograd.grad(-j, weights, allow_unused=True, retain_graph=True)
    return torch.cat([each.flatten() for each in found if each is not None]).double(), z, positives


@pytest.mark.parametrize(("critic", "offset"), [("dot", False), ("dot", True), ("cosine", False)])
def test_the_share_of_alpha_is_that_of_the_whole_matrix(critic, offset):
    settings = settings_of(
        "cpu", objective="rpc", critic=critic, temperature=128.0, beta=0.001, gamma=1.0,
        projection_offset=offset, encoder="conv-small", augmentation="none", data="digits",
    )  # fmt: skip
    settings = resolve(settings, 1000)
    networks = build_networks(settings)
    if offset:
        torch.nn.init.constant_(networks.head.layers[-1].bias, 0.5)
    pixels = torch.randint(0, 256, (16, 3, 16, 16), dtype=torch.uint8)
    found = alpha_share(networks, settings, pixels)
    views = torch.cat([pixels, pixels]).float() / 255
    weights = [p for part in networks[:2] for p in part.parameters()]
    zero, z, positives = plain_gradient(networks, views, critic, 0.0, weights)
    one, _, _ = plain_gradient(networks, views, critic, 1.0, weights)
    assert found == pytest.approx(float((one - zero).norm() / zero.norm()), rel=1e-3)
    if critic == "dot" and not offset:
        # Embeddings sum to zero: alpha speaks only of positives and norms, 1 / (2N - 2) as loudly.
        rest = (z.square().sum(1).mean() / 128 + positives.mean()) / (2 * 16 - 2)
        small = torch.autograd.grad(-rest, weights, allow_unused=True)
        small = torch.cat([each.flatten() for each in small if each is not None]).double()
        assert torch.allclose(one - zero, small, atol=1e-5 * float(zero.norm()))


def test_relative_parameters_say_what_alpha_does(images, tiny, tmp_path):
    text = run("relative-parameters", images, tmp_path, "--cells", "released_*_0.001_1_*",
               "--seeds", "2")  # fmt: skip
    numbers = json.loads((tmp_path / "page.json").read_text())["cells"]
    assert len(numbers) == 6
    assert numbers["released_0_0.001_1_0"]["alpha_share"]["untrained"] < 0.2
    assert "released head (no offset), dot / 128: alpha from 0 to 1 moves the gradient" in text
    assert "alpha = 0.001" in (tmp_path / "page.svg").read_text()


def test_settings_that_are_not_there_are_named(tmp_path, capsys):
    assert cli.main(["reproduce", "batch-size", "--preset", "cpu", "--data", "nowhere"]) == 2
    assert "--data nowhere is not there" in capsys.readouterr().err
    code = cli.main(["reproduce", "batch-size", "--data", str(tmp_path), "--cells", "cpx*"])
    assert code == 1
    assert "'cpx*' matches none of rpc-512-0" in capsys.readouterr().err
    assert isinstance(settings_of("paper", objective="rpc"), TrainImages)


def test_the_paper_preset_trains_as_the_files_of_the_paper_say():
    """Settings of a published row are in two places, a file and the table's preset: they agree."""
    free = {"data", "out", "checkpoint_every", "image_size"}
    every = {one.name: one.plan for one in table_cells(VisionTable(preset="paper", seeds=1))}
    files = [
        file for data in ("cifar10", "cifar100", "stl10")
        for file in Path("configs/vision").glob(f"{data}-*-paper.yaml")
    ]  # fmt: skip
    assert len(files) == 18
    for file in files:
        given = yaml.safe_load(file.read_text(encoding="utf-8"))
        data, objective, _ = file.stem.split("-")
        network = {"stl10": "resnet50"}.get(data, "resnet18")
        plan = every[f"{data}_{network}_{objective}_0"]
        asked = {name: value for name, value in given.items() if name not in free}
        found = {name: plan[name] for name in asked}
        for name in ("alpha", "gamma", "penalty"):  # the objective's own default
            if name in asked and found[name] is None:
                found[name] = {"alpha": 1.0, "gamma": 1.0, "penalty": 10.0}[name]
        if objective == "rpc" and found["beta"] is None:
            found["beta"] = 0.005
        assert found == asked, file
        assert (plan["image_size"] or 32) == given["image_size"]

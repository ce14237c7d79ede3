"""The vision reproductions on a handful of made images, and alpha's share of a gradient."""

import json

import numpy as np
import pytest
import torch
from PIL import Image
from rich.console import Console

from relatum import cli
from relatum.recipes.images import TrainImages
from relatum.recipes.images.build import build_networks
from relatum.recipes.images.resolve import resolve
from relatum.recipes.stability import Stability, cells_of
from relatum.recipes.vision.alpha import alpha_share
from relatum.recipes.vision.presets import PRESETS, settings_of
from relatum.recipes.vision.stability_page import write_stability_page

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
        "training": {"nonfinite_step": end, "curve": [[1, 2.0, 1.0]]},
    }  # fmt: skip


@pytest.mark.parametrize(("cpc_end", "says"), [(None, "holds for raw"), (4, "does not hold")])
def test_the_verdict_on_stability_asks_for_both_sides(cpc_end, says):
    records = {f"{name}-cosine-0.5-0": fake(name, "cosine", None) for name in ("dv", "cpc")}
    for name, end in (("dv", 7), ("nwj", 0), ("cpc", cpc_end), ("rpc", None)):
        records[f"{name}-dot-8-0"] = fake(name, "dot", end)
    text = write_stability_page(Stability(preset="cpu"), records, 1)
    assert says in text
    assert "DV at step 7" in text


def test_every_objective_sees_the_same_but_for_its_formula():
    plans = [cell.plan for cell in cells_of(Stability(preset="cpu")) if "-dot-8-" in cell.name]
    names = ("objective", "alpha", "beta", "gamma")
    rest = [{k: v for k, v in plan.items() if k not in names} for plan in plans]
    assert len(rest) == 5
    assert all(each == rest[0] for each in rest)


@pytest.mark.parametrize(("critic", "offset"), [("dot", False), ("dot", True), ("cosine", False)])
def test_alpha_moves_the_gradient_only_where_embeddings_need_not_sum_to_zero(critic, offset):
    """The mean negative score of the released head is a 1 / (2N − 2) sum over positives."""
    settings = settings_of(
        "cpu", objective="rpc", critic=critic, temperature=128.0, beta=0.001, gamma=1.0,
        projection_offset=offset, encoder="conv-small", data="digits",
    )  # fmt: skip
    settings = resolve(settings, 1000)
    networks = build_networks(settings)
    if offset:
        last = networks.head.layers[-1]
        torch.nn.init.constant_(last.bias, 0.5)
    pixels = torch.randint(0, 256, (64, 3, 16, 16), dtype=torch.uint8)
    share = alpha_share(networks, settings, pixels)
    if critic == "dot" and not offset:
        assert share < 3 / (2 * 64 - 2)
    else:
        assert share > 0.2


def test_relative_parameters_say_what_alpha_does(images, tiny, tmp_path):
    text = run("relative-parameters", images, tmp_path, "--cells", "released_*_0.001_1_*",
               "--seeds", "2")  # fmt: skip
    numbers = json.loads((tmp_path / "page.json").read_text())["cells"]
    assert len(numbers) == 6
    assert numbers["released_0_0.001_1_0"]["alpha_share"]["untrained"] < 0.2
    assert "released head (no offset), dot / 128: alpha from 0 to 1 moves the gradient" in text
    assert (tmp_path / "page.svg").is_file()


def test_settings_that_are_not_there_are_named(tmp_path, capsys):
    assert cli.main(["reproduce", "batch-size", "--preset", "cpu", "--data", "nowhere"]) == 2
    assert "--data nowhere is not there" in capsys.readouterr().err
    code = cli.main(["reproduce", "batch-size", "--data", str(tmp_path), "--cells", "cpx*"])
    assert code == 1
    assert "'cpx*' matches none of rpc-512-0" in capsys.readouterr().err
    assert isinstance(settings_of("paper", objective="rpc"), TrainImages)

"""Cells that stay, slopes, data folders, and what pages say of finished cells."""

import json
import math
from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from relatum.recipes.experiments.batch_page import write_batch_page
from relatum.recipes.experiments.cells import Cell, finish
from relatum.recipes.experiments.data import found_data
from relatum.recipes.experiments.running import reproduce
from relatum.recipes.experiments.seeds import accuracy, by_seed, shared, values
from relatum.recipes.experiments.settings import Experiment
from relatum.recipes.experiments.statistics import gain, level, slope
from relatum.recipes.speech_batch_size import SpeechBatchSize
from relatum.recipes.stability import Stability
from relatum.runs import RunError
from relatum.settings import SettingsError, field_docs

QUIET = Console(quiet=True)


def note(cell, folder, console):
    """Writes a line each time a cell is run, and gives back a number."""
    with (folder / "log.txt").open("a") as file:
        file.write(cell.name + "\n")
    if cell.plan.get("fails"):
        raise ArithmeticError("as told")
    return {"measures": {"value": cell.plan["value"] ** 2}}


def cells(*values):
    return [Cell(f"c-{value}", {"value": value}) for value in values]


@pytest.mark.parametrize("jobs", [1, 2])
def test_finished_cells_are_not_run_again(tmp_path, jobs):
    finish(cells(1, 2), tmp_path, note, jobs=jobs, console=QUIET)
    records = finish(cells(1, 2, 3), tmp_path, note, jobs=jobs, console=QUIET)
    assert {name: record["measures"]["value"] for name, record in records.items()} == {
        "c-1": 1, "c-2": 4, "c-3": 9,
    }  # fmt: skip
    assert sorted((tmp_path / "log.txt").read_text().split()) == ["c-1", "c-2", "c-3"]


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_cell_that_fails_is_named_and_stops_no_other(tmp_path, jobs):
    broken = [*cells(1), Cell("bad", {"value": 0, "fails": True}), *cells(2)]
    with pytest.raises(RunError, match=r"1 of 3 cells failed.* bad \(ArithmeticError: as told\)"):
        finish(broken, tmp_path, note, jobs=jobs, console=QUIET)
    finish(cells(1, 2), tmp_path, note, jobs=1, console=QUIET)
    assert sorted((tmp_path / "log.txt").read_text().split()) == ["bad", "c-1", "c-2"]


def test_cells_of_other_settings_are_refused_by_name(tmp_path):
    finish(cells(1), tmp_path, note, jobs=1, console=QUIET)
    with pytest.raises(RunError, match=r"c-1.json was made with other settings \(value: 1 -> 5\)"):
        finish([Cell("c-1", {"value": 5})], tmp_path, note, jobs=1, console=QUIET)


def test_a_newer_setting_at_its_default_changes_nothing(tmp_path):
    finish(cells(1), tmp_path, note, jobs=1, console=QUIET)
    newer = {"value": 1, "turbo": False}
    cell = Cell("c-1", newer, defaults={"value": 7, "turbo": False})
    assert finish([cell], tmp_path, note, jobs=1, console=QUIET)["c-1"]["measures"]["value"] == 1
    with pytest.raises(RunError, match="turbo: False -> True"):
        finish([Cell("c-1", newer | {"turbo": True}, defaults=newer)], tmp_path, note, jobs=1,
               console=QUIET)  # fmt: skip


def test_a_damaged_cell_is_named(tmp_path):
    finish(cells(1), tmp_path, note, jobs=1, console=QUIET)
    (tmp_path / "cells" / "c-1.json").write_text('{"plan": ')
    with pytest.raises(RunError, match=r"c-1.json is damaged .*remove it"):
        finish(cells(1), tmp_path, note, jobs=1, console=QUIET)


def test_two_cells_of_one_name(tmp_path):
    with pytest.raises(ValueError, match="share a name"):
        finish(cells(1, 1), tmp_path, note, jobs=1, console=QUIET)


def test_numbers_that_are_none_do_not_count_as_a_change(tmp_path):
    plan = [Cell("c", {"value": 1, "rate": math.inf})]
    finish(plan, tmp_path, note, jobs=1, console=QUIET)
    assert finish(plan, tmp_path, note, jobs=1, console=QUIET)["c"]["measures"] == {"value": 1}


points = st.lists(
    st.tuples(st.integers(-20, 20), st.floats(-5, 5)), min_size=3, max_size=12
).filter(lambda rows: len({x for x, _ in rows}) > 1)


@given(points)
def test_a_slope_is_the_textbook_one(rows):
    """Sums in plain loops; quantiles of t for 1 to 10 degrees of freedom from a printed table."""
    quantile = [12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228]
    n = len(rows)
    mx, my = sum(x for x, _ in rows) / n, sum(y for _, y in rows) / n
    sxx = sum((x - mx) ** 2 for x, _ in rows)
    b = sum((x - mx) * (y - my) for x, y in rows) / sxx
    residual = sum((y - my - b * (x - mx)) ** 2 for x, y in rows)
    half = quantile[n - 3] * math.sqrt(residual / (n - 2) / sxx)
    found = slope([x for x, _ in rows], [y for _, y in rows])
    assert found.value == pytest.approx(b, abs=1e-9)
    assert (found.high - found.low) / 2 == pytest.approx(half, rel=1e-3, abs=1e-6)


@pytest.mark.parametrize("x", [[1, 2], [3, 3, 3]])
def test_a_slope_needs_three_points_of_different_x(x):
    with pytest.raises(ValueError, match="three points or more of different x"):
        slope(x, [0.0] * len(x))


def test_gains_are_paired_and_levels_are_not():
    a, b = [0.50, 0.60, 0.70], [0.40, 0.50, 0.60]
    assert gain(a, b) == "+10.0 ± 0.0"
    assert level(a) == "60.0 ± 24.8"  # 4.303 · 10 / √3
    assert gain(a, b[:2]) == level([]) == "not run"


def test_data_are_found_in_the_order_that_is_told(tmp_path, monkeypatch):
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    monkeypatch.delenv("RELATUM_DATA", raising=False)
    with pytest.raises(SettingsError, match="cifar10 is none of data/cifar10, .*RELATUM_DATA"):
        found_data(None, "cifar10")
    for root in ("../shared/data", "data", "elsewhere"):
        Path(root, "cifar10").mkdir(parents=True)
        if root == "elsewhere":
            monkeypatch.setenv("RELATUM_DATA", "elsewhere")
        assert found_data(None, "cifar10") == Path(root, "cifar10")
    with pytest.raises(SettingsError, match="nowhere is not there"):
        found_data(Path("nowhere"), "cifar10")


def test_options_of_the_base_are_explained_too():
    docs = field_docs(Stability)
    assert {field.name for field in fields(Stability)} == set(docs)
    assert docs["out"] == field_docs(Experiment)["out"]
    assert docs["preset"].startswith("cpu:")


def record(value, step=None):
    return {
        "plan": {}, "created": "2026-01-01", "seconds": 1.0, "measures": {"linear": value},
        "training": {"nonfinite_step": step},
    }  # fmt: skip


def test_seeds_are_paired_by_their_number():
    """Position would pair seed 0 with seed 1; text would put seed 10 before 2."""
    records = {"rpc_0": 0.5, "rpc_2": 0.6, "rpc_10": 0.9, "cpc_10": 0.8, "cpc_2": 0.6, "cpc_3": 0.1}
    found = by_seed({name: record(value) for name, value in records.items()})
    assert list(found["rpc"]) == [0, 2, 10]
    assert shared(values(found["rpc"]), values(found["cpc"])) == ([0.6, 0.9], [0.6, 0.8])


def test_what_was_run_and_came_to_nothing_is_not_called_not_run():
    assert accuracy({}) == "not run"
    assert accuracy({0: record(None, 3)}) == "features not finite"
    assert accuracy({0: record(0.5), 1: record(None, 3)}) == "50.0 (1 of 2 seeds) ×"
    assert accuracy({0: record(0.5), 1: record(0.5)}) == "50.0 ± 0.0"


def test_the_command_on_a_page_makes_its_cells():
    assert Stability().command("stability") == "relatum reproduce stability --preset cpu"
    given = SpeechBatchSize(preset="cpu", seeds=3, cells="rpc-*", jobs=2, page=Path("a.md"))
    assert given.command("x") == "relatum reproduce x --preset cpu --seeds 3 --cells 'rpc-*'"


def test_cells_of_different_images_do_not_meet_in_one_table(tmp_path):
    def other(cell, folder, console):
        return note(cell, folder, console) | {"images": cell.plan["value"]}

    settings = Stability(preset="cpu", out=tmp_path, jobs=1)
    every = [replace(cell, plan={**cell.plan, "device": "cpu"}) for cell in cells(1, 2)]
    with pytest.raises(RunError, match="c-1 and c-2 were trained on different images"):
        reproduce(settings, "stability", every, other, lambda *_, **__: "", QUIET)


def batch_records(slopes):
    """Records of three sizes; of each objective one slope a seed, in log2 of the size."""
    return {
        f"{name}-{size}-{seed}": record(0.5 + b * math.log2(size / 64))
        for name, of in slopes.items()
        for seed, b in enumerate(of)
        for size in (32, 64, 128)
    }


FLAT, RISES = (0.0, 0.001, -0.001), (0.02, 0.021, 0.019)


@pytest.mark.parametrize(
    ("rpc", "cpc", "verdict"),
    [
        (FLAT, RISES, "holds here"),
        ((0.04, 0.041, 0.042), RISES, "is contradicted here"),
        (RISES, RISES, "neither shown nor refuted"),
        # Seeds differ in their slopes, and alike for both; then only RPC's do.
        ((0.0, 0.001, 0.035), (0.02, 0.021, 0.0551), "holds here"),
        (
            (0.0, 0.001, 0.035),
            (0.02, 0.021, 0.04),
            "though that of the pooled trainings lies below",
        ),
        ((0.0, 0.03, 0.0), RISES, "neither shown nor refuted"),
        # Both fall, RPC the more: a slope below that of CPC is no merit then.
        ((-0.03, -0.031, -0.029), (-0.01, -0.011, -0.009), "cannot be seen here"),
    ],
)
def test_the_verdict_on_batch_sizes_is_that_of_the_slopes(tmp_path, rpc, cpc, verdict):
    page = tmp_path / "page.md"
    records = batch_records({"rpc": rpc, "cpc": cpc})
    text = write_batch_page(
        records, page=page, title="T", command="c", protocol="p", measure="linear", jobs=1
    )
    assert verdict in text
    assert verdict in page.read_text()
    assert f"RPC: {100 * np.mean(rpc):+.2f} (" in text
    assert page.with_suffix(".svg").read_text().startswith("<?xml")
    found = json.loads(page.with_suffix(".json").read_text())["slopes"]
    for kind in ("over_seeds", "pooled"):
        assert found["cpc"][kind]["value"] == pytest.approx(np.mean(cpc), abs=1e-12)
    differences = np.subtract(rpc, cpc)
    half = 4.303 * differences.std(ddof=1) / math.sqrt(3)  # 97.5 % quantile of t, 2 degrees
    ends = [found["difference"]["over_seeds"][end] for end in ("low", "high")]
    assert ends == pytest.approx([differences.mean() - half, differences.mean() + half], rel=1e-3)


def test_no_verdict_from_one_seed(tmp_path):
    records = batch_records({"rpc": (0.0,), "cpc": (0.02,)})
    text = write_batch_page(
        records, page=None, title="T", command="c", protocol="p", measure="linear", jobs=1
    )
    assert "no verdict" in text

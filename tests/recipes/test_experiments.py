"""Cells that stay, slopes, data folders, and what pages say of finished cells."""

import json
import math
from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from relatum.recipes.experiments.batch_page import write_batch_page
from relatum.recipes.experiments.cells import Cell, finish
from relatum.recipes.experiments.data import found_data
from relatum.recipes.experiments.settings import Experiment
from relatum.recipes.experiments.statistics import gain, level, slope
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


def test_a_cell_that_fails_loses_none_that_is_finished(tmp_path):
    broken = [*cells(1), Cell("bad", {"value": 0, "fails": True}), *cells(2)]
    with pytest.raises(ArithmeticError):
        finish(broken, tmp_path, note, jobs=1, console=QUIET)
    finish(cells(1, 2), tmp_path, note, jobs=1, console=QUIET)
    assert (tmp_path / "log.txt").read_text().split() == ["c-1", "bad", "c-2"]


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


def batch_records(rpc, cpc):
    """Records of three sizes and two seeds whose accuracies are straight lines in log2 size."""
    return {
        f"{name}-{size}-{seed}": {
            "plan": {}, "created": "2026-01-01", "seconds": 1.0,
            "measures": {"linear": 0.5 + b * math.log2(size) + 0.001 * seed * (size == 64)},
        }
        for name, b in (("rpc", rpc), ("cpc", cpc))
        for size in (32, 64, 128)
        for seed in (0, 1)
    }  # fmt: skip


@pytest.mark.parametrize(
    ("rpc", "cpc", "verdict"),
    [(0.0, 0.02, "holds here"), (0.02, 0.0, "is contradicted"), (0.01, 0.01, "neither shown")],
)
def test_the_verdict_on_batch_sizes_is_that_of_the_slopes(tmp_path, rpc, cpc, verdict):
    page = tmp_path / "page.md"
    text = write_batch_page(
        batch_records(rpc, cpc), page=page, title="T", command="c", protocol="p",
        measure="linear", jobs=1,
    )  # fmt: skip
    if verdict == "neither shown":  # the paired difference is zero throughout
        assert "holds zero" in text
    else:
        assert verdict in text
    assert f"RPC: {100 * rpc:+.2f} points" in text
    assert verdict.split()[-1] in page.read_text()
    assert page.with_suffix(".svg").read_text().startswith("<?xml")
    found = json.loads(page.with_suffix(".json").read_text())["slopes"]
    assert np.isclose(found["cpc"]["value"], cpc, atol=1e-12)

"""The benchmark of mutual information: what is run, kept, counted and said."""

import io
import json
import math
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from relatum import cli
from relatum.mi import METHODS, MIEstimate
from relatum.mi.tasks import CORE, TASKS, THREE
from relatum.recipes.mi_benchmark import MIBenchmark, main
from relatum.recipes.mi_benchmark.cells import run_cell
from relatum.recipes.mi_benchmark.independence import independence
from relatum.recipes.mi_benchmark.plan import Cell, plan
from relatum.recipes.mi_benchmark.summary import consistency, share, summarise


def by_canonical_correlation(x, y, method, *, seed, permutations):
    """The Gaussian formula −½ Σ log(1 − ρ²) with the interval of one pair, and no correction."""
    n = len(x)
    blocks = np.corrcoef(np.hstack([x, y]).T)
    dim = x.shape[1]
    logs = [np.linalg.slogdet(b)[1] for b in (blocks, blocks[:dim, :dim], blocks[dim:, dim:])]
    value = float(logs[1] + logs[2] - logs[0]) / 2
    half = 1.96 * math.sqrt(max(-math.expm1(-2 * value), 1e-9) / n)
    return MIEstimate(value, (value - half, value + half), method, "plug-in")


def quiet():
    return Console(file=io.StringIO(), width=200)


def run(out, estimate=by_canonical_correlation, **options):
    options = {"methods": "gaussian", "tasks": "gaussian-1x1", "rows": 200, "jobs": 1, **options}
    return main(MIBenchmark(out=out, **options), quiet(), estimate=estimate)


def record(value, half=0.1, truth=1.0, **more):
    return {
        "method": "m", "task": "t", "seed": 0, "variant": "whole", "truth": truth, "error": None,
        "value": value, "low": value - half, "high": value + half, "seconds": 1.0, **more,
    }  # fmt: skip


def test_coverage_runs_what_was_promised():
    cells = plan("coverage", None, None, 1000, None, 0)
    tasks = {m: {c.task for c in cells if c.method == m} for m in METHODS}
    counts = Counter((cell.method, cell.task) for cell in cells)
    for method, repeats in {"ksg": 100, "gaussian": 100, "rpc": 40}.items():
        assert tasks[method] == set(CORE)
        assert {counts[method, task] for task in CORE} == {repeats}
    for method in set(METHODS) - {"rpc", "ksg", "gaussian", "histogram", "discrete", "mixed"}:
        assert tasks[method] == set(THREE)
        assert {counts[method, task] for task in THREE} == {10}
    for method in ("histogram", "discrete", "mixed"):
        assert len(tasks[method]) == 3
    assert len(set(cells)) == len(cells)


def test_full_meets_every_task_with_methods_made_for_it():
    cells = plan("full", None, None, 1000, None, 0)
    assert {cell.task for cell in cells} == set(TASKS)
    assert {cell.method for cell in cells} == set(METHODS)
    for cell in cells:
        flags = TASKS[cell.task].discrete
        assert (cell.method == "discrete") == all(flags)
        assert (cell.method == "mixed") == (any(flags) and not all(flags))


def test_what_is_given_takes_the_place_of_the_preset():
    cells = plan("coverage", ("ksg",), ("cubic-2x2",), 50, 3, 7)
    assert cells == [Cell("ksg", "cubic-2x2", 50, seed) for seed in (7, 8, 9)]


def test_rows_are_the_same_for_every_method_and_others_for_every_task_and_seed():
    cell = Cell("ksg", "cubic-2x2", 50, 7)
    assert cell.sample_seed == cell._replace(method="rpc").sample_seed
    others = [cell._replace(task="gaussian-1x1"), cell._replace(seed=8)]
    assert len({cell.sample_seed, *(other.sample_seed for other in others)}) == 3


def test_values_to_count_reach_the_estimator_as_text_and_numbers_as_numbers():
    seen = []

    def look(x, y, method, *, seed, permutations):
        seen.extend([x.dtype.kind, y.dtype.kind, x.shape, seed, permutations])
        return MIEstimate(0.5, (0.0, 1.0), method, "plug-in")

    run_cell(Cell("mixed", "bit-gaussian-1", 30, 4), look)
    assert seen == ["U", "f", (30, 1), 4, 0]


def test_errors_of_estimates_in_figures():
    (one,) = summarise([record(1.2), record(1.0), record(1.4, half=0.5), record(0.6)])
    assert (one.n, one.failed, one.covered, one.centred) == (4, 0, 2, 2)
    assert one.mean == pytest.approx(1.05)
    assert one.bias == pytest.approx(0.05)
    assert one.sd == pytest.approx(math.sqrt((0.15**2 + 0.05**2 + 0.35**2 + 0.45**2) / 3))
    assert one.rmse == pytest.approx(math.sqrt((0.04 + 0 + 0.16 + 0.16) / 4))
    assert one.half_width == pytest.approx(0.2)
    assert one.bias_within and one.verdict == "below 88 %"


@pytest.mark.parametrize(
    ("values", "verdict"),
    [
        ([1.05] * 9 + [1.2], "holds"),
        ([1.05] * 22 + [1.2] * 3, "holds"),  # 88 % exactly
        ([1.05] * 21 + [1.2] * 4, "below 88 %"),
        ([1.15] * 10, "bias breaks it"),
        ([0.8] * 10, "bias breaks it"),
        ([1.09] * 10, "holds"),
    ],
)
def test_verdicts(values, verdict):
    (one,) = summarise([record(value) for value in values])
    assert one.verdict == verdict


def test_failures_count_nowhere_else():
    refused = {"method": "m", "task": "t", "truth": 1.0, "error": "ValueError: too many columns"}
    (one,) = summarise([record(1.0), refused])
    assert (one.n, one.failed, one.covered) == (1, 1, 1)
    assert math.isnan(one.sd)
    (none,) = summarise([refused])
    assert (none.n, none.failed, none.verdict) == (0, 1, "no estimate")


def test_the_interval_of_a_share_is_wilsons():
    for hits, n in [(9, 10), (0, 10), (100, 100), (88, 100)]:
        z, p = 1.959963984540054, hits / n
        middle = (p + z * z / (2 * n)) / (1 + z * z / n)
        half = z / (1 + z * z / n) * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
        assert share(hits, n) == pytest.approx((middle - half, middle + half), abs=1e-12)


def test_the_page_and_the_numbers_beside_it(tmp_path):
    path = run(tmp_path, tasks="gaussian-1x1,independent-1x1", repeats=20, rows=400)
    text = path.read_text(encoding="utf-8")
    assert path == tmp_path / "quick.md"
    assert "| gaussian | gaussian-1x1 | 0.413 | 20 |" in text
    assert "Generated by `" in text and "400 rows" in text and "## Failures" not in text
    for line in text.splitlines():
        if line.startswith("| gaussian | "):
            assert line.count("|") in (8, 15)
    numbers = json.loads(path.with_suffix(".json").read_text(encoding="utf-8"))
    first, second = numbers["summaries"]
    values = [e["value"] for e in numbers["estimates"] if e["task"] == "gaussian-1x1"]
    assert len(values) == 20 and first["mean"] == pytest.approx(np.mean(values))
    assert abs(first["mean"] - first["truth"]) < 0.05  # 4 standard errors of a mean of 20
    assert first["covered"] >= 15
    assert second["truth"] == 0


@pytest.mark.parametrize("preset", ["quick", "self-consistency", "independence"])
def test_80_columns_of_a_terminal_show_every_word(tmp_path, preset):
    console = Console(file=io.StringIO(), width=80)
    settings = MIBenchmark(
        out=tmp_path, preset=preset, methods="doe-logistic", tasks="gaussian-dense-50x50",
        rows=200, repeats=1, jobs=1,
    )  # fmt: skip
    main(settings, console, estimate=by_canonical_correlation)
    text = console.file.getvalue()
    assert "…" not in text
    assert "doe-logistic" in text and "gaussian-dense-50x50" in text
    words = {"self-consistency": "additivity", "independence": "claims too much"}
    assert words.get(preset, "bias breaks it") in text


def test_a_second_call_runs_only_what_is_missing(tmp_path):
    calls = []

    def stops(x, y, method, *, seed, permutations):
        if len(calls) == 3:
            raise KeyboardInterrupt
        calls.append(seed)
        return by_canonical_correlation(x, y, method, seed=seed, permutations=permutations)

    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, stops, repeats=6)
    kept = sorted(tmp_path.rglob("rows200-seed*.json"))
    assert len(kept) == 3 == len(calls)
    kept[0].write_text("{", encoding="utf-8")  # a damaged file is as good as none

    def continues(x, y, method, *, seed, permutations):
        calls.append(seed)
        return by_canonical_correlation(x, y, method, seed=seed, permutations=permutations)

    page = run(tmp_path, continues, repeats=6)
    assert len(calls) == 3 + 4 and set(calls) == set(range(6))
    fresh = run(tmp_path / "fresh", repeats=6)
    left, right = (json.loads(p.with_suffix(".json").read_text()) for p in (page, fresh))
    assert [e["value"] for e in left["estimates"]] == [e["value"] for e in right["estimates"]]
    run(tmp_path, continues, repeats=6)
    assert len(calls) == 7


def test_a_failure_is_said_and_tried_again(tmp_path):
    def refuses(x, y, method, *, seed, permutations):
        if seed == 1:
            raise ValueError("too many\ncolumns")
        value = math.nan if seed == 2 else 0.4
        return MIEstimate(value, (0.3, 0.5), method, "plug-in")

    text = run(tmp_path, refuses, repeats=4).read_text(encoding="utf-8")
    assert "* gaussian on gaussian-1x1, 1 x: ValueError: too many columns" in text
    assert "not all finite" in text and "2 (failed: 2)" in text
    assert "failed" not in run(tmp_path, repeats=4).read_text(encoding="utf-8")


def test_what_estimators_warn_of_is_kept(tmp_path):
    def warns(x, y, method, *, seed, permutations):
        import warnings

        warnings.warn("slow to settle", UserWarning, stacklevel=1)
        return MIEstimate(0.4, (0.3, 0.5), method, "plug-in", warnings=("few rows",))

    page = run(tmp_path, warns, repeats=1)
    (kept,) = json.loads(page.with_suffix(".json").read_text())["estimates"]
    assert kept["warnings"] == ["few rows", "slow to settle"]


def test_a_good_estimator_is_consistent_with_itself(tmp_path):
    options = {"preset": "self-consistency", "tasks": None, "rows": 2000, "repeats": 4}
    page = run(tmp_path, **options)
    found = json.loads(page.with_suffix(".json").read_text())["consistency"]
    assert len(found) == 2 * 3
    assert sum(one["held"] for one in found if "independence" not in one["test"]) >= 14
    assert "## Self-consistency" in page.read_text(encoding="utf-8")


def test_relations_in_figures():
    def seen(whole, independent, part, twice, seed):
        given = {"whole": whole, "independent": independent, "part": part, "twice": twice}
        return [record(value, seed=seed, variant=name) for name, value in given.items()]

    fine = seen(1.0, 0.05, 0.5, 2.2, seed=0)  # 0.2 is within √(0.1² + 0.2²)
    worse = seen(1.0, -0.2, 1.2, 2.3, seed=1)
    independence, processing, additivity = consistency([*fine, *worse])
    assert (independence.held, processing.held, additivity.held) == (1, 1, 1)
    assert {one.n for one in (independence, processing, additivity)} == {2}
    assert independence.gap == pytest.approx(-0.075)
    assert independence.slack == pytest.approx(0.1)
    assert processing.gap == pytest.approx((-0.5 + 0.2) / 2)
    assert processing.slack == pytest.approx(math.hypot(0.1, 0.1))
    assert additivity.gap == pytest.approx(0.25)
    assert additivity.slack == pytest.approx(math.hypot(0.1, 0.2))


def test_claims_about_independent_sides_in_figures():
    def seen(value, size, *warnings, error=None):
        return record(value, rows=size, warnings=list(warnings), error=error)

    fine = [seen(0.1, 200), seen(0.15, 200)]  # from 0.0 and 0.05 on
    says = [seen(0.3, 1000, "too many columns"), seen(0.0, 1000, error="too few rows")]
    silent = [seen(0.3, 5000), seen(0.3, 5000, "too many columns"), seen(-0.2, 5000)]
    first, second, third = independence([*fine, *says, *silent])
    assert (first.verdict, second.verdict, third.verdict) == ("holds", "says so", "claims too much")
    assert (first.n, second.n, second.refused, third.n) == (2, 1, 1, 3)
    assert (second.warned, third.warned, third.silent) == (1, 1, 1)
    assert first.highest == pytest.approx(0.05)
    assert third.highest == pytest.approx(0.2) and third.mean == pytest.approx(0.4 / 3)
    [none] = independence([seen(0.0, 200, error="too few rows")])
    assert none.verdict == "says so" and math.isnan(none.highest)


def test_the_page_of_independence_shows_who_claims_too_much(tmp_path):
    """A plug-in without correction invents nats in many columns of few rows."""
    page = run(tmp_path, preset="independence", tasks="independent-50x50", rows=200, repeats=1)
    assert "200 | 1 |" in page.read_text(encoding="utf-8")
    assert "In 1 of 1 rows a method claims too much" in page.read_text(encoding="utf-8")
    assert {cell.rows for cell in plan("independence", None, None, None, 1, 0)} == {200, 1000, 5000}


def test_self_consistency_needs_a_part_of_y(tmp_path):
    with pytest.raises(ValueError, match="y has one column in gaussian-1x1"):
        run(tmp_path, preset="self-consistency")


@pytest.mark.slow
def test_processes_give_what_one_process_gives(tmp_path):
    pages = [run(tmp_path / str(jobs), repeats=3, jobs=jobs) for jobs in (1, 2)]
    one, two = (json.loads(page.with_suffix(".json").read_text()) for page in pages)
    assert [e["value"] for e in one["estimates"]] == [e["value"] for e in two["estimates"]]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--methods", "ksg,gausian"], "unknown method 'gausian'; did you mean 'gaussian'?"),
        (["--tasks", "bimodal"], "unknown task 'bimodal'; did you mean 'bimodal-"),
        (["--preset", "fast"], "unknown preset 'fast'"),
        (["--repeats", "0"], "repeats must be at least 1, got 0"),
        (["--rows", "1"], "rows must be at least 2, got 1"),
        (["--jobs", "0"], "jobs must be at least 1, got 0"),
    ],
)
def test_one_clear_line_for_each_mistake(words, said, capsys):
    assert cli.main(["mi-benchmark", *words]) == 2
    assert said in capsys.readouterr().err


def test_the_default_folder_is_under_runs():
    assert MIBenchmark().out == Path("runs/mi-benchmark")

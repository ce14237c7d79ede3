"""``relatum mi`` from the command line to its table, JSON and page."""

import json
import math

import numpy as np
import pytest
from rich.console import Console

from relatum import cli
from relatum.mi.result import MIEstimate
from relatum.recipes import mi


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Two normal columns with correlation 0.8, noise, a class of the second, and groups of four."""
    rng = np.random.default_rng(0)
    a, noise = rng.normal(size=(2, 400))
    b = 0.8 * a + 0.6 * rng.normal(size=400)
    kind = np.where(b > 0, "high", "low")
    path = tmp_path_factory.mktemp("mi") / "data.csv"
    rows = zip(a, b, noise, kind, np.arange(400) // 4, strict=True)
    text = "a,b,noise,kind,who\r\n" + "".join(
        f"{u:.6f},{v:.6f},{w:.6f},{k},{g}\r\n" for u, v, w, k, g in rows
    )
    path.write_bytes(b"\xef\xbb\xbf" + text.encode())
    return path


def run(capsys, data, *options):
    code = cli.main(["mi", str(data), "--x", "a", "--y", "b", *options])
    captured = capsys.readouterr()
    return code, " ".join(captured.out.split()), captured.err


def test_side_by_side(capsys, data, tmp_path):
    code, out, err = run(
        capsys, data, "--method", "ksg,gaussian", "--permutations", "19",
        "--json", str(tmp_path / "out.json"), "--html", str(tmp_path / "out.html"),
    )  # fmt: skip
    assert (code, err) == (0, "")
    for text in ("ksg", "gaussian", "400 rows", "95 % interval", "not other bias"):
        assert text in out
    assert "a and b depend" in out
    assert "nan" not in out.split()
    record = json.loads((tmp_path / "out.json").read_text())
    assert [e["method"] for e in record["estimates"]] == ["ksg", "gaussian"]
    for e in record["estimates"]:
        assert e["value"] == pytest.approx(-0.5 * math.log(1 - 0.64), abs=0.12)
        assert e["interval"][0] < e["value"] < e["interval"][1]
        assert e["p_value"] == pytest.approx(1 / 20)
    page = (tmp_path / "out.html").read_text()
    assert page.count('aria-label="Estimates with intervals') == 1
    assert "b against a" in page


def test_bits(capsys, data, tmp_path):
    values = []
    for unit in ("nats", "bits"):
        file = tmp_path / f"{unit}.json"
        code, out, _ = run(
            capsys, data, "--method", "gaussian", "--permutations", "0", "--unit", unit,
            "--json", str(file),
        )  # fmt: skip
        assert code == 0
        assert f"Mutual information, {unit}" in out
        values.append(json.loads(file.read_text())["estimates"][0]["value"])
    assert values[0] == pytest.approx(values[1] * math.log(2), rel=1e-12)


def test_independent_columns_are_not_said_to_depend(capsys, data):
    code, out, _ = run(capsys, data, "--y", "noise", "--method", "gaussian", "--permutations", "19")
    assert code == 0
    assert "gaussian does not find a dependence between a and noise" in out


def fake(refusing=()):
    def estimate_mi(x, y, method, **options):
        if method in refusing:
            raise ValueError(f"{method} needs classes")
        calls.append((method, x, y, options))
        return MIEstimate(0.5, (0.4, 0.6), method, "plug-in", rows=len(x), warnings=("be warned",))

    calls = []
    return estimate_mi, calls


def test_what_the_estimator_is_given(capsys, data, monkeypatch):
    stand_in, calls = fake()
    monkeypatch.setattr(mi, "estimate_mi", stand_in)
    code, out, _ = run(
        capsys, data, "--x", "a,noise", "--y", "kind", "--method", "rpc", "--seed", "3",
        "--folds", "4", "--groups", "who", "--level", "0.9", "--permutations", "7",
    )  # fmt: skip
    assert code == 0
    assert "warning: rpc: be warned" in out
    ((method, x, y, options),) = calls
    assert (method, list(x.columns), list(y.columns)) == ("rpc", ["a", "noise"], ["kind"])
    np.testing.assert_array_equal(options.pop("groups"), np.arange(400) // 4)
    options.pop("progress")(1, 2)
    assert options == {
        "seed": 3, "level": 0.9, "folds": 4, "block_length": None, "permutations": 7, "seeds": 1,
    }  # fmt: skip


def test_a_method_that_refuses_is_listed(capsys, data, monkeypatch):
    monkeypatch.setattr(mi, "estimate_mi", fake({"discrete"})[0])
    code, out, _ = run(capsys, data, "--method", "ksg,discrete")
    assert code == 0
    assert "no estimate: discrete: discrete needs classes" in out
    code, _, err = run(capsys, data, "--method", "discrete")
    assert code == 1
    assert "no method gives an estimate" in err
    assert "discrete needs classes" in err


def test_all_methods(data):
    assert mi.MI(data=data, method="all").methods == list(mi.METHODS)


def test_missing_rows_are_counted(capsys, tmp_path, data):
    path = tmp_path / "gaps.csv"
    lines = data.read_bytes().decode("utf-8-sig").splitlines()
    lines[3] = "," + lines[3].split(",", 1)[1]
    path.write_text("\n".join(lines))
    code, _, err = run(capsys, path, "--method", "gaussian")
    assert code == 1
    assert "column 'a' of" in err
    assert "row 3 of the data" in err
    code, out, _ = run(
        capsys, path, "--method", "gaussian", "--missing", "drop", "--permutations", "0"
    )
    assert code == 0
    assert "399 rows, 1 with missing values left out" in out


@pytest.mark.parametrize(
    ("options", "message", "expected"),
    [
        (["--method", "rcp"], "unknown method 'rcp'; did you mean 'rpc'?", 2),
        (["--method", "ksg,ksg"], "hold one of them twice", 2),
        (["--level", "95"], "level must be between 0 and 1, got 95", 2),
        (["--permutations", "-1"], "permutations must not be negative", 2),
        (["--folds", "1"], "folds must be at least 2, got 1", 2),
        (["--unit", "bit"], "did you mean 'bits'?", 2),
        (["--groups", "who", "--block-length", "3"], "groups or block_length, not both", 2),
        (["--x", "q"], "has no column 'q' (--x); known are a, b, noise, kind, who", 1),
        (["--json", "."], "is a folder; name a file in it", 1),
    ],
)
def test_one_line_for_each_mistake(capsys, data, options, message, expected):
    code, out, err = run(capsys, data, *options)
    assert (code, out) == (expected, "")
    assert message in err
    assert err.count("\n") == 1


def test_the_bar_shows_on_a_terminal_only(data, monkeypatch):
    monkeypatch.setattr(mi, "estimate_mi", fake()[0])
    for progress, terminal, shown in (
        (True, True, True),
        (False, True, False),
        (True, False, False),
    ):
        console = Console(force_terminal=terminal, width=100)
        with console.capture() as captured:
            mi.main(mi.MI(data=data, x="a", y="b", method="ksg,cpc", progress=progress), console)
        assert ("/2" in captured.get()) == shown


def test_the_critic_of_trained_methods_alone(capsys, data, tmp_path):
    values = []
    for critic in ("kernel", "separable"):
        file = tmp_path / f"{critic}.json"
        code, _, _ = run(
            capsys, data, "--method", "rpc,gaussian", "--permutations", "0", "--folds", "2",
            "--critic", critic, "--json", str(file),
        )  # fmt: skip
        assert code == 0
        values.append([e["value"] for e in json.loads(file.read_text())["estimates"]])
    assert values[0][0] != values[1][0]
    assert values[0][1] == values[1][1]
    code, _, err = run(capsys, data, "--method", "ksg", "--critic", "kernel")
    assert code == 2 and "critic belongs to rpc, cpc" in err

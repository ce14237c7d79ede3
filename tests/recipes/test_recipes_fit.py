"""`relatum fit` and `relatum retrieve`, from a table to matches."""

import csv
import json

import numpy as np
import pandas as pd
import pytest

from relatum.cli import main
from relatum.estimators import LinearRPC, load


@pytest.fixture
def table(tmp_path):
    rng = np.random.default_rng(0)
    z = rng.normal(size=(300, 4))
    frame = pd.DataFrame(
        {
            **{f"a_{i}": z[:, i] + 0.1 * rng.normal(size=300) for i in range(4)},
            **{f"b,{i}": z[:, i] - z[:, 0] + 0.1 * rng.normal(size=300) for i in range(4)},
            "kind": ["u", "v"] * 150,
            "who": np.repeat(np.arange(30), 10),
        }
    )
    frame.to_csv(tmp_path / "pairs.csv", index=False)
    frame.to_parquet(tmp_path / "pairs.parquet")
    return tmp_path / "pairs.parquet", frame


@pytest.mark.parametrize("method", ["exact", "mlp"])
def test_fit_and_retrieve(table, tmp_path, capsys, method):
    path, frame = table
    model, record, out = (tmp_path / name for name in ("m.pt", "m.json", "found.csv"))
    options = ["--method", method, "--groups", "who", "--json", str(record)]
    options += ["--steps", "100"] if method == "mlp" else []
    assert main(["fit", str(path), "--x", "a_*", "--y", '"b,?"', "--out", str(model),
                 *options]) == 0  # fmt: skip
    written = json.loads(record.read_text())
    assert (written["train_rows"], written["test_rows"]) == (240, 60)
    assert written["measures"]["recall@1"] > (0.8 if method == "exact" else 0.1)
    assert "partner is among the best 10" in capsys.readouterr().out
    fitted = load(model)
    assert list(fitted.feature_names_in_) == [f"a_{i}" for i in range(4)]
    assert list(fitted.target_names_in_) == [f"b,{i}" for i in range(4)]
    words = ["retrieve", str(model), "--data", str(path), "--k", "2", "--out", str(out)]
    assert main(words) == 0
    assert "300 rows; own row among the best 2:" in capsys.readouterr().out
    sides = frame[fitted.feature_names_in_], frame[fitted.target_names_in_]
    found = fitted.retrieve(*sides, k=2)
    rows = list(csv.DictReader(out.read_text().splitlines()))
    assert [int(row["found"]) for row in rows] == found.indices.ravel().tolist()
    assert [row["query"] for row in rows[:3]] == ["0", "0", "1"]


def test_classes_are_judged_on_the_rows_held_out(tmp_path, capsys):
    """Two sides that share their class alone, as two far corners: the means make no error."""
    rng = np.random.default_rng(0)
    kind = rng.integers(0, 3, 240)
    corners = 5 * np.eye(3)[kind]
    columns = {
        f"{side}{i}": corners[:, i] + rng.normal(size=240) for side in "ab" for i in range(3)
    }
    path, record = tmp_path / "t.csv", tmp_path / "m.json"
    pd.DataFrame({**columns, "kind": np.array(["u", "v", "w"])[kind]}).to_csv(path, index=False)
    words = ["fit", str(path), "--x", "a*", "--y", "b*", "--labels", "kind", "--dimension", "2",
             "--out", str(tmp_path / "m.pt"), "--json", str(record)]  # fmt: skip
    assert main(words) == 0
    found = json.loads(record.read_text())["measures"]
    assert found["class_error"] < 0.05
    assert found["class_pair_error"] <= found["certified_risk"]
    assert "error of the nearest class mean" in capsys.readouterr().out
    assert main([*words[:3], "a*,kind", *words[4:]]) == 1
    assert "'kind' is in --labels and in --x or --y" in capsys.readouterr().err


def test_the_same_as_in_python(table, tmp_path):
    path, frame = table
    assert main(["fit", str(path), "--x", "a_0:a_3", "--y", '"b,0","b,1"', "--test-fraction", "0",
                 "--ridge", "0", "--out", str(tmp_path / "m.pt")]) == 0  # fmt: skip
    ours = LinearRPC(rank=16).fit(frame[[f"a_{i}" for i in range(4)]], frame[["b,0", "b,1"]])
    np.testing.assert_allclose(load(tmp_path / "m.pt").weight_, ours.weight_, rtol=1e-9)


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["--x", "a_*", "--y", "kind"], 1, "column 'kind' of .* holds text"),
        (["--x", "c_*", "--y", "who"], 1, "has no column 'c_.' .--x"),
        (["--x", "a_*", "--y", "a_0"], 1, "is in --x and in --y"),
        (["--x", "a_*", "--y", "who", "--objective", "cpc"], 2, "method 'exact' maximises rpc"),
        (["--steps", "3"], 2, "steps belongs to method linear and mlp: steps 3 would have no"),
        (["--method", "mlp", "--ridge", "5"], 2, "ridge belongs to method exact"),
        (["--x", "a_*", "--y", "who", "--method", "deep"], 2, "unknown method 'deep'"),
        (["--x", "a_*", "--y", "who", "--test-fraction", "1"], 2, "test_fraction must be in"),
    ],
)
def test_mistakes(table, capsys, words, code, message):
    import re

    assert main(["fit", str(table[0]), *words]) == code
    assert re.search(message, capsys.readouterr().err)


def test_what_is_no_model(table, tmp_path, capsys):
    assert main(["retrieve", str(table[0]), "--data", str(table[0])]) == 1
    assert "damaged or no saved estimator" in capsys.readouterr().err
    x = np.random.default_rng(0).normal(size=(20, 2))
    LinearRPC().fit(x, x[:, :1] + x[:, 1:]).save(tmp_path / "plain.pt")
    assert main(["retrieve", str(tmp_path / "plain.pt"), "--data", str(table[0])]) == 1
    assert "fitted without names of columns" in capsys.readouterr().err
    assert main(["retrieve", str(tmp_path / "plain.pt")]) == 2
